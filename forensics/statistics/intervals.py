"""Intervals whose independent unit is the task and the training seed, never
the rollout.

*Shares* (`share`, of single trials `binomial`) go through an effective number of
trials; *contrasts* (`paired`) are paired by task and crossed with training
seeds; `mean` and `ratio` are of any unit; *differences of means* (`unpaired`)
are of tasks that are not the same on both sides.

Contrasts. A *cell* is one side in one world (before, open; after, scrubbed; ...). The
table `scores[seed, cell, task]` holds mean scores of runs. Every quantity of
the score layer is a contrast, a weighted sum over cells, so that all of them
come from one table and add up exactly.

1. Per seed and task take the contrast `D[seed, task]`. The before policy is the
   same for all seeds: its cells are repeated, and its noise counts, rightly, as
   a difference between tasks.
2. One seed: a t interval over tasks.
3. Several seeds: seeds and tasks are crossed random effects. The variance of
   the grand mean splits into a training part `A = var(seed means) / S`, which
   holds the noise of sampling too, and a task part `B`, what task means vary
   beyond that. The half-width is `sqrt(t[S-1]^2 A + t[T-1]^2 B)`: the weighted
   combination of Banerjee (Biometrika 1960), which covers at least at its level
   whatever the ratio of the parts, where Satterthwaite's degrees of freedom
   fall to 87 % at two seeds. It is never narrower than the interval over tasks
   with the seeds as they are.
4. Two pseudo-tasks one full score away from the mean enter the variance, never
   the mean. No interval has width zero, and a difference seen on none or few of
   the tasks is not taken for certain (the idea of Agresti and Caffo 2000, kept
   off the estimate so that estimates still add up).

A number with its interval: what every room says of what it measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forensics.errors import MissingInput
from forensics.phrases import plural
from forensics.records import Interval


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate and the ends of its interval at `level`, in the unit of the
    estimate.

    `n` counts the observations, `clusters` the independent units behind them:
    tasks, or training seeds.
    """

    estimate: float
    low: float
    high: float
    level: float = 0.95
    n: float = 0
    clusters: int = 0

    @property
    def interval(self) -> Interval:
        """The interval, as evidence holds it."""
        return Interval(low=self.low, high=self.high, level=self.level)

    @property
    def ends(self) -> tuple[float, float, float]:
        """`(estimate, low, high)`: three cells of a table."""
        return self.estimate, self.low, self.high

    def row(self) -> dict[str, float]:
        """As JSON: `estimate`, `low`, `high`, `level`."""
        return {name: getattr(self, name) for name in ("estimate", "low", "high", "level")}

    def scaled(self, factor: float) -> "Estimate":
        """The same, times a factor."""
        low, high = sorted((factor * self.low, factor * self.high))
        return Estimate(
            estimate=factor * self.estimate,
            low=low,
            high=high,
            level=self.level,
            n=self.n,
            clusters=self.clusters,
        )


Floats = NDArray[np.float64]
PSEUDO_TASKS = 2
NO_RANGE = 1e-100  # its square can still be told from 0
EVERYWHERE = (-np.inf, np.inf)
SAME = 1e-9  # relative: tasks that differ by less agree


class HalfWidths(NamedTuple):
    """Half-widths `[...]`: of the whole interval, over tasks with the seeds
    fixed, and of the training part.
    """

    total: Floats
    tasks: Floats
    training: Floats | None


@dataclass(frozen=True, kw_only=True)
class Contrast(Estimate):
    """A contrast with its interval; `clusters` are its tasks.

    `half_width_tasks`: the interval these very seeds would have.
    `half_width_training` and `seed_deviation` (the standard deviation of the
    estimate between training seeds) are `None` with one seed: not measured.
    """

    half_width_tasks: float
    half_width_training: float | None
    seed_deviation: float | None
    seeds: int


@dataclass(frozen=True, kw_only=True)
class MeanDifference(Estimate):
    """`last - first` with its interval. `clusters`: the tasks of both sides together."""

    first: float
    last: float


def clopper_pearson(successes: float, trials: float, *, level: float = 0.95) -> tuple[float, float]:
    """Exact binomial interval (Clopper and Pearson, Biometrika 1934);
    fractional counts are allowed.

    Raises `ValueError` unless `0 <= successes <= trials` and `trials > 0`.
    """
    from scipy.special import betaincinv

    if not (trials > 0 and 0 <= successes <= trials):
        raise ValueError(
            f"{successes} of {trials} is not a count of successes; give 0 <= successes <="
            " trials > 0"
        )
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = (
        1.0
        if successes == trials
        else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    )
    return low, high


def binomial(successes: float, trials: float) -> Estimate:
    """A share of independent trials with its exact interval. Raises as `clopper_pearson` does."""
    low, high = clopper_pearson(successes, trials)
    return Estimate(estimate=successes / trials, low=low, high=high, n=trials)


def difference_of_shares(first: Estimate, second: Estimate) -> Estimate:
    """`first - second` of two independent shares (Newcombe, Statistics in
    Medicine 1998), from the ends of both.
    """
    estimate = first.estimate - second.estimate
    below = np.hypot(first.estimate - first.low, second.high - second.estimate)
    above = np.hypot(first.high - first.estimate, second.estimate - second.low)
    return Estimate(
        estimate=estimate,
        low=max(estimate - float(below), -1.0),
        high=min(estimate + float(above), 1.0),
        level=first.level,
        n=first.n + second.n,
    )


def largest(estimates: Iterable[Estimate]) -> Estimate:
    """The largest of several unknown numbers, end by end."""
    rows = list(estimates)
    estimate, low, high = (max(ends) for ends in zip(*(one.ends for one in rows), strict=True))
    return replace(rows[0], estimate=estimate, low=low, high=high)


def share(
    numerators: NDArray[np.float64], denominators: NDArray[np.float64], *, level: float = 0.95
) -> Estimate:
    """`sum(numerators) / sum(denominators)` where tasks are the independent
    unit.

    `numerators [tasks]` counts part of `denominators [tasks]`, for example wins
    through a channel among wins. Method of Korn and Graubard (Survey
    Methodology 1998): the linearised variance over tasks gives an effective
    number of trials, shrunk for the few degrees of freedom, which goes into the
    exact binomial interval. Where every task agrees the effective number is the
    number of tasks. `n` is the sum of the denominators, `clusters` the tasks
    that had any. Raises `MissingInput` where the share has no denominator or a
    single task.
    """
    seen = denominators > 0
    part, whole = np.asarray(numerators, float)[seen], np.asarray(denominators, float)[seen]
    clusters, total = len(whole), float(whole.sum())
    if clusters < 2:
        raise MissingInput(
            f"The share rests on {plural(clusters, 'task')}, which gives no interval.",
            "Run more tasks, or more samples of each.",
        )
    estimate = float(part.sum() / whole.sum())
    residuals = part - estimate * whole
    variance = clusters / (clusters - 1) * float((residuals**2).sum()) / total**2
    trials = float(clusters)
    if estimate not in (0.0, 1.0) and variance >= 1e-15:
        shrink = (t_quantile(level, max(int(total) - 1, 1)) / t_quantile(level, clusters - 1)) ** 2
        trials = float(min(shrink * estimate * (1 - estimate) / variance, total))
    return effective_share(estimate, trials, level=level, n=total, clusters=clusters)


def effective_share(
    estimate: float, trials: float, *, level: float, n: float, clusters: int
) -> Estimate:
    """A share whose doubt is that of so many independent trials."""
    low, high = clopper_pearson(min(estimate * trials, trials), trials, level=level)
    low, high = min(low, estimate), max(high, estimate)
    return Estimate(estimate=estimate, low=low, high=high, level=level, n=n, clusters=clusters)


def share_by_task(rows: Iterable[tuple[str, float, float]], *, level: float = 0.95) -> Estimate:
    """`share` of rows `(task, part, whole)`, summed by task; as many rows a task as
    there are.
    """
    sums: dict[str, list[float]] = {}
    for task, part, whole in rows:
        row = sums.setdefault(task, [0.0, 0.0])
        row[0] += part
        row[1] += whole
    table = np.array([sums[task] for task in sorted(sums)]).reshape(-1, 2)
    return share(table[:, 0], table[:, 1], level=level)


@lru_cache(maxsize=1024)
def t_quantile(level: float, degrees_of_freedom: int) -> float:
    """How many standard errors a two-sided t interval at `level` reaches."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, (1 + level) / 2))


def crossed_half_width(differences: Floats, jump: float, level: float) -> HalfWidths:
    """Half-widths for the grand mean of `differences [..., seeds, tasks]`;
    leading axes are independent.

    `jump` is how far from the mean the pseudo-tasks lie: what one rare task
    could differ by.
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
    beyond = np.maximum(task_variance - interaction(differences) / seeds, 0) + pseudo
    both = np.sqrt(training**2 + t_quantile(level, tasks - 1) ** 2 * beyond / tasks)
    return HalfWidths(np.maximum(both, over_tasks), over_tasks, training)


def interaction(differences: Floats) -> Floats:
    """Mean square `[...]` of what neither seed nor task explains: their
    interaction and the sampling noise.
    """
    seeds, tasks = differences.shape[-2:]
    by_seed = differences.mean(axis=-1, keepdims=True)
    by_task = differences.mean(axis=-2, keepdims=True)
    rest = differences - by_seed - by_task + differences.mean(axis=(-2, -1), keepdims=True)
    square: Floats = (rest**2).sum(axis=(-2, -1)) / ((seeds - 1) * (tasks - 1))
    return square


def mean(
    values: Floats,
    *,
    reach: float | None = None,
    bounds: tuple[float, float] = EVERYWHERE,
    level: float = 0.95,
) -> Estimate:
    """The mean of `values [tasks]`, any unit, with a t interval inside `bounds`.

    `reach`: how far from the mean the two pseudo-tasks lie; by default the range
    of what was seen, 1 where all agree. Raises `MissingInput` with fewer than
    two tasks.
    """
    tasks = len(values)
    if tasks < 2:
        raise too_few(tasks)
    jump = (float(np.ptp(values)) or 1.0) if reach is None else reach
    half = float(crossed_half_width(values[None], jump, level).total)
    return around(float(values.mean()), half, bounds, level=level, n=tasks, clusters=tasks)


def ratio(
    parts: Floats, wholes: Floats, *, reach: float | None = None, level: float = 0.95
) -> Estimate:
    """`sum(parts) / sum(wholes)` over independent tasks `[tasks]`, by the delta
    method. Neither has to be positive; that the mean of the wholes is not 0 must
    be sure.

    Two pseudo-tasks enter the variance of `parts - ratio * wholes`: `reach` from
    its mean, by default the range of what was seen, 0 for none. Raises `MissingInput` with
    fewer than two tasks.
    """
    tasks = len(parts)
    if tasks < 2:
        raise too_few(tasks)
    estimate = float(parts.sum() / wholes.sum())
    rest = parts - estimate * wholes
    if reach is None:
        size = float(np.abs(parts).mean()) or float(np.abs(wholes).mean())
        reach = seen if (seen := float(np.ptp(rest))) > SAME * size else size
    half = float(crossed_half_width(rest[None], reach, level).total) / abs(float(wholes.mean()))
    return around(estimate, half, level=level, n=tasks, clusters=tasks)


def around(
    estimate: float, half: float, bounds: tuple[float, float] = EVERYWHERE, **counted: Any
) -> Estimate:
    """An estimate with an interval of the same length on both sides, cut at the bounds."""
    low, high = max(estimate - half, bounds[0]), min(estimate + half, bounds[1])
    return Estimate(estimate=estimate, low=low, high=high, **counted)


def too_few(tasks: int) -> MissingInput:
    """What an interval over fewer than two tasks raises."""
    return MissingInput(
        f"The log has {plural(tasks, 'task')}, which gives no interval.",
        "Give runs of more tasks.",
    )


def paired(scores: Floats, weights: Floats, *, level: float = 0.95) -> Contrast:
    """The contrast `weights [cells]` of `scores [seeds, cells, tasks]`, scores
    in [0, 1], nothing missing.

    Raises `MissingInput` with fewer than two tasks: one task says nothing about
    its spread.
    """
    seeds, _, tasks = scores.shape
    if tasks < 2:
        raise MissingInput(
            f"Only {plural(tasks, 'task')} had outcomes in every cell, which gives no spread.",
            "Run at least two tasks on both sides; raise `--tasks`.",
        )
    differences = np.einsum("c,sct->st", weights, scores)
    floor, ceiling = float(weights[weights < 0].sum()), float(weights[weights > 0].sum())
    estimate = float(differences.mean())
    width = crossed_half_width(differences, min(1.0, max(ceiling, -floor)), level)
    return Contrast(
        estimate=estimate,
        level=level,
        seeds=seeds,
        clusters=tasks,
        low=min(estimate, max(floor, estimate - float(width.total))),
        high=max(estimate, min(ceiling, estimate + float(width.total))),
        half_width_tasks=float(width.tasks),
        half_width_training=None if width.training is None else float(width.training),
        seed_deviation=None if seeds == 1 else float(differences.mean(axis=1).std(ddof=1)),
    )


def unpaired(
    first: Floats, last: Floats, *, reach: float | None = None, level: float = 0.95
) -> MeanDifference:
    """Mean of `last [tasks]` minus mean of `first [tasks]`, any unit, tasks
    independent.

    A t interval with unequal variances and the degrees of freedom of the
    smaller side, which errs on the wide side where Welch's approximation errs
    on the narrow one. As in `paired`, two pseudo-tasks `reach` away from the
    mean (1 for shares; by default the range of what was seen) enter the
    variance, so no interval has width zero. A task on both sides counts as two;
    its sides agree more than strangers, so the interval is too wide rather than
    too narrow. Raises `MissingInput` with fewer than two tasks on a side.
    """
    fewest = min(len(first), len(last))
    if fewest < 2:
        raise MissingInput(
            f"One of the two stretches has {plural(fewest, 'task')}, which gives no spread.",
            "Compare longer stretches, or train with more groups a step.",
        )
    seen = float(np.ptp(np.concatenate([first, last])))
    jump = reach if reach is not None else seen if seen > NO_RANGE else 1.0
    variance = sum(
        (side.var(ddof=1) + PSEUDO_TASKS * jump**2 / (len(side) - 1)) / len(side)
        for side in (first, last)
    )
    half = t_quantile(level, fewest - 1) * float(np.sqrt(variance))
    estimate = float(last.mean() - first.mean())
    furthest = reach if reach is not None else float("inf")
    return MeanDifference(
        first=float(first.mean()),
        last=float(last.mean()),
        estimate=estimate,
        level=level,
        low=min(estimate, max(estimate - half, -furthest)),
        high=max(estimate, min(estimate + half, furthest)),
        clusters=len(first) + len(last),
    )
