"""Intervals for contrasts over cells, paired by task and crossed with training seeds.

A *cell* is one side in one world (before, open; after, scrubbed; ...). The table `scores[seed, cell, task]`
holds mean scores of runs. Every quantity of the score layer is a contrast, a weighted sum over cells, so
that all of them come from one table and add up exactly.

1. Per seed and task take the contrast `D[seed, task]`. The before policy is the same for all seeds: its
   cells are repeated, and its noise counts, rightly, as a difference between tasks.
2. One seed: a t interval over tasks.
3. Several seeds: seeds and tasks are crossed random effects. The variance of the grand mean splits into a
   training part `A = var(seed means) / S`, which holds the noise of sampling too, and a task part `B`, what
   task means vary beyond that. The half-width is `sqrt(t[S-1]^2 A + t[T-1]^2 B)`: the weighted combination of
   Banerjee (Biometrika 1960), which covers at least at its level whatever the ratio of the parts, where
   Satterthwaite's degrees of freedom fall to 87 % at two seeds. It is never narrower than the interval over
   tasks with the seeds as they are.
4. Two pseudo-tasks one full score away from the mean enter the variance, never the mean. No interval has width
   zero, and a difference seen on none or few of the tasks is not taken for certain (the idea of Agresti and
   Caffo 2000, kept off the estimate so that estimates still add up).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forensics.errors import MissingInput

Floats = NDArray[np.float64]
PSEUDO_TASKS = 2


@lru_cache(maxsize=1024)
def t_quantile(level: float, degrees_of_freedom: int) -> float:
    """How many standard errors a two-sided t interval at `level` reaches."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, (1 + level) / 2))


class HalfWidths(NamedTuple):
    """Half-widths `[...]`: of the whole interval, over tasks with the seeds fixed, and of the training part."""

    total: Floats
    tasks: Floats
    training: Floats | None


@dataclass(frozen=True, kw_only=True)
class ContrastEstimate:
    """A contrast with its interval.

    `half_width_tasks`: the interval these very seeds would have. `half_width_training` and `seed_deviation`
    (the standard deviation of the estimate between training seeds) are `None` with one seed: not measured.
    """

    estimate: float
    low: float
    high: float
    level: float
    half_width_tasks: float
    half_width_training: float | None
    seed_deviation: float | None
    seeds: int
    tasks: int


def crossed_half_width(differences: Floats, jump: float, level: float) -> HalfWidths:
    """Half-widths for the grand mean of `differences [..., seeds, tasks]`; leading axes are independent.

    `jump` is how far from the mean the pseudo-tasks lie: what one rare task could differ by.
    """
    seeds, tasks = differences.shape[-2:]
    assert tasks >= 2, "a spread needs two tasks"
    task_means, seed_means = differences.mean(axis=-2), differences.mean(axis=-1)
    pseudo = PSEUDO_TASKS * jump**2 / (tasks - 1)
    task_variance = task_means.var(axis=-1, ddof=1)
    over_tasks = t_quantile(level, tasks - 1) * np.sqrt((task_variance + pseudo) / tasks)
    if seeds == 1:
        return HalfWidths(over_tasks, over_tasks, None)
    training = t_quantile(level, seeds - 1) * np.sqrt(seed_means.var(axis=-1, ddof=1) / seeds)
    beyond = np.maximum(task_variance - _interaction(differences) / seeds, 0) + pseudo
    both = np.sqrt(training**2 + t_quantile(level, tasks - 1) ** 2 * beyond / tasks)
    return HalfWidths(np.maximum(both, over_tasks), over_tasks, training)


def _interaction(differences: Floats) -> Floats:
    """Mean square `[...]` of what neither seed nor task explains: their interaction and the sampling noise."""
    seeds, tasks = differences.shape[-2:]
    by_seed = differences.mean(axis=-1, keepdims=True)
    by_task = differences.mean(axis=-2, keepdims=True)
    rest = differences - by_seed - by_task + differences.mean(axis=(-2, -1), keepdims=True)
    square: Floats = (rest**2).sum(axis=(-2, -1)) / ((seeds - 1) * (tasks - 1))
    return square


def estimate_contrast(scores: Floats, weights: Floats, *, level: float = 0.95) -> ContrastEstimate:
    """The contrast `weights [cells]` of `scores [seeds, cells, tasks]`, scores in [0, 1], nothing missing.

    Raises `MissingInput` with fewer than two tasks: one task says nothing about its spread.
    """
    seeds, _, tasks = scores.shape
    if tasks < 2:
        raise MissingInput(
            f"Only {tasks} task{'' if tasks == 1 else 's'} had outcomes in every cell, which gives no spread.",
            "Run at least two tasks on both sides; raise `--tasks`.",
        )
    differences = np.einsum("c,sct->st", weights, scores)
    floor, ceiling = float(weights[weights < 0].sum()), float(weights[weights > 0].sum())
    estimate = float(differences.mean())
    width = crossed_half_width(differences, min(1.0, max(ceiling, -floor)), level)
    return ContrastEstimate(
        estimate=estimate, level=level, seeds=seeds, tasks=tasks,
        low=min(estimate, max(floor, estimate - float(width.total))),
        high=max(estimate, min(ceiling, estimate + float(width.total))),
        half_width_tasks=float(width.tasks),
        half_width_training=None if width.training is None else float(width.training),
        seed_deviation=None if seeds == 1 else float(differences.mean(axis=1).std(ddof=1)),
    )
