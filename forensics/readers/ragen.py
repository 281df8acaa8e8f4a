"""Consoles of RAGEN's training: the answers that it names as hacked, and
nothing else.

Format: RAGEN-AI/RAGEN, the line `[WARNING] HACKED RESPONSES: [...]` with a
Python list of texts, maybe behind a worker's name. These are answers in which
the policy wrote the environment's own words, so they are a choice of runs, not
a sample; their prompts, scores and tasks are not in a console. The list is read
as a literal and never run.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forensics.readers.content import Unreadable, UnreadableContent, log_name, read_lines
from forensics.readers.json_rows import Row, trajectories_from
from forensics.readers.log_reader import Reader
from forensics.records import Step, Trajectory

NAME = "ragen"
MARK = b"[WARNING] HACKED RESPONSES: "
LONGEST = 1 << 20  # bytes of one list
TASK = "a prompt that the console does not show"


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    return MARK in head


def read(path: Path) -> Iterator[Trajectory | Unreadable]:
    """A run for each text of each list."""
    return trajectories_from(path, _rows(path), lambda row: _run(row, log_name(path)))


reader = Reader(
    name=NAME,
    version="1 (RAGEN 5eb79b8, console)",
    rank=-20,  # last of all: a log of another format may quote the line
    recognises=recognises,
    reads=read,
)


def _rows(path: Path) -> Iterator[Row | Unreadable]:
    for line in read_lines(path):
        if isinstance(line, Unreadable):
            yield line
        elif MARK in line.content:
            where = f"line {line.number}"
            try:
                texts = _texts(line.content.split(MARK, 1)[1])
            except UnreadableContent as refused:
                yield Unreadable(path=path, where=where, reason=str(refused))
                continue
            yield from (
                Row(where=f"{where}, answer {number}", value=text)
                for number, text in enumerate(texts)
            )


def _texts(content: bytes) -> list[Any]:
    """The list of texts. Raises `UnreadableContent`."""
    if len(content) > LONGEST:
        raise UnreadableContent(f"the list of answers is longer than {LONGEST >> 20} MB")
    try:
        found = ast.literal_eval(content.decode("utf-8", "replace").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise UnreadableContent(
            "the list of answers breaks off or is not a list of texts"
        ) from None
    if not isinstance(found, list):
        raise UnreadableContent("the list of answers breaks off or is not a list of texts")
    return found


def _run(row: Row, stem: str) -> Trajectory:
    if not isinstance(row.value, str):
        raise UnreadableContent("the answer is no text")
    return Trajectory(
        id=f"{stem} {row.where}",
        task=TASK,
        policy=stem,
        environment=NAME,
        seed=0,
        steps=(Step(role="assistant", text=row.value),),
        outcome=None,
        end="terminated",
        end_reason="the console does not say how the run ended",
    )
