"""Conversations that were written down as Markdown: aider's history, SpecStory's exports.

1. Each session of a file is a run (`aider_history`, `specstory_export`).
2. The results of aider's benchmark (`.aider.results.json`) beside a history are the
   outcome of its last session.
"""

from collections.abc import Iterator
from pathlib import Path

from forensics.readers import aider_history, specstory_export
from forensics.readers.content import (
    Unreadable,
    UnreadableContent,
    bare_name,
    read_text,
)
from forensics.readers.json_rows import Runs
from forensics.readers.log_reader import Reader
from forensics.readers.submission import content_beside
from forensics.readers.values import as_list, as_mapping, run_of
from forensics.records import Trajectory

WRITTEN = 64 << 20  # bytes, of one file
HISTORY, RESULTS = ".aider.chat.history.md", ".aider.results.json"
ALONG = (RESULTS, ".aider.input.history", ".aider.llm.history")


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of one of these formats."""
    if head.lstrip()[:1] == b"{" or b"\0" in head[:1000]:
        return False
    text = head.decode("utf-8", "replace").replace("\r\n", "\n")
    return aider_history.STARTED.search(text) is not None or specstory_export.is_export(text)


def accompanies(path: Path) -> bool:
    """Whether a file lies with aider's history."""
    return path.name in ALONG and (path.parent / HISTORY).is_file()


def read(path: Path) -> Runs:
    """Every run in the file."""
    try:
        text, broken = read_text(path, WRITTEN)
    except UnreadableContent as refused:
        yield Unreadable(path, str(refused))
        return
    yield from broken
    text = text.replace("\r\n", "\n")
    yield from (_aider if aider_history.STARTED.search(text) else _specstory)(path, text)


def _aider(path: Path, text: str) -> Iterator[Trajectory]:
    found = list(aider_history.sessions_of(text))
    result = as_mapping(content_beside(path.parent / RESULTS))
    tests = as_list(result.get("tests_outcomes"))
    for number, session in enumerate(found, 1):
        outcome = any(tests) if tests and number == len(found) else None
        yield run_of(
            session.steps,
            id=f"{bare_name(path)} {session.started}",
            task=result.get("testcase"),
            policy=session.model or result.get("model"),
            environment="aider",
            rewards={} if outcome is None else {"tests": outcome},
            outcome=outcome,
        )


def _specstory(path: Path, text: str) -> Iterator[Trajectory]:
    for session in specstory_export.sessions_of(text):
        yield run_of(
            session.steps,
            id=session.name or bare_name(path).removesuffix(".md"),
            policy=session.model,
            environment="specstory",
        )


reader = Reader(
    name="markdown-chat",
    version="1 (aider 0.86, SpecStory Markdown 2.1)",
    rank=-15,  # a console may quote such a page
    recognises=recognises,
    accompanies=accompanies,
    reads=read,
)
