"""What a case keeps in memory: one open policy, and a few things that are made of stored runs."""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from forensics.protocols import Policy

MOST: Final = 16  # things that are made of stored runs: the scores and kinds of one side, say
Made = TypeVar("Made")


class Kept:
    """Nothing that a case measures depends on what is kept here."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}
        self._open: dict[str, Policy] = {}

    def made(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` gives, made once; `MOST` at a time, the oldest goes first."""
        if key not in self._made:
            made = make()
            if len(self._made) >= MOST:
                del self._made[next(iter(self._made))]
            self._made[key] = made
        found: Made = self._made[key]
        return found

    def policy(self, subject: str, load: Callable[[], Policy]) -> Policy:
        """The policy of a subject, loaded now; the one before it is dropped."""
        if subject not in self._open:
            self._open.clear()  # one model in memory at a time
            self._open[subject] = load()
        return self._open[subject]
