"""What a command says: its answer on stdout, where nothing in it can drive a
terminal, and how far it is on stderr: bars where it is a terminal, else a plain
line now and then.

Without a terminal, what is done within two seconds shows nothing. `what` may
carry news after a comma (`GRPO, success 0.41`): the part before it names the
bar.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final

from forensics.errors import ModelsMissing
from forensics.progress import Progress

_SAID = threading.Event()  # anything behind the line about loading


def say(text: str) -> None:
    """Text on stdout, with whatever a model or a file name might have smuggled in made visible."""
    from forensics.report.escape import printable

    _SAID.set()
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Text on stderr: what is being done, beside the answer."""
    from forensics.report.escape import printable

    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


@contextmanager
def telling_of_loading(models: bool = True) -> Iterator[None]:
    """While the libraries are loaded, says so, and for how long, until anything else is said.
    Raises `ModelsMissing` where what opens `models` is asked for and not installed.
    """
    if "torch" in sys.modules:
        yield
        return
    if models and find_spec("torch") is None:
        raise ModelsMissing("torch")
    tell("Loading the libraries.")
    _SAID.clear()
    teller = threading.Thread(target=_go_on_telling, args=[time.monotonic()], daemon=True)
    teller.start()
    try:
        yield
    finally:
        _SAID.set()
        teller.join()


def _go_on_telling(began: float) -> None:
    """It imports nothing, beside a thread that does."""
    while not _SAID.wait(LOADING_SECONDS):
        sys.stderr.write(f"Loading the libraries, {time.monotonic() - began:.0f} s.\n")
        sys.stderr.flush()


def say_json(value: Any) -> None:
    """One JSON object on stdout, ASCII only."""
    sys.stdout.write(json.dumps(value, sort_keys=True, indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


LOADING_SECONDS: Final = 1.8
QUIET_SECONDS: Final = 2.0
DRAWN_SECONDS: Final = 0.1  # between two drawings of bars that do not tick
LINE_SECONDS: Final = 10.0  # between two lines about one thing where there is no terminal


@contextmanager
def progress_bars(ticking: bool = True) -> Iterator[Progress]:
    """A progress function for as long as the block runs.

    `ticking`: bars are drawn by a thread, so that their clocks run. Without,
    they are drawn when there is news, and a process may be copied meanwhile.
    """
    if not sys.stderr.isatty():
        yield PlainProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress as Bars, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
    )
    console = Console(stderr=True)
    with Bars(
        *columns, TimeElapsedColumn(), console=console, transient=True, auto_refresh=ticking
    ) as bars:
        yield BarProgress(bars, ticking)


class BarProgress:
    """A bar for each thing, with the time it has taken, gone when it is done."""

    def __init__(self, bars: Any, ticking: bool = True) -> None:
        self._bars, self._ticking, self._drawn = bars, ticking, 0.0
        self._tasks: dict[str, Any] = {}

    def __call__(self, what: str, done: int, of: int) -> None:
        _SAID.set()
        name = what.partition(",")[0]
        if done >= of:
            if name in self._tasks:
                self._bars.remove_task(self._tasks.pop(name))
                self._draw(always=True)
            return
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(what)
        self._bars.update(self._tasks[name], description=what, completed=done, total=of)
        self._draw()

    def _draw(self, always: bool = False) -> None:
        now = time.monotonic()
        if not self._ticking and (always or now - self._drawn >= DRAWN_SECONDS):
            self._bars.refresh()
            self._drawn = now


class PlainProgress:
    """A line about each thing that takes longer than a moment, and then one every ten seconds."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._told: set[str] = set()

    def __call__(self, what: str, done: int, of: int) -> None:
        _SAID.set()
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
