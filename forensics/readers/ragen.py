"""Consoles of RAGEN's training: the answers that it names as hacked, and
nothing else.

Format: RAGEN-AI/RAGEN, the line `[WARNING] HACKED RESPONSES: [...]` with a
Python list of texts, maybe behind a worker's name. These are answers in which
the policy wrote the environment's own words, so they are a choice of runs, not
a sample; their prompts, scores and tasks are not in a console. The list is read
as a literal and never run.
"""

import ast
from pathlib import Path
from typing import Any

from forensics.readers.content import Unreadable, UnreadableContent, log_name, read_lines
from forensics.readers.json_rows import Row, Rows
from forensics.readers.log_reader import Reader
from forensics.readers.values import run_of
from forensics.records import Step, Trajectory

MARK = b"[WARNING] HACKED RESPONSES: "
LONGEST = 1 << 20  # bytes of one list


def rows(path: Path) -> Rows:
    """The lines that hold an episode, each as a row."""
    for line in read_lines(path):
        if isinstance(line, Unreadable):
            yield line
        elif MARK in line.content:
            where = f"line {line.number}"
            try:
                texts = _texts(line.content.split(MARK, 1)[1])
            except UnreadableContent as refused:
                yield Unreadable(path, str(refused), where)
                continue
            for number, text in enumerate(texts):
                yield Row(f"{where}, answer {number}", text)


def _texts(content: bytes) -> list[Any]:
    """The list of texts. Raises `UnreadableContent`."""
    if len(content) > LONGEST:
        raise UnreadableContent(f"the list of answers is longer than {LONGEST >> 20} MB")
    try:
        found = ast.literal_eval(content.decode("utf-8", "replace").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise UnreadableContent("the list of answers breaks off or is not a list of texts")
    return found


def run(row: Row) -> Trajectory:
    """The run of one answer."""
    if not isinstance(row.value, str):
        raise UnreadableContent("the answer is no text")
    stem = log_name(row.path)
    return run_of(
        (Step(role="assistant", text=row.value),),
        ("terminated", "the console does not say how the run ended"),
        id=f"{stem} {row.where}",
        task="a prompt that the console does not show",
        policy=stem,
        environment="ragen",
    )


reader = Reader(
    name="ragen",
    version="1 (RAGEN 5eb79b8, console)",
    rank=-20,  # last of all: a log of another format may quote the line
    recognises=lambda path, head: MARK in head,
    rows=rows,
    run=run,
)
