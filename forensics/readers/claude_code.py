"""Claude Code sessions, and those of Qwen Code: a JSON line for each message or part of one.

Format: Claude Code 2.0 session files, as inspect_scout reads them.

1. Lines of one session are one run; those of a sub-agent (`isSidechain`) are a
   run of their own.
2. An answer is written in several lines, one for each part, which share the
   message's id: they are one step.
3. Summaries and other lines without a message are no steps. There is no outcome
   in these files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forensics.readers.content import JsonObject, Unreadable
from forensics.readers.json_rows import (
    MALFORMED,
    Row,
    Runs,
    first_row,
    first_value,
    in_words,
    read_json_lines,
)
from forensics.readers.log_reader import Reader
from forensics.readers.messages import steps_of
from forensics.readers.values import as_mapping, ending, run_of
from forensics.records import Trajectory

NAME = "claude-code"


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    return any(_is_line(line) for line in _lines(head))


def read(path: Path) -> Runs:
    """The runs of the file, in the order in which they begin."""
    sessions: dict[str, _Session] = {}
    for row in read_json_lines(path):
        if isinstance(row, Unreadable):
            yield row
            continue
        try:
            _add(row, sessions)
        except MALFORMED as error:
            yield Unreadable(path, in_words(error), row.where)
    yield from (_run(name, session) for name, session in sessions.items() if session.messages)


reader = Reader(
    name=NAME,
    version="1 (Claude Code 2.0)",
    recognises=recognises,
    reads=read,
)


@dataclass
class _Session:
    """The messages of one run; parts of one answer are put together by the answer's id."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    policy: str = "unknown"

    def add(self, message: JsonObject) -> None:
        if "parts" in message:  # Qwen Code
            message = dict(message)
            message["content"] = message.pop("parts")
        content = message.get("content")
        parts = list(content) if isinstance(content, list) else [content or ""]
        steps_of([{**message, "content": parts}])  # what is no message is told by its own line
        last = self.messages[-1] if self.messages else {}
        if message.get("id") is not None and message.get("id") == last.get("id"):
            last["content"] += parts
            last["stop_reason"] = message.get("stop_reason") or last.get("stop_reason")
        else:
            self.messages.append({**message, "content": parts})
        self.policy = str(message.get("model") or self.policy)


def _lines(head: bytes) -> list[Any]:
    """The first lines of a head, cut or not: a session may begin with lines about itself."""
    lines = head.lstrip().split(b"\n", 20)[:20]
    return [first_row(head), *(first_value(line) for line in lines if line.startswith(b"{"))]


def _is_line(line: Any) -> bool:
    value = as_mapping(line)
    return (
        "sessionId" in value and value.get("type") in ("user", "assistant") and "message" in value
    )


def _add(row: Row, sessions: dict[str, _Session]) -> None:
    line = row.value
    if not isinstance(line, Mapping):
        raise ValueError("the line is no object")
    if line.get("type") not in ("user", "assistant", "tool_result") or "message" not in line:
        return
    agent = str(line.get("agentId") or "sub-agent") if line.get("isSidechain") else ""
    name = f"{line['sessionId']}/{agent}" if agent else str(line["sessionId"])
    sessions.setdefault(name, _Session()).add({"role": line["type"], **as_mapping(line["message"])})


def _run(name: str, session: _Session) -> Trajectory:
    stop = session.messages[-1].get("stop_reason")
    return run_of(
        steps_of(session.messages),
        ending(stop or None, ("max_tokens",)),
        id=name,
        policy=session.policy,
        environment=NAME,
    )
