"""What a command says: results on stdout, progress and errors on stderr, nothing that could drive a terminal."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forensics.case import Progress

QUIET_SECONDS = 2.0  # what is done sooner shows nothing
LINE_SECONDS = 10.0  # between two lines about one thing where there is no terminal


def say(text: str) -> None:
    """Text on stdout, with whatever a model or a file name might have smuggled in made visible."""
    from forensics.report.escape import printable

    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def say_json(value: Any) -> None:
    """One JSON object on stdout, ASCII only."""
    sys.stdout.write(json.dumps(value, sort_keys=True, indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Bars on stderr where it is a terminal, else a plain line now and then."""
    if not sys.stderr.isatty():
        yield PlainProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress as Bars, TaskID, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:.0f} %")
    with Bars(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bars:
        known: dict[str, TaskID] = {}

        def show(what: str, done: int, of: int) -> None:
            task = known.setdefault(what, bars.add_task(what)) if what not in known else known[what]
            bars.update(task, completed=done, total=max(of, 1), visible=done < of)

        yield show


class PlainProgress:
    """A line about each thing that takes longer than a moment."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._told: set[str] = set()

    def __call__(self, what: str, done: int, of: int) -> None:
        now = time.monotonic()
        waited = now - self._last.setdefault(what, now)
        over = done >= of
        if waited < (QUIET_SECONDS if over or what not in self._told else LINE_SECONDS) or (over and not of):
            return
        self._last[what] = now
        self._told.add(what)
        sys.stderr.write(f"{what}: {100 * done // max(of, 1)} %\n")
        sys.stderr.flush()
