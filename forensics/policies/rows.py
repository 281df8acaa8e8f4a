"""The rows of a lockstep batch, and the trees that shed them.

A *tree* is a text known in advance, from whose prefixes runs fork off. Its row
holds the whole text, while its drivers stand at one place of it: drivers that
draw what the text has next stay on the row (so that runs which follow the text
share it), the others branch off.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, Protocol

from forensics.policies.cache import Stem
from forensics.policies.refusals import Refusals


class Driver(Protocol):
    """What a row does when an action is complete."""

    uniforms: Iterator[float]  # in [0, 1), one for each token that is drawn
    refusals: Refusals | None  # actions that were refused at this place and are not drawn again

    def action_ended(
        self, token_ids: Sequence[int], logprobs: Sequence[float], stop: str
    ) -> Sequence[int] | None:
        """The tokens that follow (an observation), or `None` when the row is done."""
        ...

    def out_of_room(self) -> None:
        """The row's text has reached `max_tokens`: no further action can be drawn."""
        ...


class ForkDriver(Driver, Protocol):
    """The driver of a fork."""

    def no_other_token(self) -> None:
        """The token to avoid is the only one that the sampler gives."""
        ...


@dataclass(frozen=True, kw_only=True)
class Fork:
    """Runs that go on after the first `kept` tokens of a tree's text.

    `start`: where the action that they stand in starts (`kept` where a new one
    does). `logprobs`: of its tokens so far, `kept - start`. `append`: tokens
    put behind what is kept, which nobody draws (their log-probability is NaN).
    `avoid`: the first token is drawn from what is left without the text's own
    next token.
    """

    kept: int
    start: int
    logprobs: tuple[float, ...]
    drivers: tuple[ForkDriver, ...]
    append: tuple[int, ...] = ()
    avoid: bool = False

    def split(self, size: int) -> tuple["Fork", "Fork"]:
        """The first `size` runs, and the rest."""
        return replace(self, drivers=self.drivers[:size]), replace(
            self, drivers=self.drivers[size:]
        )


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A text and its forks. With a `stem` its row is in the batch only where it
    is needed; without, from the start.

    `starts`: where actions start in the text; runs stay on it only where they
    agree with it about that.
    """

    ids: Sequence[int]
    starts: frozenset[int]
    forks: Sequence[Fork]
    stem: Stem | None = None


class Row:
    """Episodes with one text: `drivers` stand at `resume` in `ids`; their
    action runs since `start`.

    `ids` may go on behind `resume`: the observation that is not yet read, or a
    tree's text. `avoiding`: drivers that draw now and avoid the text's own next
    token.
    """

    __slots__ = (
        "asleep",
        "avoiding",
        "drivers",
        "forks",
        "ids",
        "late",
        "logprobs",
        "resume",
        "start",
        "tree",
    )

    def __init__(
        self, drivers: list[Any], ids: list[int], start: int, logprobs: list[float]
    ) -> None:
        self.drivers, self.ids, self.start, self.logprobs = drivers, ids, start, logprobs
        self.resume = len(ids)
        self.avoiding: list[Any] = []
        self.forks: deque[Fork] = deque()
        self.late: list[Fork] = []  # forks for which there was no room
        self.tree: Tree | None = None
        self.asleep = False  # a tree that waits outside the batch for its next fork

    @classmethod
    def of_tree(cls, tree: Tree) -> "Row":
        row = cls([], list(tree.ids), 0, [])
        row.tree, row.forks = tree, deque(sorted(tree.forks, key=lambda fork: fork.kept))
        return row

    @classmethod
    def of_fork(cls, fork: Fork, ids: list[int]) -> "Row":
        """A fork on a row of its own."""
        logprobs = [*fork.logprobs, *[nan] * len(fork.append)]
        return cls(list(fork.drivers), [*ids[: fork.kept], *fork.append], fork.start, logprobs)

    @property
    def alive(self) -> bool:
        return bool(self.drivers) or (bool(self.forks) and not self.asleep)

    @property
    def stop(self) -> int:
        """Up to where the row's tokens are known, and its logits are not needed."""
        if not self.forks:
            return self.resume
        first = self.forks[0].kept
        return min(first, self.resume) if self.drivers else first

    @property
    def stem(self) -> Stem | None:
        return self.tree.stem if self.tree else None

    @property
    def entry(self) -> int:
        """The position at which a tree's row must be in the batch, so that its
        next fork has logits.
        """
        return self.forks[0].kept - 1 if self.stem else 0

    def branch(self, drivers: list[Any]) -> "Row":
        return Row(drivers, self.ids[: self.resume], self.start, list(self.logprobs))

    def join(self, fork: Fork) -> None:
        """Take in a fork that draws here."""
        if not self.drivers and not self.avoiding:
            self.start, self.resume, self.logprobs = fork.start, fork.kept, list(fork.logprobs)
        (self.avoiding if fork.avoid else self.drivers).extend(fork.drivers)

    def take(self, token: int, logprob: float) -> None:
        """The token that the drivers drew; on a tree, the text's own."""
        if self.resume == len(self.ids):
            self.ids.append(token)
        self.resume += 1
        self.logprobs.append(logprob)

    def heir(self, answers: Iterable[tuple[int, ...]]) -> tuple[int, ...] | None:
        """The answer that this row itself goes on with: on a tree the text's
        own, else the first.
        """
        if self.resume == len(self.ids):
            return next(iter(answers), None)
        return next((answer for answer in answers if self._has_next(answer)), None)

    def _has_next(self, answer: tuple[int, ...]) -> bool:
        end = self.resume + len(answer)
        return (
            self.tree is not None
            and end in self.tree.starts
            and self.ids[self.resume : end] == list(answer)
        )

    def follow(self, answer: Sequence[int]) -> None:
        """Go on behind an observation."""
        if self.resume == len(self.ids):
            self.ids += answer
        self.resume += len(answer)
        self.start, self.logprobs = self.resume, []
