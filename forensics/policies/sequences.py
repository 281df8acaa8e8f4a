"""The running sequences of a batch, and the texts that they branch off.

A *branched text* is known in advance. Its row holds the whole text, while its
drivers stand at one place of it: drivers that draw what the text has next stay
on the row (so that runs which follow the text share it), the others split off.
"""

import gc
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from math import nan
from typing import Any, Protocol

import torch

from forensics.policies.distribution import (
    Refusals,
    draw,
    on_device,
    on_host,
    renormalised_without,
)
from forensics.policies.kv_cache import PrefixCache


class SequenceDriver(Protocol):
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

    def no_other_token(self) -> None:
        """The token that a branch avoids is the only one that the sampler gives."""
        ...


@dataclass(frozen=True, kw_only=True)
class Branch:
    """Runs that go on after the first `kept` tokens of a text.

    `start`: where the action that they stand in starts (`kept` where a new one
    does). `logprobs`: of its tokens so far, `kept - start`. `append`: tokens
    put behind what is kept, which nobody draws (their log-probability is NaN).
    `avoid`: the first token is drawn from what is left without the text's own
    next token.
    """

    kept: int
    start: int
    logprobs: tuple[float, ...]
    drivers: tuple[SequenceDriver, ...]
    append: tuple[int, ...] = ()
    avoid: bool = False

    def split(self, size: int) -> tuple["Branch", "Branch"]:
        """The first `size` runs, and the rest."""
        return replace(self, drivers=self.drivers[:size]), replace(
            self, drivers=self.drivers[size:]
        )


@dataclass(frozen=True, kw_only=True)
class BranchedText:
    """A text and its branches. With a `prefix_cache` its row is in the batch
    only where it is needed; without, from the start.

    `starts`: where actions start in the text; runs stay on it only where they
    agree with it about that.
    """

    ids: Sequence[int]
    starts: frozenset[int]
    branches: Sequence[Branch]
    prefix_cache: PrefixCache | None = None


Follow = Sequence[int] | None  # an observation, or nothing: the driver is done


@dataclass(slots=True, eq=False)
class RunningSequence:
    """Episodes with one text: `drivers` stand at `resume` in `ids`; their
    action runs since `start`.

    `ids` may go on behind `resume`: the observation that is not yet read, or a
    branched text. `avoiding`: drivers that draw now and avoid the text's own next
    token.
    """

    drivers: list[Any]
    ids: list[int]
    start: int
    logprobs: list[float]
    resume: int = field(init=False)
    avoiding: list[Any] = field(default_factory=list)
    branches: deque[Branch] = field(default_factory=deque)
    postponed: list[Branch] = field(default_factory=list)  # branches for which there was no room
    text: BranchedText | None = None
    waiting: bool = False  # outside the batch, for its next branch
    at: int = 0  # how far the cache has it, where rows stand at different positions
    waits_for: Any = None  # what the world says to its action (`ragged_rows.Waiting`)

    def __post_init__(self) -> None:
        self.resume = len(self.ids)

    @classmethod
    def of_text(cls, text: BranchedText) -> "RunningSequence":
        branches = deque(sorted(text.branches, key=lambda branch: branch.kept))
        return cls([], list(text.ids), 0, [], text=text, branches=branches)

    @classmethod
    def of_branch(cls, branch: Branch, ids: list[int]) -> "RunningSequence":
        """A branch on a row of its own."""
        logprobs = [*branch.logprobs, *[nan] * len(branch.append)]
        return cls(
            list(branch.drivers), [*ids[: branch.kept], *branch.append], branch.start, logprobs
        )

    @property
    def alive(self) -> bool:
        return bool(self.drivers) or (bool(self.branches) and not self.waiting)

    @property
    def stop(self) -> int:
        """Up to where the row's tokens are known, and its logits are not needed."""
        if not self.branches:
            return self.resume
        first = self.branches[0].kept
        return min(first, self.resume) if self.drivers else first

    @property
    def prefix_cache(self) -> PrefixCache | None:
        return self.text.prefix_cache if self.text else None

    @property
    def entry(self) -> int:
        """The position at which a text's row must be in the batch, so that its
        next branch has logits.
        """
        return self.branches[0].kept - 1 if self.prefix_cache else 0

    @property
    def unread(self) -> int:
        return self.resume - self.at

    def branch_off(self, drivers: list[Any]) -> "RunningSequence":
        ids, logprobs = self.ids[: self.resume], list(self.logprobs)
        return RunningSequence(drivers, ids, self.start, logprobs, at=self.at)

    def halved(self) -> "tuple[RunningSequence, RunningSequence]":
        """The row with its first drivers, and one with the others."""
        half = len(self.drivers) // 2
        other = self.branch_off(self.drivers[half:])
        if self.waits_for is not None:
            self.waits_for, other.waits_for = self.waits_for.split(half)
        self.drivers = self.drivers[:half]
        return self, other

    def join(self, branch: Branch) -> None:
        """Take in a branch that draws here."""
        if not self.drivers and not self.avoiding:
            self.start, self.resume, self.logprobs = (
                branch.start,
                branch.kept,
                list(branch.logprobs),
            )
        (self.avoiding if branch.avoid else self.drivers).extend(branch.drivers)

    def take(self, token: int, logprob: float) -> None:
        """The token that the drivers drew; on a branched text, its own."""
        if self.resume == len(self.ids):
            self.ids.append(token)
        self.resume += 1
        self.logprobs.append(logprob)

    def continues_as(self, answers: Iterable[tuple[int, ...]]) -> tuple[int, ...] | None:
        """The answer that this row itself goes on with: on a branched
        text its own, else the first.
        """
        if self.resume == len(self.ids):
            return next(iter(answers), None)
        return next((answer for answer in answers if self._has_next(answer)), None)

    def _has_next(self, answer: tuple[int, ...]) -> bool:
        end = self.resume + len(answer)
        return (
            self.text is not None
            and end in self.text.starts
            and self.ids[self.resume : end] == list(answer)
        )

    def follow(self, answer: Sequence[int]) -> None:
        """Go on behind an observation."""
        if self.resume == len(self.ids):
            self.ids += answer
        self.resume += len(answer)
        self.start, self.logprobs = self.resume, []


Offshoots = list[tuple[int, RunningSequence]]  # by the row that each splits off


def halves(rows: Sequence[RunningSequence]) -> list[list[RunningSequence]]:
    """What is left of rows, as two batches; one where there is a single driver."""
    left = [row for row in rows if row.drivers]
    if len(left) == 1 and len(left[0].drivers) > 1:
        left = list(left[0].halved())
    half = len(left) // 2
    return [part for part in (left[:half], left[half:]) if part]


def draw_next(
    lines: Iterable[tuple[int, RunningSequence]], distribution: torch.Tensor
) -> Iterator[tuple[int, float]]:
    """What each driver of each row draws, with its log-probability, each row from its
    line of the distribution `[lines, vocabulary]`. Where memory does not suffice nothing was
    drawn: every driver has its number of the random stream back.
    """
    owners: list[int] = []
    drivers: list[SequenceDriver] = []
    uniforms: list[float] = []
    refused: dict[int, dict[int, float]] = {}
    for line, row in lines:
        for driver in row.drivers:
            if driver.refusals is not None and (
                masses := driver.refusals.masses(row.ids[row.start : row.resume])
            ):
                refused[len(owners)] = masses
            owners.append(line)
            drivers.append(driver)
            uniforms.append(next(driver.uniforms))
    try:
        return _drawn(distribution, owners, uniforms, refused)
    except torch.OutOfMemoryError:
        for driver, number in zip(drivers, uniforms, strict=True):
            driver.uniforms = chain((number,), driver.uniforms)
        raise


def _drawn(
    distribution: torch.Tensor,
    owners: Sequence[int],
    uniforms: Sequence[float],
    refused: Mapping[int, dict[int, float]],
) -> Iterator[tuple[int, float]]:
    """A token and its log-probability for each of `uniforms`, from line `owners[i]`.
    `refused`: by place, the mass of each token that is not drawn again.
    """
    tokens = draw(distribution, owners, uniforms)
    if refused:  # from what is left
        left = renormalised_without(
            distribution[[owners[place] for place in refused]], list(refused.values())
        )
        tokens[list(refused)] = draw(
            left, range(len(refused)), [uniforms[place] for place in refused]
        )
    owned = on_device(owners, torch.long, distribution.device)
    return on_host(tokens, distribution[owned, tokens])


@contextmanager
def frozen_garbage() -> Iterator[None]:
    """Full garbage collections within look at what was made within only.

    A process that has loaded torch and transformers holds hundreds of thousands
    of objects that never die; a batch of episodes makes enough new ones that
    the collector walks them all again, 0.2 s each time, about one batch of
    1,024 episodes in two. Nothing is kept for longer than the batch. Where the
    process has set objects apart by itself (`gc.freeze`, as servers do before
    they fork), it is left as it is.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
