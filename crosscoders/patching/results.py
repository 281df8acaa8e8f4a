"""What a map holds: its rows, the readings that they come from, and the same
map for some of its tasks.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from crosscoders.patching.moved import (
    Direction,
    Readings,
    Share,
    behaviour_moved,
    kl_moved,
    means,
)
from forensics.errors import UserError

Kind = Literal["patch", "graft"]
Positions = Literal["deciding", "earlier", "all"]
_LAYER = re.compile(r"blocks\.(\d+)\.")


@dataclass(frozen=True, kw_only=True)
class MapConfig:
    """`level` of the intervals; `values_at_once`: how many numbers of activations
    or of logits are held at a time.
    """

    level: float = 0.95
    values_at_once: int = 2**26

    def __post_init__(self) -> None:
        if not 0 < self.level < 1 or self.values_at_once < 1:
            raise UserError("a map needs a level between 0 and 1, and at least one value at once")


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
        match = _LAYER.match(self.place)
        return int(match[1]) if match and "+" not in self.place else None


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
        shares = {
            "kl_moved": self.kl_moved,
            "behaviour_moved": self.behaviour_moved,
            "chance": self.chance,
        }
        ends = {
            name + ending: getattr(share, part) if share else None
            for name, share in shares.items()
            for ending, part in (("", "estimate"), ("_low", "low"), ("_high", "high"))
        }
        return asdict(self.change) | {"layer": self.change.layer} | ends | {"tasks": self.tasks}


@dataclass(frozen=True, kw_only=True)
class ChangeMap:
    """The rows of a map in the network's order.

    `before`, `after`: the behaviour's chance in the two checkpoints (`None`
    without a behaviour). `kl`: KL(after || before) at the deciding token in
    nats. `layers`: how many the network has; `tied`: whether its embedding is
    its output projection too.
    """

    kind: Kind
    rows: tuple[Row, ...]
    behaviour: str | None
    before: Share | None
    after: Share | None
    kl: Share
    layers: int
    tied: bool
    readings: Readings
    config: MapConfig

    def row(self, place: str, direction: Direction, positions: Positions | None = None) -> Row:
        """One row. Raises `UserError` where the map has none such."""
        for row in self.rows:
            if (row.change.place, row.change.direction, row.change.positions) == (
                place,
                direction,
                positions,
            ):
                return row
        where = f" at {positions} positions" if positions else ""
        raise UserError(
            f"this {self.kind} map has no row for {place}, {direction}{where}; measure it first"
        )

    def only(self, tasks: Sequence[str]) -> "ChangeMap":
        """The same map from the decisions of some of its tasks."""
        if not set(tasks) & set(self.readings.tasks):
            raise UserError("the map has no decision of these tasks; name tasks that it has")
        changes = [row.change for row in self.rows]
        readings = self.readings.only(tasks)
        return summed(
            self.kind, readings, changes, self.behaviour, self.layers, self.tied, self.config
        )


def summed(
    kind: Kind,
    readings: Readings,
    changes: Sequence[Change],
    behaviour: str | None,
    layers: int,
    tied: bool,
    config: MapConfig,
) -> ChangeMap:
    """A map of its readings. `changes` stand in the order of the readings' hybrids."""
    directions, tasks, level = [one.direction for one in changes], readings.tasks, config.level
    kl, moved = (measure(readings, directions, level) for measure in (kl_moved, behaviour_moved))
    known: list[Share] | list[None] = [None, None]
    chances: Sequence[Share | None] = [None] * len(changes)
    if readings.chance is not None and readings.hybrid_chance is not None:
        known, chances = (
            means(values, tasks, level, (0.0, 1.0))
            for values in (readings.chance, readings.hybrid_chance)
        )
    rows = tuple(
        Row(
            change=change,
            kl_moved=kl[i],
            behaviour_moved=moved[i],
            chance=chances[i],
            tasks=len(set(tasks)),
        )
        for i, change in enumerate(changes)
    )
    return ChangeMap(
        kind=kind,
        rows=rows,
        behaviour=behaviour,
        before=known[0],
        after=known[1],
        kl=means(readings.between[:1], tasks, level, (0.0, np.inf))[0],
        layers=layers,
        tied=tied,
        readings=readings,
        config=config,
    )
