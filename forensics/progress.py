"""How long work says how far it is, and how fast episodes are played."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it is, and how much there is: `("open", 3, 8)`."""
Item = TypeVar("Item")
ENOUGH = 5.0  # seconds of play, before its pace is told
BATCH = 0.05  # share of the time so far that only a new batch takes


def silent(what: str, done: int, of: int) -> None:
    """Progress that nobody watches."""


def ticking(progress: Progress, what: str, of: int) -> Callable[[int], None]:
    """What is called with how much more is done; it says how much is."""
    done = 0

    def tick(more: int) -> None:
        nonlocal done
        done += more
        progress(what, done, of)

    tick(0)
    return tick


def counted(items: Iterable[Item], progress: Progress, what: str, of: int) -> Iterator[Item]:
    """The same items; each is told when the next one is asked for."""
    tick = ticking(progress, what, of)
    for item in items:
        yield item
        tick(1)


def part_of(progress: Progress, what: str, number: int, parts: int) -> Progress:
    """Progress of one of several parts of a whole, told as progress of the whole."""

    def told(_: str, done: int, of: int) -> None:
        progress(what, number * of + done, parts * of)

    return told


class Pace:
    """How many episodes were played, and in how many seconds; the rest of what goes on
    meanwhile does not count.

    `clock`: a steady one. `told` is called once, when the pace is first known: after
    `ENOUGH` seconds of play. Episodes come in batches, so it is taken where a batch
    ends: where the next episode takes its time, or none follows.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.episodes, self.seconds = 0, 0.0
        self.a_second: float | None = None
        self.told: Callable[[], None] = lambda: None
        self._clock = clock

    def timed(self, played: Iterable[Item]) -> Iterator[Item]:
        """The same episodes, counted and timed."""
        running = iter(played)
        while True:
            start = self._clock()
            one = next(running, None)
            took = self._clock() - start
            if one is None or took > BATCH * self.seconds:
                self._known()
            self.seconds += took
            if one is None:
                return
            self.episodes += 1
            yield one

    def _known(self) -> None:
        if self.seconds < ENOUGH:
            return
        first, self.a_second = self.a_second is None, self.episodes / self.seconds
        if first:
            self.told()
