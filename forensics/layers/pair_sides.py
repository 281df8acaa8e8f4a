"""Both sides of a pair of logs on the tasks that they share, and the plain
interval over these tasks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import fsum

import numpy as np
from numpy.typing import NDArray

from forensics.layers.bounds import (
    ScoredRun,
    ScoredSide,
    halves_of,
    scored_side,
    too_few_shared,
)
from forensics.layers.pair_form import Told, told_of
from forensics.phrases import point_range, points
from forensics.statistics import Estimate, mean

Floats = NDArray[np.float64]
Value = Callable[[ScoredRun], float]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Both sides on the tasks that they share; `told`: what rows tell of finishing and format.
    `unflagged`: the flagged wins are scored as lost (`pair_flagged`).
    """

    before: ScoredSide
    afters: tuple[ScoredSide, ...]
    tasks: tuple[str, ...]
    told: Told
    level: float
    unflagged: bool = False

    @property
    def aside(self) -> str:
        """What a sentence on these scores begins with."""
        return "The flagged wins aside: " if self.unflagged else ""

    @property
    def sides(self) -> tuple[ScoredSide, ...]:
        return self.before, *self.afters

    @property
    def runs(self) -> int:
        """How many runs the shared tasks have."""
        return sum(len(side.runs[task]) for side in self.sides for task in self.tasks)


def paired(
    before: Iterable[ScoredRun], afters: Sequence[Iterable[ScoredRun]], level: float
) -> Pair:
    """The tasks that are scored on all sides. Raises `MissingInput` with fewer than two."""
    first, *others = (scored_side(side) for side in (before, *afters))
    tasks = sorted(set(first.runs).intersection(*(side.runs for side in others)))
    if len(tasks) < 2 or not others:
        raise too_few_shared(first, others, len(tasks))
    runs = [[run for task in tasks for run in side.runs[task]] for side in (first, *others)]
    return Pair(
        before=first, afters=tuple(others), tasks=tuple(tasks), told=told_of(runs), level=level
    )


def plain(values: Floats, level: float) -> Estimate:
    """The mean over tasks with its plain t interval."""
    return mean(values, reach=0.0, level=level)


def task_means(side: ScoredSide, tasks: Sequence[str], value: Value) -> Floats:
    """The mean of something over the runs of each task."""
    return np.array([fsum(map(value, side.runs[task])) / len(side.runs[task]) for task in tasks])


def outcome(run: ScoredRun) -> float:
    """The score of a run."""
    return run.outcome


def both_means(pair: Pair, value: Value) -> tuple[Floats, Floats]:
    """The task means before and after, training seeds averaged."""
    first, *others = (task_means(side, pair.tasks, value) for side in pair.sides)
    return first, np.asarray(np.mean(others, axis=0))


def halves(pair: Pair) -> Pair | None:
    """The before policy's runs against themselves; `None` where fewer than two tasks have two."""
    own = halves_of(pair.before, pair.tasks)
    if own is None:
        return None
    return replace(pair, before=own[0], afters=own[1:], tasks=tuple(own[0].runs), unflagged=False)


def points_told(found: Estimate) -> str:
    """`+17.5 points (95 % interval 9.1 to 25.9)`."""
    level = f"{100 * found.level:g} % interval"
    return f"{points(found.estimate, 1)} points ({level} {point_range(found.low, found.high, 1)})"
