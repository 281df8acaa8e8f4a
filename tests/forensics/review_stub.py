"""A real HTTP server on loopback that speaks OpenAI's chat and whose "model" is
a function of the chat.
"""

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from forensics.shortcuts.family import rubric_of, rubrics

YES = {rubric.yes for rubric in (*rubrics().values(), rubric_of(""))}
Chat = list[dict[str, str]]
Model = Callable[[Chat], str]


class ReviewStub(ThreadingHTTPServer):
    """`url` ends in `/v1`. `seen` holds the bodies, `keys` the authorisations.
    `troubles`: statuses (or "never", "no json") of the next calls; `refused`: a
    field that is answered by 400.
    """

    daemon_threads = True

    def __init__(
        self, model: Model, troubles: tuple[Any, ...] = (), always: Any = None, refused: str = ""
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model, self.troubles, self.always, self.refused = (
            model,
            deque(troubles),
            always,
            refused,
        )
        self.seen: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.lock, self.leaving = threading.Lock(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The bodies that quote a log."""
        return [body for body in self.seen if len(body["messages"]) == 2]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ReviewStub

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.seen.append(body)
            server.keys.add(self.headers.get("Authorization"))
            trouble = server.troubles.popleft() if server.troubles else server.always
        if trouble == "never":
            server.leaving.wait(600)
            self.close_connection = True
        elif trouble == "no json":
            self._send(200, b"<html>hello</html>")
        elif isinstance(trouble, int):
            self._send(trouble, b'{"error": "trouble"}')
        elif self.path != "/v1/chat/completions":
            self._send(404, b"{}")
        elif server.refused in body:
            self._send(400, json.dumps({"error": f"{server.refused} is not supported"}).encode())
        else:
            message = {"role": "assistant", "content": server.model(body["messages"])}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._send(200, json.dumps({"choices": [choice]}).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def reviewing(model: Model, **options: Any) -> Iterator[ReviewStub]:
    with ReviewStub(model, **options) as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        thread.start()
        try:
            yield server
        finally:
            server.leaving.set()
            server.shutdown()
            thread.join()


def fenced(chat: Chat) -> tuple[str, str]:
    """What stands in the fence, and all that stands outside of it, as a careful
    reader tells them apart.
    """
    (token,) = re.findall(r"hold the word (\S+),", chat[0]["content"])
    before, _, rest = chat[1]["content"].partition(f"\n{token} BEGIN\n")
    quoted, _, after = rest.partition(f"\n{token} END\n")
    return quoted, f"{chat[0]['content']}\n{before}\n{after}"


def letter(chat: Chat, yes: bool) -> str:
    """The letter that says yes (or no) in this chat; the question before the
    log and the one behind it are the same.
    """
    _, outside = fenced(chat)
    (first,) = set(re.findall(r"^A\) (.*)$", outside, re.MULTILINE))
    return "A" if (first in YES) == yes else "B"


def truthful(mark: str) -> Model:
    """A model that knows the planted truth: yes where a quoted line is the mark."""

    def model(chat: Chat) -> str:
        if len(chat) == 1:
            return "ANSWER: A"
        yes = f"| {mark}" in fenced(chat)[0].splitlines()
        return f"Step 1 shows it.\n\nANSWER: {letter(chat, yes)}"

    return model
