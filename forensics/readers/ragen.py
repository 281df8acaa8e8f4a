"""Consoles of RAGEN's training: the answers that it names as hacked, and nothing else.

Format: RAGEN-AI/RAGEN, the line `[WARNING] HACKED RESPONSES: [...]` with a Python list of texts, maybe behind a
worker's name. These are answers in which the policy wrote the environment's own words, so they are a choice of runs,
not a sample; their prompts, scores and tasks are not in a console. The list is read as a literal and never run.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forensics.readers.documents import stem_of
from forensics.readers.opening import Refused, read_lines
from forensics.readers.parsing import Row, each_run
from forensics.readers.reading import Unreadable
from forensics.records import Step, Trajectory

NAME: Final = "ragen"
MARK: Final = b"[WARNING] HACKED RESPONSES: "
LONGEST: Final = 1 << 20  # bytes of one list
TASK: Final = "a prompt that the console does not show"


@dataclass(frozen=True, kw_only=True)
class Ragen:
    """Reads consoles that name hacked answers."""

    name: str = NAME
    version: str = "1 (RAGEN 5eb79b8, console)"
    rank: int = -20  # last of all: a log of another format may quote the line

    def recognises(self, path: Path, head: bytes) -> bool:
        return MARK in head

    def read(self, path: Path) -> Iterator[Trajectory | Unreadable]:
        """A run for each text of each list."""
        return each_run(path, _rows(path), lambda row: _run(row, stem_of(path)))


reader = Ragen()


def _rows(path: Path) -> Iterator[Row | Unreadable]:
    for line in read_lines(path):
        if isinstance(line, Unreadable):
            yield line
        elif MARK in line.content:
            where = f"line {line.number}"
            try:
                texts = _texts(line.content.split(MARK, 1)[1])
            except Refused as refused:
                yield Unreadable(path=path, where=where, reason=str(refused))
                continue
            yield from (Row(where=f"{where}, answer {number}", value=text) for number, text in enumerate(texts))


def _texts(content: bytes) -> list[Any]:
    """The list of texts. Raises `Refused`."""
    if len(content) > LONGEST:
        raise Refused(f"the list of answers is longer than {LONGEST >> 20} MB")
    try:
        found = ast.literal_eval(content.decode("utf-8", "replace").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise Refused("the list of answers breaks off or is not a list of texts") from None
    if not isinstance(found, list):
        raise Refused("the list of answers breaks off or is not a list of texts")
    return found


def _run(row: Row, stem: str) -> Trajectory:
    if not isinstance(row.value, str):
        raise Refused("the answer is no text")
    return Trajectory(
        id=f"{stem} {row.where}", task=TASK, policy=stem, environment=NAME, seed=0,
        steps=(Step(role="assistant", text=row.value),), outcome=None, end="terminated",
        end_reason="the console does not say how the run ended",
    )
