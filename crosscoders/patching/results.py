"""What a map holds: its rows, the readings that they come from, and how much of
a difference moves with each change.

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

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forensics.errors import UserError
from forensics.statistics import Estimate, mean, ratio

Floats = NDArray[np.float64]
Kind = Literal["patch", "graft"]
Positions = Literal["deciding", "earlier", "all"]
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
class Change:
    """`place`: a site, or a module's name (several joined by `+`).
    `relative_change`: of a module's weights, the difference's norm over the
    receiver's.
    """

    place: str
    direction: Direction
    positions: Positions | None = None
    relative_change: float | None = None

    @property
    def layer(self) -> int | None:
        """The layer that it is of, `None` for what stands outside the layers or
        joins several modules.
        """
        match = re.match(r"blocks\.(\d+)\.", self.place)
        return int(match[1]) if match and "+" not in self.place else None


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What was read at `decisions`, of both checkpoints and of each hybrid.

    `tasks [decisions]`: whose decision it is. `between [2, decisions]`:
    KL(after || before), KL(before || after) in nats. `chance [2, decisions]`:
    of the behaviour before and after, `None` where no behaviour was asked for.
    `hybrid_kl [hybrids, 2, decisions]`: KL(after || hybrid), KL(before ||
    hybrid). `hybrid_chance [hybrids, decisions]`. `outliers`: what is told of them.
    """

    tasks: tuple[str, ...]
    between: Floats
    hybrid_kl: Floats
    chance: Floats | None = None
    hybrid_chance: Floats | None = None
    outliers: str | None = None

    def only(self, tasks: Sequence[str]) -> "Readings":
        """The readings at the decisions of some tasks."""
        kept: dict[str, Any] = {**vars(self), "tasks": np.array(self.tasks)}
        chosen = np.isin(kept["tasks"], np.array(list(tasks)))
        told = kept.pop("outliers")
        kept = {name: None if one is None else one[..., chosen] for name, one in kept.items()}
        return Readings(**kept | {"tasks": tuple(kept["tasks"].tolist()), "outliers": told})

    def repeated(self, hybrids: Sequence[int]) -> "Readings":
        """The readings of these hybrids, in this order; one may stand there twice."""
        at = list(hybrids)
        chance = None if self.hybrid_chance is None else self.hybrid_chance[at]
        return replace(self, hybrid_kl=self.hybrid_kl[at], hybrid_chance=chance)


def task_means(values: Floats, tasks: Sequence[str]) -> Floats:
    """The mean of each task `[tasks]` over its decisions, of `values [decisions]`."""
    _, task = np.unique(np.array(tasks, dtype=str), return_inverse=True)
    means: Floats = np.bincount(task, values) / np.bincount(task)
    return means


def mean_share(values: Floats, tasks: Sequence[str], bounds: tuple[float, float]) -> Share:
    """The mean over tasks of `values [decisions]`, which lie inside `bounds`."""
    by_task = task_means(values, tasks)
    interval = partial(mean, by_task, reach=0.0, bounds=bounds)
    return _share(float(by_task.mean()), len(by_task), interval)


def _ratio(part: Floats, whole: Floats, tasks: Sequence[str]) -> Share:
    """Sum of `part [decisions]` over the sum of `whole`, tasks weighing alike."""
    parts, wholes = task_means(part, tasks), task_means(whole, tasks)
    interval = partial(ratio, parts, wholes, reach=0.0)
    return _share(float(parts.sum() / wholes.sum()), len(parts), interval)


def _share(estimate: float, tasks: int, interval: Callable[[], Estimate]) -> Share:
    if tasks < FEWEST_TASKS:
        return Share(estimate=estimate, reason=f"{tasks} tasks are too few for an interval")
    found = interval()
    return Share(estimate=estimate, low=found.low, high=found.high)


def kl_moved(readings: Readings, directions: Sequence[Direction]) -> list[Share]:
    """The share of the KL that each hybrid moves in its direction."""
    shares = []
    for direction, hybrid in zip(directions, readings.hybrid_kl, strict=True):
        target = int(direction == "into-after")
        whole = readings.between[target]
        if whole.sum() > 0:
            shares.append(_ratio(whole - hybrid[target], whole, readings.tasks))
        else:
            shares.append(Share(estimate=None, reason="before and after decide alike here"))
    return shares


def behaviour_moved(readings: Readings, directions: Sequence[Direction]) -> list[Share]:
    """The share of the change in the behaviour's chance that each hybrid moves in its direction."""
    if readings.chance is None or readings.hybrid_chance is None:
        return [Share(estimate=None, reason="no behaviour was named")] * len(directions)
    before, after = readings.chance
    difference = mean_share(after - before, readings.tasks, (-1.0, 1.0))
    if difference.low is None or difference.high is None:
        alike = difference.estimate == 0
    else:
        alike = difference.low <= 0 <= difference.high
    if alike:
        reason = "the behaviour's chance does not differ between before and after"
        return [Share(estimate=None, reason=reason)] * len(directions)
    shares = []
    for direction, chance in zip(directions, readings.hybrid_chance, strict=True):
        part = after - chance if direction == "into-after" else chance - before
        shares.append(_ratio(part, after - before, readings.tasks))
    return shares


@dataclass(frozen=True, kw_only=True)
class Row:
    """What moves with one change. `chance`: the behaviour's in the changed
    model, `None` without a behaviour.
    """

    change: Change
    kl_moved: Share
    behaviour_moved: Share
    chance: Share | None
    tasks: int

    def flat(self) -> dict[str, Any]:
        """The row as plain values: `kl_moved`, `kl_moved_low`, ..., `None`
        where there is no value.
        """
        values = {
            name + ending: getattr(getattr(self, name), part, None)
            for name in ("kl_moved", "behaviour_moved", "chance")
            for ending, part in (("", "estimate"), ("_low", "low"), ("_high", "high"))
        }
        return asdict(self.change) | {"layer": self.change.layer} | values | {"tasks": self.tasks}


@dataclass(frozen=True, kw_only=True)
class ChangeMap:
    """The rows of a map in the network's order.

    `before`, `after`: the behaviour's chance in the two checkpoints (`None`
    without a behaviour). `kl`: KL(after || before) at the deciding token in
    nats. `layers`: how many the network has. `outliers`: what is told of attention
    sinks that were left as they are.
    """

    kind: Kind
    rows: tuple[Row, ...]
    behaviour: str | None
    before: Share | None
    after: Share | None
    kl: Share
    layers: int
    readings: Readings
    outliers: str | None = None

    def row(self, place: str, direction: Direction, positions: Positions | None = None) -> Row:
        """One row. Raises `UserError` where the map has none such."""
        for row in self.rows:
            change = row.change
            if (change.place, change.direction, change.positions) == (place, direction, positions):
                return row
        where = f" at {positions} positions" if positions else ""
        raise UserError(
            f"this {self.kind} map has no row for {place}, {direction}{where}; measure it first"
        )

    def only(self, tasks: Sequence[str]) -> "ChangeMap":
        """The same map from the decisions of some of its tasks."""
        if not set(tasks) & set(self.readings.tasks):
            raise UserError("the map has no decision of these tasks; name tasks that it has")
        changes, readings = [row.change for row in self.rows], self.readings.only(tasks)
        return summed(self.kind, readings, changes, self.behaviour, self.layers)


def summed(
    kind: Kind,
    readings: Readings,
    changes: Sequence[Change],
    behaviour: str | None,
    layers: int,
) -> ChangeMap:
    """A map of its readings. `changes` stand in the order of the readings' hybrids."""
    tasks, directions = readings.tasks, [one.direction for one in changes]

    def chances(values: Floats | None, number: int) -> Sequence[Share | None]:
        if values is None:
            return [None] * number
        return [mean_share(row, tasks, (0.0, 1.0)) for row in values]

    columns = zip(
        changes,
        kl_moved(readings, directions),
        behaviour_moved(readings, directions),
        chances(readings.hybrid_chance, len(changes)),
        strict=True,
    )
    before, after = chances(readings.chance, 2)
    return ChangeMap(
        kind=kind,
        rows=tuple(
            Row(
                change=change, kl_moved=kl, behaviour_moved=moved, chance=one, tasks=len(set(tasks))
            )
            for change, kl, moved, one in columns
        ),
        behaviour=behaviour,
        before=before,
        after=after,
        kl=mean_share(readings.between[0], tasks, (0.0, np.inf)),
        layers=layers,
        readings=readings,
        outliers=readings.outliers,
    )
