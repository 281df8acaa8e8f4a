"""A real chat server on loopback that answers what a test scripts, and can misbehave.

Its tokens are characters: a text is told as `ROLE:TEXT` and an end (0) for each message, so that a
conversation goes on from its earlier calls token by token.
"""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Answer = dict[str, Any]  # the message: `content`, `tool_calls`, `reasoning_content`


def said(text: str) -> Answer:
    return {"content": text}


def called(name: str, arguments: str, number: int = 0, text: str = "") -> Answer:
    function = {"name": name, "arguments": arguments}
    call = {"id": f"call-{number}", "type": "function", "function": function}
    return {"content": text or None, "tool_calls": [call]}


class ChatServer:
    """`script`: the answer to a request. `troubles`: what happens to one request after another
    (``: nothing). `unknown`: fields that it declines, by name or (`words`) without a name.
    `bare`: it tells nothing of its tokens.
    """

    def __init__(self, script: Callable[[dict[str, Any]], Answer]) -> None:
        self.script, self.troubles = script, deque[str]()
        self.unknown: frozenset[str] = frozenset()
        self.names, self.bare = True, False
        self.seen: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.gone = threading.Event()  # a client hung up in the middle of a stream
        self.url = ""

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.seen.append(body)
        self.headers.append(dict(request.headers))
        trouble = self.troubles.popleft() if self.troubles else ""
        if unknown := self.unknown & body.keys():
            words = f"unknown field {sorted(unknown)[0]}" if self.names else "bad request"
            return JSONResponse({"error": {"message": words}}, 400)
        if (failed := await self._failed(trouble)) is not None:
            return failed
        message = {"role": "assistant", **self.script(body)}
        if body.get("stream"):
            return StreamingResponse(
                self._chunks(body, message, trouble), media_type="text/event-stream"
            )
        choice = {"index": 0, "message": message, "finish_reason": finish_of(message)}
        tokens = {} if self.bare else {"prompt_token_ids": prompt_ids(body["messages"])}
        choice |= {} if self.bare else told(drawn_ids(message))
        whole = {"choices": [choice], **tokens, "usage": usage(body, message)}
        return Response(json.dumps(whole), media_type="application/json")

    async def _failed(self, trouble: str) -> Response | None:
        if trouble == "429 in silence":
            return Response(status_code=429)
        if trouble.isdecimal():
            headers = {"retry-after": "0.01"} if trouble == "429" else {}
            error = {"error": {"message": "status, see /home/someone/secret/x.py"}}
            return JSONResponse(error, int(trouble), headers)
        if trouble.startswith("to "):
            return Response(status_code=307, headers={"location": trouble[3:]})
        if trouble == "garbage":
            return Response("{[", media_type="application/json")
        if trouble == "silence":
            await asyncio.sleep(5)
        return None

    async def _chunks(
        self, body: dict[str, Any], message: Answer, trouble: str
    ) -> AsyncIterator[bytes]:
        ids, first = drawn_ids(message), True
        pieces: list[dict[str, Any]] = [{"content": one} for one in message.get("content") or ""]
        if thought := message.get("reasoning_content"):
            pieces.insert(0, {"reasoning_content": thought})
        for at, call in enumerate(message.get("tool_calls") or ()):
            arguments = call["function"]["arguments"]
            begun = {"name": call["function"]["name"], "arguments": arguments[:3]}
            pieces.append({"tool_calls": [{**call, "index": at, "function": begun}]})
            rest = {"index": at, "function": {"arguments": arguments[3:]}}
            pieces.append({"tool_calls": [rest]})
        try:
            for number, piece in enumerate(pieces):
                if trouble == "cut" and number == 2:  # and no word that it ended
                    return
                if trouble == "break" and number == 2:
                    raise RuntimeError("broken off")
                if trouble == "slow":
                    await asyncio.sleep(0.05)
                choice = {"index": 0, "delta": piece, "finish_reason": None}
                ours = ids[number:] if piece is pieces[-1] else ids[number : number + 1]
                choice |= {} if self.bare else told(ours)
                more = {"prompt_token_ids": prompt_ids(body["messages"])} if first else {}
                first = False
                yield chunk({"choices": [choice], **({} if self.bare else more)})
        except asyncio.CancelledError:
            self.gone.set()
            raise
        end = {"index": 0, "delta": {}, "finish_reason": finish_of(message)}
        yield chunk({"choices": [end]})
        yield chunk({"choices": [], "usage": usage(body, message)})
        yield b"data: [DONE]\n\n"


def chunk(value: Any) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def finish_of(message: Answer) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def told(ids: list[int]) -> dict[str, Any]:
    rows = [{"token": chr(one), "logprob": -0.5} for one in ids]
    return {"token_ids": ids, "logprobs": {"content": rows}}


def drawn_ids(message: Answer) -> list[int]:
    return [*(ord(one) for one in text_of(message)), 0]


def text_of(message: Answer) -> str:
    calls = "".join(
        json.dumps(call["function"], sort_keys=True) for call in message.get("tool_calls") or ()
    )
    content = message.get("content") or ""
    return (content if isinstance(content, str) else json.dumps(content)) + calls


def prompt_ids(messages: list[Answer]) -> list[int]:
    """Everything before the next answer; an answer of before has the tokens that were drawn."""
    whole = [f"{one['role']}:{text_of(one)}\0" for one in messages]
    return [ord(one) for one in "".join(whole) + "assistant:"]


def usage(body: dict[str, Any], message: Answer) -> dict[str, int]:
    prompt, drawn = len(prompt_ids(body["messages"])), len(drawn_ids(message))
    return {"prompt_tokens": prompt, "completion_tokens": drawn}


@contextmanager
def serving(script: Callable[[dict[str, Any]], Answer]) -> Iterator[ChatServer]:
    """A server while it answers."""
    chat = ChatServer(script)
    app = Starlette(routes=[Route("/v1/chat/completions", chat.chat, methods=["POST"])])
    config = uvicorn.Config(
        app, port=0, log_config=None, log_level="critical", lifespan="off", ws="none",
        timeout_graceful_shutdown=0,
    )  # fmt: skip
    server = uvicorn.Server(config)
    sock = config.bind_socket()
    chat.url = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
    thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
    sock.listen(128)
    thread.start()
    try:
        yield chat
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        sock.close()
