"""The table behind the score layer: which runs count, which tasks pair, and what each question weighs.

1. Stream the runs of one side in one world and keep, for each task, the scores and whether each run handed
   anything in. A run that errored or has no score is dropped and counted, never scored 0.
2. Keep the tasks that have runs in every cell, so that all quantities rest on the same tasks and add up.
3. Add derived cells: the share of runs that never handed in, and the scrubbed after score with the *excess* of
   those over the before policy imputed at the before policy's scrubbed score on the same task (breakage: a
   policy trained on a shortcut may be thrown off by the scrubbed world rather than lack the skill).
4. Each question is a weighted sum over cells.

The same table made of two halves of the before policy's own runs is the control: it should show nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forensics.errors import MissingInput
from forensics.statistics import ContrastEstimate, estimate_contrast

Floats = NDArray[np.float64]
World = tuple[str, ...]  # the scrubbed channels, sorted; () is the open world
Cell = tuple[str, World]  # (what, where)
Weights = dict[Cell, float]

OPEN: World = ()
BEFORE, AFTER, IMPUTED = "before", "after", "after imputed"
UNFINISHED_BEFORE, UNFINISHED_AFTER = "before unfinished", "after unfinished"
PHANTOM_BAR = 0.8  # phantom: at least this share of the gain vanishes with the channels
GENUINE_BAR = 0.2  # genuine: at most this share does
COLUMNS = ("task", "sample", "id", "outcome", "end")


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The counted runs of one side in one world: for each task `[runs, 2]`, score and 1.0 where nothing was
    handed in. `dropped`: runs without a score."""

    by_task: Mapping[str, Floats]
    dropped: int = 0


Worlds = Mapping[World, tuple[Runs, tuple[Runs, ...]]]  # for each world: before, and every after seed


def read_runs(rows: Iterable[Mapping[str, Any]]) -> Runs:
    """Runs from plain rows (`COLUMNS`), in any order.

    A run is unfinished where it was cut off by a budget (`end` is not `terminated`). Raises `MissingInput`
    where a score lies outside [0, 1].
    """
    kept: dict[str, list[tuple[int, str, float, float]]] = {}
    dropped = 0
    for row in rows:
        if row["outcome"] is None or row["end"] == "errored":
            dropped += 1
            continue
        if not 0 <= row["outcome"] <= 1:
            raise MissingInput(
                f"A score of {row['outcome']:g} lies outside 0 to 1, where the decision's margins mean nothing.",
                "Rescale the outcome to 0 to 1.",
            )
        unfinished = float(row["end"] != "terminated")
        kept.setdefault(row["task"], []).append((row["sample"], row["id"], row["outcome"], unfinished))
    by_task = {task: np.array([run[2:] for run in sorted(kept[task])], dtype=float) for task in sorted(kept)}
    return Runs(by_task=by_task, dropped=dropped)


def halves(runs: Runs) -> tuple[Runs, Runs]:
    """Two halves without a common run, over the tasks that have at least two."""
    parted = {task: table for task, table in runs.by_task.items() if len(table) >= 2}
    first, second = ({task: table[part::2] for task, table in parted.items()} for part in (0, 1))
    return Runs(by_task=first), Runs(by_task=second)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Cells of the same tasks, paired: `table [seeds, cells, tasks]` and how many runs each cell holds."""

    tasks: tuple[str, ...]
    cells: tuple[Cell, ...]
    table: Floats
    episodes: Mapping[Cell, int]
    tasks_dropped: int
    runs_dropped: int

    @property
    def seeds(self) -> int:
        return int(self.table.shape[0])

    def estimate(self, weights: Weights, level: float) -> ContrastEstimate:
        vector = np.array([weights.get(cell, 0.0) for cell in self.cells])
        return estimate_contrast(self.table, vector, level=level)

    def runs_behind(self, weights: Weights) -> int:
        """Episodes in the cells that a question weighs; a derived cell counts those it was made of."""
        sources = {(what.split()[0], world) for (what, world), weight in weights.items() if weight}
        return sum(self.episodes[cell] for cell in sources)


def paired(worlds: Worlds, scrubbed: World | None) -> Panel:
    """The panel of everything that was read. `scrubbed`: the world without any channel, if it was read."""
    cells = [runs for before, afters in worlds.values() for runs in (before, *afters)]
    seen = set().union(*(runs.by_task for runs in cells))
    tasks = tuple(sorted(task for task in seen if all(task in runs.by_task for runs in cells)))
    columns: dict[Cell, Floats] = {}
    episodes: dict[Cell, int] = {}
    for world, (before, afters) in worlds.items():
        columns[BEFORE, world] = _means([before] * len(afters), tasks, 0)
        columns[AFTER, world] = _means(afters, tasks, 0)
        episodes[BEFORE, world] = _count([before], tasks)
        episodes[AFTER, world] = _count(afters, tasks)
    if scrubbed is not None:
        columns |= _breakage_cells(worlds[scrubbed][0], worlds[scrubbed][1], tasks, scrubbed)
    return Panel(
        tasks=tasks, cells=tuple(columns), table=np.stack(list(columns.values()), axis=1), episodes=episodes,
        tasks_dropped=len(seen) - len(tasks), runs_dropped=sum(runs.dropped for runs in cells),
    )


def control_panel(worlds: Worlds, scrubbed: World | None) -> Panel | None:
    """The same panel with one half of the before policy's runs as *before* and the other as *after*.

    `None` where fewer than two tasks have the two runs it takes.
    """
    split = {world: halves(before) for world, (before, _) in worlds.items()}
    panel = paired({world: (first, (second,)) for world, (first, second) in split.items()}, scrubbed)
    return panel if len(panel.tasks) >= 2 else None


def _means(sides: Sequence[Runs], tasks: Sequence[str], column: int) -> Floats:
    """Means over runs, `[seeds, tasks]`."""
    return np.array([[runs.by_task[task][:, column].mean() for task in tasks] for runs in sides]).reshape(
        len(sides), len(tasks)
    )


def _count(sides: Sequence[Runs], tasks: Sequence[str]) -> int:
    return sum(len(runs.by_task[task]) for runs in sides for task in tasks)


def _breakage_cells(before: Runs, afters: Sequence[Runs], tasks: Sequence[str], world: World) -> dict[Cell, Floats]:
    """Unfinished shares, and the after score with their excess imputed. No excess: nothing is imputed."""
    unfinished_before, unfinished_after = _means([before] * len(afters), tasks, 1), _means(afters, tasks, 1)
    score_before = _means([before], tasks, 0)
    both = np.array([[_product(before.by_task[task]) for task in tasks]])
    imputed = _means(afters, tasks, 0)
    if tasks and unfinished_after.mean() > unfinished_before.mean():
        imputed = imputed + unfinished_after * score_before - both
    return {
        (IMPUTED, world): imputed,
        (UNFINISHED_BEFORE, world): unfinished_before,
        (UNFINISHED_AFTER, world): unfinished_after,
    }


def _product(runs: Floats) -> float:
    """Unfinished share times score on one task, without the bias of estimating both from the same runs."""
    score, unfinished = runs[:, 0], runs[:, 1]
    n = len(runs)
    if n == 1:
        return float(score[0] * unfinished[0])
    return float((score.sum() * unfinished.sum() - (score * unfinished).sum()) / (n * (n - 1)))


def add(*parts: tuple[float, Weights]) -> Weights:
    """A weighted sum of weighted sums."""
    total: Weights = {}
    for factor, weights in parts:
        for cell, weight in weights.items():
            total[cell] = total.get(cell, 0.0) + factor * weight
    return {cell: weight for cell, weight in total.items() if abs(weight) > 1e-12}


def gain(world: World, after: str = AFTER) -> Weights:
    """After minus before in one world."""
    return {(after, world): 1.0, (BEFORE, world): -1.0}


def split_weights(scrubbed: World, after: str = AFTER) -> dict[str, Weights]:
    """The decomposition: `genuine` (both scrubbed), `phantom` (what vanishes), and phantom against both bars."""
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
    return {"score.before": {(BEFORE, OPEN): 1.0}, "score.after": {(AFTER, OPEN): 1.0}, "gain.total": gain(OPEN)}


def scrubbed_weights(world: World) -> dict[str, Weights]:
    """What takes the scrubbed world as well."""
    imputed = {f"{question}_imputed": weights for question, weights in split_weights(world, IMPUTED).items()}
    return {
        "score.before_scrubbed": {(BEFORE, world): 1.0},
        "score.after_scrubbed": {(AFTER, world): 1.0},
        **split_weights(world),
        **imputed,
        "breakage": {(UNFINISHED_AFTER, world): 1.0, (UNFINISHED_BEFORE, world): -1.0},
    }
