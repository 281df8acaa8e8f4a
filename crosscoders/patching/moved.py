"""How much of a difference moves with a change, with intervals over tasks.

A *hybrid* is one checkpoint with a piece of the other in it. Read at the same
decisions:

1. KL: `1 - KL(target || hybrid) / KL(target || start)`: 0 where nothing moved,
   1 where the hybrid decides as the target does, below 0 where it is farther
   from it than the start was.
2. Behaviour: `(hybrid - start) / (target - start)` with the chances of the
   behaviour.

Into the before model, before is the start and after the target; into the after
model, the reverse. Tasks weigh alike, however many decisions they have; the
interval is that of a ratio of sums over tasks (`forensics.statistics.ratio`,
without pseudo-tasks: what stands before a change moves nothing for certain). A
share of a difference that is not there has no value: `Share.reason` says why.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from forensics.statistics import Estimate, mean, ratio

Floats = NDArray[np.float64]
Direction = Literal["into-before", "into-after", "all-but"]
FEWEST_TASKS = 8  # below, there is no interval


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


def task_means(values: Floats, tasks: Sequence[str]) -> Floats:
    """The mean of each task over its decisions: `[rows, tasks]` of `values [rows,
    decisions]`.
    """
    _, task = np.unique(np.array(tasks, dtype=str), return_inverse=True)
    counts = np.bincount(task)
    return np.reshape([np.bincount(task, row) for row in values], (-1, len(counts))) / counts


def means(
    values: Floats, tasks: Sequence[str], level: float, bounds: tuple[float, float]
) -> list[Share]:
    """The mean over tasks of each row of `values [rows, decisions]`, which lie inside `bounds`."""
    return [
        _share(float(row.mean()), row, partial(mean, row, reach=0.0, bounds=bounds, level=level))
        for row in task_means(values, tasks)
    ]


def _ratios(part: Floats, whole: Floats, tasks: Sequence[str], level: float) -> list[Share]:
    """Sum of each row of `part [rows, decisions]` over the sum of `whole
    [decisions]`, tasks weighing alike.
    """
    wholes = task_means(whole[None], tasks)[0]
    return [
        _share(
            float(row.sum() / wholes.sum()),
            row,
            partial(ratio, row, wholes, reach=0.0, level=level),
        )
        for row in task_means(part, tasks)
    ]


def _share(estimate: float, by_task: Floats, interval: Callable[[], Estimate]) -> Share:
    if len(by_task) < FEWEST_TASKS:
        reason = f"{len(by_task)} tasks are too few for an interval"
        return Share(estimate=estimate, reason=reason)
    found = interval()
    return Share(estimate=estimate, low=found.low, high=found.high)


def kl_moved(
    readings: Readings, directions: Sequence[Direction], level: float = 0.95
) -> list[Share]:
    """The share of the KL that each hybrid moves in its direction."""
    shares = [Share(estimate=None, reason="before and after decide alike here")] * len(directions)
    for target in (0, 1):
        members = [
            i
            for i, direction in enumerate(directions)
            if (direction == "into-after") == bool(target)
        ]
        whole = readings.between[target]
        if whole.sum() > 0:
            parts = whole - readings.hybrid_kl[members, target]
            found = _ratios(parts, whole, readings.tasks, level)
            for i, share in zip(members, found, strict=True):
                shares[i] = share
    return shares


def behaviour_moved(
    readings: Readings, directions: Sequence[Direction], level: float = 0.95
) -> list[Share]:
    """The share of the change in the behaviour's chance that each hybrid moves in its direction."""
    if readings.chance is None or readings.hybrid_chance is None:
        return [Share(estimate=None, reason="no behaviour was named")] * len(directions)
    before, after = readings.chance
    difference = means((after - before)[None], readings.tasks, level, (-1.0, 1.0))[0]
    if difference.low is None or difference.high is None:
        alike = difference.estimate == 0
    else:
        alike = difference.low <= 0 <= difference.high
    if alike:
        reason = "the behaviour's chance does not differ between before and after"
        return [Share(estimate=None, reason=reason)] * len(directions)
    back = np.array([direction == "into-after" for direction in directions])
    start = np.where(back[:, None], after, before)
    part = (readings.hybrid_chance - start) * np.where(back, -1.0, 1.0)[:, None]
    return _ratios(part, after - before, readings.tasks, level)
