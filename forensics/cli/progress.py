"""How far a command is, on stderr: bars where it is a terminal, else a plain line now and then.

Without a terminal, what is done within two seconds shows nothing. `what` may carry news after a comma
(`GRPO, success 0.41`): the part before it names the bar.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

Progress = Callable[[str, int, int], None]  # (what, done, of)

QUIET_SECONDS: Final = 2.0
LINE_SECONDS: Final = 10.0  # between two lines about one thing where there is no terminal


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A progress function for as long as the block runs."""
    if not sys.stderr.isatty():
        yield PlainProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:.0f} %")
    with Bars(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bars:
        yield BarProgress(bars)


class BarProgress:
    """A bar for each thing, with the time it has taken, gone when it is done."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._tasks: dict[str, Any] = {}

    def __call__(self, what: str, done: int, of: int) -> None:
        name = what.partition(",")[0]
        if done >= of:
            if name in self._tasks:
                self._bars.remove_task(self._tasks.pop(name))
            return
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(what)
        self._bars.update(self._tasks[name], description=what, completed=done, total=of)


class PlainProgress:
    """A line about each thing that takes longer than a moment, and then one every ten seconds."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._told: set[str] = set()

    def __call__(self, what: str, done: int, of: int) -> None:
        name, now = what.partition(",")[0], time.monotonic()
        waited = now - self._last.setdefault(name, now)
        over = done >= of
        if over and name not in self._told and waited < QUIET_SECONDS:
            del self._last[name]
            return
        if over or waited >= (LINE_SECONDS if name in self._told else QUIET_SECONDS):
            sys.stderr.write(f"{what}: {100 * done // max(of, 1)} %\n")
            sys.stderr.flush()
            self._last[name] = now
            self._told.add(name)
        if over:
            self._told.discard(name)
            del self._last[name]
