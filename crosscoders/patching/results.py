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

Which layers and places a deep network is patched at, in what order, and what that
costs. Light at import: no torch.

Which site the dictionaries get, and whether a feature in the middle of the
network can carry the change at all.

1. The tasks are split in two halves by their names. On the first, take the
   mid-network residual (after any layer but the last) that moves the largest
   share into the before model at the chosen positions; sites within `TIE` of
   the largest count as equal, and the earliest of them is taken. On the second
   half, report what it moves.
2. The *output* is the last MLP with all that follows it (final norm,
   unembedding). On the second half hold its graft against the mid-network
   residual patch, at any positions, that moved the most on the first:
   `output`: the graft moves more (intervals apart) and the patch less than
   `MOST_INSIDE`: RL re-weighted what the network already had, and a dictionary
   in the middle has at most the patch's share to find; `inside`: the patch
   moves at least `MOST_INSIDE`, and more than the graft; `spread`: neither.

The rule is ours, stated before it is used. Behaviour is what counts where one
was named and differs, else the KL.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from forensics.errors import UserError
from forensics.phrases import share_of_change
from forensics.records import content_hash
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


MOST_STEPS: Final = 8
POSITIONS: Final = ("deciding", "earlier", "all")
BEHIND = ("unembed", "final_norm")  # pieces that stand behind all layers
RESIDUAL_BEHIND = "hook_resid_post"


def steps(layers: int) -> tuple[int, ...]:
    """The layers that are looked at first: evenly spaced, the last among them."""
    stride = -(-layers // MOST_STEPS)
    return tuple(range(layers - 1, -1, -stride))[::-1]


def _residual(layer: int) -> str:
    return f"blocks.{layer}.hook_resid_post"


def coarse_changes(layers: Sequence[int]) -> list[Change]:
    """The residuals behind these layers, into before."""
    return [
        Change(place=_residual(layer), positions=where, direction="into-before")
        for layer in layers
        for where in ("deciding", "all")
    ]


def fine_changes(layer: int) -> list[Change]:
    """At a layer: what its attention and its MLP add, into before; and its residual, at
    all kinds of positions and both ways, but what `coarse_changes` has.
    """
    changes = [
        Change(place=f"blocks.{layer}.hook_{part}", positions=where, direction="into-before")
        for part in ("attn_out", "mlp_out")
        for where in ("deciding", "all")
    ]
    residual = _residual(layer)
    changes.append(Change(place=residual, positions="earlier", direction="into-before"))
    return changes + [
        Change(place=residual, positions=where, direction="into-after") for where in POSITIONS
    ]


def untouched(change: Change, layers: int) -> int:
    """How many of the first layers give the same with the change as without."""
    if change.positions:
        match = re.fullmatch(r"blocks\.(\d+)\.(\w+)", change.place)
        if match is None:
            return 0
        return int(match[1]) + (match[2] == RESIDUAL_BEHIND)
    return min(_before_piece(part, layers) for part in change.place.split("+"))


def _before_piece(piece: str, layers: int) -> int:
    if piece in BEHIND:
        return layers
    match = re.match(r"blocks\.(\d+)\.", piece)
    return int(match[1]) if match else 0


def passes(layers: int) -> float:
    """About how many passes over the decisions both maps take, in whole networks."""
    ends = steps(layers)
    stride = ends[-1] - ends[-2] if len(ends) > 1 else 1
    changes = [*coarse_changes(ends), *fine_changes(layers // 2)]
    changes += 2 * (stride - 1) * coarse_changes([layers // 2])
    patched = sum(1 - untouched(change, layers) / layers for change in changes)
    grafted = sum(2 * (layers - 1 - end + stride) / layers for end in ends)
    outside = 4 + 2 / layers  # the embedding twice; the output
    inside = 2 * 2 * stride * 0.5  # attention and MLP of a group's layers, both ways
    own = 2 * 5 + 2 * 3 * 0.7  # both models in each of five readings, and outliers in three
    return patched + grafted + outside + inside + own


Measure = Literal["behaviour", "kl"]
Where = Literal["inside", "output", "spread", "unknown"]
TIE: Final = 0.02  # shares this close count as equal
MOST_INSIDE: Final = 0.5  # from this share on, the middle of the network carries the change
SEED: Final = 0  # of the split into halves


@dataclass(frozen=True, kw_only=True)
class SiteChoice:
    """`site` (`None` with a `reason`) and what it moves on the tasks that did
    not choose it.

    `inside`: the residual patch that moves most, whatever the positions
    (`inside_site`); `output`: the graft of the output. `sentence`: the finding
    in words.
    """

    site: str | None
    moved: Share
    measure: Measure
    where: Where
    sentence: str
    inside_site: str | None
    inside: Share
    output: Share
    reason: str | None = None


def choose_site(
    patches: ChangeMap,
    grafts: ChangeMap | None = None,
    *,
    positions: Positions = "deciding",
    measure: Measure | None = None,
) -> SiteChoice:
    """The site for the dictionaries, and where the change lives. Without
    `grafts` the latter is `unknown`. `positions` at which a site is chosen;
    `measure`: by default the behaviour where it can be told.

    Raises `UserError` where the maps have fewer than two tasks, or no row at
    these positions.
    """
    first, second = halves(patches.readings.tasks)
    behaves = any(row.behaviour_moved.estimate is not None for row in patches.rows)
    measure = measure or ("behaviour" if behaves else "kl")
    middle, reporting = _middle(patches.only(first)), patches.only(second)
    here = [row for row in middle if row.change.positions == positions]
    if middle and not here:
        raise UserError(
            f"the patch map was not measured at {positions} positions; measure them, or set others"
        )
    chosen, inside = _largest(here, measure, TIE), _largest(middle, measure, 0.0)
    moved, most = (_again(row, reporting, measure) for row in (chosen, inside))
    place, output = _output(grafts, second, measure)
    where = _where(most, output)
    reason = None
    if chosen is None:
        reason = moved.reason
    elif moved.estimate is None or (moved.estimate if moved.low is None else moved.low) <= 0:
        reason = "no residual in the middle of the network moves anything towards the after model"
    return SiteChoice(
        site=chosen.change.place if chosen and reason is None else None,
        moved=moved,
        measure=measure,
        where=where,
        sentence=_sentence(where, measure, inside, most, place, output),
        inside_site=inside.change.place if inside else None,
        inside=most,
        output=output,
        reason=reason,
    )


def halves(tasks: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tasks that choose, and those that are reported on."""
    ordered = sorted(set(tasks), key=lambda task: content_hash([SEED, task]))
    if len(ordered) < 2:
        raise UserError(
            "a site is chosen on some tasks and reported on others; give decisions of at least two"
            " tasks"
        )
    return ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]


def _middle(patches: ChangeMap) -> list[Row]:
    return sorted(
        (
            row
            for row in patches.rows
            if re.fullmatch(r"blocks\.\d+\.hook_resid_post", row.change.place)
            and (row.change.layer or 0) < patches.layers - 1
            and row.change.direction == "into-before"
        ),
        key=lambda row: row.change.layer or 0,
    )


def _share_of(row: Row, measure: Measure) -> Share:
    return row.behaviour_moved if measure == "behaviour" else row.kl_moved


def _largest(rows: list[Row], measure: Measure, tie: float) -> Row | None:
    """The earliest row that is within `tie` of the largest."""
    known = [
        (row, share) for row in rows if (share := _share_of(row, measure).estimate) is not None
    ]
    most = max((share for _, share in known), default=0.0)
    return next((row for row, share in known if share >= most - tie), None)


def _again(row: Row | None, reporting: ChangeMap, measure: Measure) -> Share:
    if row is not None:
        change = row.change
        return _share_of(reporting.row(change.place, change.direction, change.positions), measure)
    alone = "the network has no layer before its last"
    alike = "before and after decide alike here"
    return Share(estimate=None, reason=alone if reporting.layers < 2 else alike)


def _output(
    grafts: ChangeMap | None, tasks: list[str], measure: Measure
) -> tuple[str | None, Share]:
    if grafts is None:
        return None, Share(estimate=None, reason="no module was grafted")
    last = f"blocks.{grafts.layers - 1}.mlp+"
    for row in grafts.rows:
        if row.change.place.startswith(last) and row.change.direction == "into-before":
            there = grafts.only(tasks).row(row.change.place, "into-before")
            return row.change.place, _share_of(there, measure)
    return None, Share(
        estimate=None, reason="the output was not grafted as one; add it to the modules"
    )


def _where(inside: Share, output: Share) -> Where:
    if inside.estimate is None or output.estimate is None:
        return "unknown"
    apart = output.estimate > inside.estimate
    if output.low is not None and inside.high is not None:
        apart = output.low > inside.high
    if apart and inside.estimate < MOST_INSIDE:
        return "output"
    return "inside" if inside.estimate >= max(MOST_INSIDE, output.estimate) else "spread"


def _sentence(
    where: Where,
    measure: Measure,
    row: Row | None,
    inside: Share,
    place: str | None,
    output: Share,
) -> str:
    of = "of the change in behaviour" if measure == "behaviour" else "of the KL at the decisions"
    if row is None or inside.estimate is None:
        return f"Where the change lives could not be told: {inside.reason}."
    patch = (
        f"the residual {row.change.place} ({row.change.positions} positions) moves {_told(inside)}"
        f" {of}"
    )
    if output.estimate is None:
        return (
            f"In the middle of the network {patch}; it was not held against the output"
            f" ({output.reason})."
        )
    graft = f"grafting {place} moves {_told(output)}"
    if where == "output":
        return (
            f"The change is mostly a re-weighting at the output: {graft}, while in the middle of"
            f" the network at best {patch}; no feature found there, as strong as training made it,"
            " can be expected to carry more."
        )
    if where == "inside":
        return f"The change is carried in the middle of the network: {patch}; {graft}."
    return f"The change is spread over the network: at best {patch}; {graft}."


def _told(share: Share) -> str:
    assert share.estimate is not None
    return share_of_change(share.estimate, share.low, share.high)
