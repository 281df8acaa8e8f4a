"""The reviewer's server and the store of its answers.

1. A small question that is not about a log finds out whether the server is
   there, has the model, and takes settings (temperature 0, a seed, a limit);
   where it refuses them, calls go without.
2. Each answer is appended to a file in the case folder under the hash of all
   that was asked, the fence apart. What is there is never asked again. The
   address is not part of the hash: the model's name stands for the model.
3. A call that the server declines, or leaves unanswered, is no answer, with the
   reason, and is not stored. After `MOST_FAILURES` unanswered calls in a row no
   further one is made, and the case says so.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, TypeVar

from forensics.policies.completions import Broken, Client, Declined, ServerConfig, Unanswered
from forensics.records import canonical_json
from forensics.shortcuts.review_prompt import READ, request
from forensics.shortcuts.reviewer import Reviewer

MOST_FAILURES = 3
PROBE = ({"role": "user", "content": "Reply with one line that reads exactly 'ANSWER: A'."},)
C = TypeVar("C")
A = TypeVar("A")


class Stopped(Exception):
    """No call is made any more; the message says why, with the cure."""


class AnswerCache:
    """Answers that were given, by the hash of what was asked, in a file that
    grows by a line for each.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        self._known: dict[str, str] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._load()
        self._file = path.open("a", encoding="utf-8")

    def _load(self) -> None:
        """A line that was cut off when a run was killed is passed over, and ended."""
        content = self._path.read_bytes()
        for line in content.splitlines():
            try:
                row = json.loads(line)
                self._known[str(row["key"])] = str(row["answer"])
            except (ValueError, KeyError, TypeError):
                continue
        if content and not content.endswith(b"\n"):
            with self._path.open("ab") as file:
                file.write(b"\n")

    def get(self, key: str) -> str | None:
        return self._known.get(key)

    def put(self, key: str, answer: str) -> None:
        with self._lock:
            self._known[key] = answer
            if self._file.closed:  # the run was interrupted while this answer was on its way
                return
            self._file.write(canonical_json({"key": key, "answer": answer}) + "\n")
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()


class ReviewClient:
    """Asks the server; safe to share between threads."""

    def __init__(self, reviewer: Reviewer, seed: int) -> None:
        self._reviewer, self._seed = reviewer, seed
        self._client = Client(ServerConfig(**vars(reviewer) | {"url": reviewer.address}))
        self._lock, self._failures, self._plain = Lock(), 0, False
        self.stopped: str | None = None

    def close(self) -> None:
        self._client.close()

    def start(self) -> None:
        """The first question. Raises `Stopped` where no review is to be had."""
        try:
            try:
                self._post(PROBE)
            except Declined as error:
                if error.status not in (400, 422):
                    raise
                self._plain = True
                self._post(PROBE)
        except (Unanswered, Declined) as error:
            self.stopped = self._told(error)
            raise Stopped(self.stopped) from error

    def ask(self, chat: Sequence[Mapping[str, str]]) -> str:
        """The text of an answer. Raises `Declined` or `Unanswered` for this
        call, `Stopped` for all further ones.
        """
        if self.stopped is not None:
            raise Stopped(self.stopped)
        try:
            text = self._post(chat)
        except Unanswered as error:
            self._failed(error)
            raise
        except Declined as error:
            if error.status in (401, 403, 404):
                self.stopped = self._told(error)
            raise
        with self._lock:
            self._failures = 0
        return text

    def _failed(self, error: Unanswered) -> None:
        with self._lock:
            self._failures += 1
            if self._failures >= MOST_FAILURES:
                self.stopped = self._told(error)

    def _post(self, chat: Sequence[Mapping[str, str]]) -> str:
        body = request(self._reviewer.model, chat, self._seed, plain=self._plain)
        return self._client.post("chat/completions", body, read_chat)

    def _told(self, error: Unanswered | Declined) -> str:
        url = self._reviewer.address
        if isinstance(error, Declined):
            return (
                f"the reviewer at {url} declined a question to {self._reviewer.model} ({error});"
                " mend the model's name, the key or the address (it ends in /v1)"
            )
        return f"the reviewer at {url} does not answer: {error}; start it, or mend the address"


def read_chat(answer: Any) -> str:
    """The text of the one choice, cut to its end. Raises `Broken` where there is none."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = (
        choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    )
    message = first.get("message")
    if not isinstance(message, dict):
        raise Broken("an answer without a message")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if not isinstance(content, str | None):
        raise Broken("a message whose content is no text")
    text = (content or "")[-READ:].encode(errors="backslashreplace").decode()
    return text + "\n[cut off at the limit]" if first.get("finish_reason") == "length" else text


def each(calls: Sequence[C], answer: Callable[[C], A], at_once: int) -> Iterator[tuple[C, A]]:
    """Every call with its answer, as they come. What `answer` raises is raised
    here; then no further call begins.
    """
    done: SimpleQueue[tuple[C, A] | BaseException] = SimpleQueue()
    waiting, lock, over = iter(calls), Lock(), Event()

    def work() -> None:
        while not over.is_set():
            with lock:
                call = next(waiting, None)
            if call is None:
                return
            try:
                done.put((call, answer(call)))
            except BaseException as error:
                done.put(error)
                return

    for _ in range(min(at_once, len(calls))):
        Thread(target=work, daemon=True).start()
    try:
        for _ in calls:
            told = done.get()
            if isinstance(told, BaseException):
                raise told
            yield told
    finally:
        over.set()
