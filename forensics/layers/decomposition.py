"""The table behind the score layer: which runs count, which tasks pair, and
what each question weighs.

1. Stream the runs of one side in one world and keep, for each task, the scores
   and whether each run handed anything in. A run that errored or has no score
   is dropped and counted, never scored 0.
2. Keep the tasks that have runs in every cell, so that all quantities rest on
   the same tasks and add up. What the dropped runs would have scored nobody knows: an interval
   reaches as far as they could move it, each of them lost or won.
3. Add derived cells: the share of runs that never handed in, and the scrubbed
   after score with the *excess* of those over the before policy imputed at the
   before policy's scrubbed score on the same task (breakage: a policy trained
   on a shortcut may be thrown off by the scrubbed world rather than lack the
   skill).
4. Each question is a weighted sum over cells.

The same table made of two halves of the before policy's own runs is the
control: it should show nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forensics.errors import MissingInput
from forensics.records.trajectory import TOKEN_LIMIT, handed_in
from forensics.statistics import Contrast, paired as paired_contrast

Floats = NDArray[np.float64]
World = tuple[str, ...]  # the scrubbed channels, sorted; () is the open world
Cell = tuple[str, World]  # (what, where)
Weights = dict[Cell, float]

Key = TypeVar("Key")

OPEN: World = ()
BEFORE, AFTER, IMPUTED = "before", "after", "after imputed"
UNFINISHED_BEFORE, UNFINISHED_AFTER = "before unfinished", "after unfinished"
PHANTOM_BAR = 0.8  # phantom: at least this share of the gain vanishes with the channels
GENUINE_BAR = 0.2  # genuine: at most this share does
COLUMNS = ("task", "sample", "id", "outcome", "end", "end_reason", "steps.list.element.role")


@dataclass(frozen=True, kw_only=True, eq=False)
class Runs:
    """The counted runs of one side in one world, summed up by task; arrays are
    `[tasks]`, tasks sorted.

    `score` and `unfinished` are means over runs, `product` the product of the
    two without the bias of estimating both from the same runs. `dropped`: runs
    without a score. `silent`: counted runs without an action, `cut`: counted
    runs that the token budget cut off. `halves`: two halves without a common
    run, over the tasks that have two.
    """

    tasks: tuple[str, ...]
    counts: Floats
    score: Floats
    unfinished: Floats
    product: Floats
    dropped: int = 0
    silent: int = 0
    cut: int = 0
    halves: "tuple[Runs, Runs] | None" = None

    @property
    def lost(self) -> float:
        """The share of runs without a score (0 without runs)."""
        return self.dropped / max(self.dropped + float(self.counts.sum()), 1.0)

    def places(self, tasks: Sequence[str]) -> NDArray[np.intp]:
        """Where these tasks stand in the arrays."""
        where = {task: place for place, task in enumerate(self.tasks)}
        return np.array([where[task] for task in tasks], dtype=np.intp)


Worlds = Mapping[
    World, tuple[Runs, tuple[Runs, ...]]
]  # for each world: before, and every after seed


def read_runs(rows: Iterable[Mapping[str, Any]]) -> Runs:
    """Runs from plain rows (`COLUMNS`), in any order.

    A run is unfinished where a budget cut it off before the environment could
    end it. Raises `MissingInput` where a score lies outside [0, 1].
    """
    kept: list[tuple[str, int, str, float, float]] = []
    dropped = silent = cut = 0
    for row in rows:
        if row["outcome"] is None or row["end"] == "errored":
            dropped += 1
            continue
        if not 0 <= row["outcome"] <= 1:
            raise MissingInput(
                f"A score of {row['outcome']:g} lies outside 0 to 1, where the decision's margins"
                " mean nothing.",
                "Rescale the outcome to 0 to 1.",
            )
        cut += row["end_reason"] == TOKEN_LIMIT
        silent += all(step["role"] != "assistant" for step in row["steps"])
        unfinished = float(not handed_in(row["end"], row["end_reason"]))
        kept.append((row["task"], row["sample"], row["id"], row["outcome"], unfinished))
    kept.sort()
    values = np.array([run[3:] for run in kept], dtype=float).reshape(-1, 2)
    return replace(runs_from([run[0] for run in kept], values, dropped), silent=silent, cut=cut)


def runs_from(tasks: Sequence[str], values: Floats, dropped: int = 0) -> Runs:
    """Runs from `values [runs, 2]` (score, unfinished) and the task of each,
    equal tasks next to each other.
    """
    groups = [(task, len(list(runs))) for task, runs in groupby(tasks)]
    counts = np.array([count for _, count in groups], dtype=np.intp)
    whole = _summed([task for task, _ in groups], counts, values)
    place = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    common, paired_up = (
        [task for task, count in groups if count >= 2],
        np.repeat(counts >= 2, counts),
    )
    shares = ((counts[counts >= 2] + 1) // 2, counts[counts >= 2] // 2)
    halves = [
        _summed(common, shares[part], values[paired_up & (place % 2 == part)]) for part in (0, 1)
    ]
    return replace(whole, dropped=dropped, halves=(halves[0], halves[1]) if common else None)


def _summed(tasks: Sequence[str], counts: NDArray[np.intp], values: Floats) -> Runs:
    """Runs of which the first `counts[0]` rows of `values` belong to the first task, and so on."""
    starts = np.cumsum(counts) - counts
    columns = np.column_stack([values, values.prod(axis=1)])
    score, unfinished, together = (
        np.add.reduceat(columns, starts, axis=0) if tasks else np.zeros((0, 3))
    ).T
    apart = (score * unfinished - together) / np.maximum(counts * (counts - 1), 1)
    return Runs(
        tasks=tuple(tasks),
        counts=counts.astype(float),
        score=score / counts,
        unfinished=unfinished / counts,
        product=np.where(counts > 1, apart, score * unfinished),
    )


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Cells of the same tasks, paired: `table [seeds, cells, tasks]`, how many runs each cell
    holds, and the share of its runs that have no score (`lost`).
    """

    tasks: tuple[str, ...]
    cells: tuple[Cell, ...]
    table: Floats
    episodes: Mapping[Cell, int]
    lost: Mapping[Cell, float]
    tasks_dropped: int
    runs_dropped: int

    @property
    def seeds(self) -> int:
        return int(self.table.shape[0])

    def estimate(self, weights: Weights, level: float) -> Contrast:
        return paired_contrast(self.table, self._vector(weights), level=level)

    def at_worst(self, weights: Weights, level: float) -> Contrast:
        """The same; the interval reaches as far as runs without a score could move it."""
        contrast, vector = self.estimate(weights, level), self._vector(weights)
        means = self.table.mean(axis=(0, 2))
        lost = [self.lost[what.split()[0], world] for what, world in self.cells]
        below, above = reach_of_lost(vector, means, lost)
        floor, ceiling = float(vector.clip(max=0).sum()), float(vector.clip(min=0).sum())
        return replace(
            contrast,
            low=max(contrast.low - below, min(contrast.low, floor)),
            high=min(contrast.high + above, max(contrast.high, ceiling)),
        )

    def _vector(self, weights: Weights) -> Floats:
        return np.array([weights.get(cell, 0.0) for cell in self.cells])

    def runs_behind(self, weights: Weights) -> int:
        """Episodes in the cells that a question weighs; a derived cell counts
        those it was made of.
        """
        sources = {(what.split()[0], world) for (what, world), weight in weights.items() if weight}
        return sum(self.episodes[cell] for cell in sources)


def reach_of_lost(weights: Floats, means: Floats, lost: ArrayLike) -> tuple[float, float]:
    """How far runs without a score could bring a contrast `weights [cells]` down and up. `means
    [cells]`: of the runs that have one; `lost [cells]`: the share of those that have none.
    """
    known, unknown = means.clip(0, 1), np.asarray(lost)
    as_lost, as_won = -weights * unknown * known, weights * unknown * (1 - known)
    below, above = np.minimum(as_lost, as_won), np.maximum(as_lost, as_won)
    return -float(below.sum()), float(above.sum())


def paired(worlds: Worlds, scrubbed: World | None) -> Panel:
    """The panel of everything that was read. `scrubbed`: the world without any
    channel, if it was read.
    """
    cells = [runs for before, afters in worlds.values() for runs in (before, *afters)]
    tasks = tuple(sorted(set.intersection(*(set(runs.tasks) for runs in cells))))
    columns: dict[Cell, Floats] = {}
    episodes: dict[Cell, int] = {}
    lost: dict[Cell, float] = {}
    names = ("score", "counts", "unfinished", "product")  # each `[seeds, tasks]`
    for world, (before, afters) in worlds.items():
        first, seeds = (
            {
                name: np.stack([getattr(runs, name)[runs.places(tasks)] for runs in sides])
                for name in names
            }
            for sides in ([before] * len(afters), afters)
        )
        columns |= {(BEFORE, world): first["score"], (AFTER, world): seeds["score"]}
        episodes[BEFORE, world] = int(first["counts"][0].sum())
        episodes[AFTER, world] = int(seeds["counts"].sum())
        lost[BEFORE, world] = before.lost
        lost[AFTER, world] = float(np.mean([runs.lost for runs in afters]))
        if world == scrubbed:
            imputed = seeds["score"]
            if seeds["unfinished"].sum() > first["unfinished"].sum():  # else nothing is imputed
                imputed = imputed + seeds["unfinished"] * first["score"] - first["product"]
            columns |= {
                (IMPUTED, world): imputed,
                (UNFINISHED_BEFORE, world): first["unfinished"],
                (UNFINISHED_AFTER, world): seeds["unfinished"],
            }
    return Panel(
        tasks=tasks,
        cells=tuple(columns),
        table=np.stack(list(columns.values()), axis=1),
        episodes=episodes,
        lost=lost,
        tasks_dropped=len(set().union(*(runs.tasks for runs in cells))) - len(tasks),
        runs_dropped=sum(runs.dropped for runs in cells),
    )


def control_panel(worlds: Worlds, scrubbed: World | None) -> Panel | None:
    """The same panel with one half of the before policy's runs as *before* and
    the other as *after*.

    `None` where fewer than two tasks have the two runs it takes.
    """
    split: dict[World, tuple[Runs, tuple[Runs, ...]]] = {}
    for world, (before, _) in worlds.items():
        if before.halves is None:
            return None
        split[world] = (before.halves[0], (before.halves[1],))
    panel = paired(split, scrubbed)
    return panel if len(panel.tasks) >= 2 else None


def add(*parts: tuple[float, Mapping[Key, float]]) -> dict[Key, float]:
    """A weighted sum of weighted sums."""
    total: dict[Key, float] = {}
    for factor, weights in parts:
        for cell, weight in weights.items():
            total[cell] = total.get(cell, 0.0) + factor * weight
    return {cell: weight for cell, weight in total.items() if abs(weight) > 1e-12}


def gain(world: World, after: str = AFTER) -> Weights:
    """After minus before in one world."""
    return {(after, world): 1.0, (BEFORE, world): -1.0}


def split_weights(scrubbed: World, after: str = AFTER) -> dict[str, Weights]:
    """The decomposition: `genuine` (both scrubbed), `phantom` (what vanishes),
    and phantom against both bars.
    """
    total, genuine = gain(OPEN), gain(scrubbed, after)
    phantom = add((1, total), (-1, genuine))
    return {
        "gain.genuine": genuine,
        "gain.phantom": phantom,
        "gain.phantom_over_bar": add((1, phantom), (-PHANTOM_BAR, total)),
        "gain.phantom_under_bar": add((1, phantom), (-GENUINE_BAR, total)),
    }


def open_weights() -> dict[str, Weights]:
    """What the open world alone answers."""
    return {
        "score.before": {(BEFORE, OPEN): 1.0},
        "score.after": {(AFTER, OPEN): 1.0},
        "gain.total": gain(OPEN),
    }


def scrubbed_weights(world: World) -> dict[str, Weights]:
    """What takes the scrubbed world as well."""
    imputed = {
        f"{question}_imputed": weights
        for question, weights in split_weights(world, IMPUTED).items()
    }
    harm: Weights = {(BEFORE, OPEN): 1.0, (BEFORE, world): -1.0}
    return {
        "score.before_scrubbed": {(BEFORE, world): 1.0},
        "score.after_scrubbed": {(AFTER, world): 1.0},
        **split_weights(world),
        **imputed,
        "breakage": {(UNFINISHED_AFTER, world): 1.0, (UNFINISHED_BEFORE, world): -1.0},
        "scrubbing.placebo": harm,
        "scrubbing.placebo_over_bar": add((1, harm), (-GENUINE_BAR, gain(OPEN))),
    }
