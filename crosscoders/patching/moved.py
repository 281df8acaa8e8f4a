"""How much of a difference moves with a change, with intervals over tasks.

A *hybrid* is one checkpoint with a piece of the other in it. Read at the same
decisions:

1. KL: `1 - KL(target || hybrid) / KL(target || start)`: 0 where nothing moved,
   1 where the hybrid decides as the target does, below 0 where it is farther
   from it than the start was.
2. Behaviour: `(hybrid - start) / (target - start)` with the chances of the
   behaviour.

Into the before model, before is the start and after the target; into the after
model, the reverse. Tasks weigh alike, however many decisions they have. The
interval is a percentile bootstrap over tasks of the ratio of sums. A share of a
difference that is not there has no value: `Share.reason` says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Direction = Literal["into-before", "into-after", "all-but"]
FEWEST_TASKS = 8  # below, a percentile bootstrap covers far less than it says
BLOCK = 256  # changes whose bootstrap sums are held at a time


@dataclass(frozen=True, kw_only=True)
class Share:
    """An estimate with its interval. `estimate` is `None` with a `reason`; the
    ends are, with too few tasks.
    """

    estimate: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What was read at `decisions`, of both checkpoints and of each hybrid.

    `tasks [decisions]`: whose decision it is. `between [2, decisions]`:
    KL(after || before), KL(before || after) in nats. `chance [2, decisions]`:
    of the behaviour before and after, `None` where no behaviour was asked for.
    `hybrid_kl [hybrids, 2, decisions]`: KL(after || hybrid), KL(before ||
    hybrid). `hybrid_chance [hybrids, decisions]`.
    """

    tasks: tuple[str, ...]
    between: Floats
    hybrid_kl: Floats
    chance: Floats | None = None
    hybrid_chance: Floats | None = None

    def only(self, tasks: Sequence[str]) -> "Readings":
        """The readings at the decisions of some tasks."""
        chosen = np.isin(np.array(self.tasks), np.array(list(tasks)))
        return Readings(
            tasks=tuple(task for task, kept in zip(self.tasks, chosen, strict=True) if kept),
            between=self.between[:, chosen],
            hybrid_kl=self.hybrid_kl[:, :, chosen],
            chance=None if self.chance is None else self.chance[:, chosen],
            hybrid_chance=None if self.hybrid_chance is None else self.hybrid_chance[:, chosen],
        )

    def repeated(self, hybrids: Sequence[int]) -> "Readings":
        """The readings of these hybrids, in this order; one may stand there twice."""
        at = list(hybrids)
        chance = None if self.hybrid_chance is None else self.hybrid_chance[at]
        return replace(self, hybrid_kl=self.hybrid_kl[at], hybrid_chance=chance)


class Resampling:
    """Bootstrap weights of tasks, the same for every share of a map."""

    def __init__(self, tasks: Sequence[str], *, draws: int, seed: int, level: float) -> None:
        self.names, index = np.unique(np.array(tasks, dtype=str), return_inverse=True)
        counts = np.bincount(index, minlength=len(self.names))
        self._mean = np.zeros(
            (len(tasks), len(self.names))
        )  # [decisions, tasks]: a task's mean over its decisions
        self._mean[np.arange(len(tasks)), index] = 1 / counts[index]
        size = len(self.names)
        weights = np.random.default_rng(seed).multinomial(size, np.full(size, 1 / size), draws)
        self._weights = weights.astype(float).T  # [tasks, draws]
        self._tails = ((1 - level) / 2, (1 + level) / 2)

    @property
    def size(self) -> int:
        return len(self.names)

    def means(self, values: Floats) -> list[Share]:
        """The mean over tasks of each row of `values [rows, decisions]`."""
        return self.ratios(values, np.ones(values.shape[-1]))

    def ratios(self, part: Floats, whole: Floats) -> list[Share]:
        """Sum of each row of `part [rows, decisions]` over the sum of `whole
        [decisions]`, tasks weighing alike.
        """
        bottom = whole @ self._mean
        drawn = bottom @ self._weights
        shares: list[Share] = []
        for first in range(0, len(part), BLOCK):
            top = part[first : first + BLOCK] @ self._mean
            with np.errstate(divide="ignore", invalid="ignore"):
                estimates, ratios = top.sum(axis=1) / bottom.sum(), (top @ self._weights) / drawn
            shares += [
                self._share(float(estimate), row)
                for estimate, row in zip(estimates, ratios, strict=True)
            ]
        return shares

    def _share(self, estimate: float, drawn: Floats) -> Share:
        drawn = drawn[np.isfinite(drawn)]
        if self.size < FEWEST_TASKS or not len(drawn):
            return Share(estimate=estimate, reason=f"{self.size} tasks are too few for an interval")
        low, high = np.quantile(drawn, self._tails)
        return Share(
            estimate=estimate, low=min(float(low), estimate), high=max(float(high), estimate)
        )


def kl_moved(
    readings: Readings, directions: Sequence[Direction], resampling: Resampling
) -> list[Share]:
    """The share of the KL that each hybrid moves in its direction."""
    shares: list[Share] = [Share(estimate=None, reason="before and after decide alike here")] * len(
        directions
    )
    for target in (0, 1):
        members = [
            i
            for i, direction in enumerate(directions)
            if (direction == "into-after") == bool(target)
        ]
        whole = readings.between[target]
        if whole.sum() > 0:
            found = resampling.ratios(whole - readings.hybrid_kl[members, target], whole)
            for i, share in zip(members, found, strict=True):
                shares[i] = share
    return shares


def behaviour_moved(
    readings: Readings, directions: Sequence[Direction], resampling: Resampling
) -> list[Share]:
    """The share of the change in the behaviour's chance that each hybrid moves in its direction."""
    if readings.chance is None or readings.hybrid_chance is None:
        return [Share(estimate=None, reason="no behaviour was named")] * len(directions)
    before, after = readings.chance
    difference = resampling.means((after - before)[None])[0]
    if not _told_from_zero(difference):
        return [
            Share(
                estimate=None,
                reason="the behaviour's chance does not differ between before and after",
            )
        ] * len(directions)
    back = np.array([direction == "into-after" for direction in directions])
    start = np.where(back[:, None], after, before)
    part = (readings.hybrid_chance - start) * np.where(back, -1.0, 1.0)[:, None]
    return resampling.ratios(part, after - before)


def _told_from_zero(difference: Share) -> bool:
    if difference.low is None or difference.high is None:
        return difference.estimate != 0
    return difference.low > 0 or difference.high < 0
