"""AUROC of scores that come from several folds, with intervals by a bootstrap
over tasks.

1. Only pairs within one fold are compared. Scores of different folds come from
   different probes, and a fold with many positives is held out of a training
   set with few: pooled, an empty score falls below 0.5 for that reason alone.
2. Pairs are booked by the two tasks that they join, so that one resampling of
   tasks is a product of small matrices.
3. Two scores on the same rows are compared on the same resampled tasks.
4. A perfect score has no spread to resample; its interval is the exact binomial
   one for as many trials as there are tasks with the rarer label.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forensics.errors import MissingInput
from forensics.statistics import clopper_pearson

Floats = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its interval at `level`."""

    estimate: float
    low: float
    high: float
    level: float


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """`won`, `all`: of each fold `[its tasks, its tasks]`, pairs by the tasks
    of their positive and negative row.

    `places`: the numbers of these tasks among all `tasks`. `fewest`: tasks that
    have the rarer label.
    """

    won: tuple[Floats, ...]
    all: tuple[Floats, ...]
    places: tuple[Floats, ...]
    tasks: int
    fewest: int

    def rates(self, weights: Floats) -> Floats:
        """AUROC `[draws]` where a task counts `weights [draws, tasks]` times;
        NaN where no pair is left.
        """
        won, total = np.zeros(len(weights)), np.zeros(len(weights))
        for beaten, both, place in zip(self.won, self.all, self.places, strict=True):
            own = weights[:, place]
            won += ((own @ beaten) * own).sum(1)
            total += ((own @ both) * own).sum(1)
        aurocs: Floats = np.divide(won, total, out=np.full(len(weights), np.nan), where=total > 0)
        return aurocs

    @property
    def rate(self) -> float:
        return float(self.rates(np.ones((1, self.tasks)))[0])


def pairs_of(scores: Floats, labels: Floats, tasks: Sequence[str], folds: Floats) -> Pairs:
    """`scores`, `labels`, `tasks`, `folds` `[rows]`. Raises `MissingInput`
    where no fold has rows of both labels.
    """
    names, task = np.unique(np.asarray(tasks), return_inverse=True)
    parts = [
        _fold(scores[folds == fold], labels[folds == fold], task[folds == fold])
        for fold in np.unique(folds)
    ]
    fewest = min(len(np.unique(task[labels])), len(np.unique(task[~labels])))
    if not any(both.any() for _, both, _ in parts):
        raise MissingInput(
            "No part of the held-out tasks has rows of both labels.",
            "Read more tasks, or ask a question whose answers differ.",
        )
    return Pairs(
        won=tuple(part[0] for part in parts),
        all=tuple(part[1] for part in parts),
        places=tuple(part[2] for part in parts),
        tasks=len(names),
        fewest=fewest,
    )


def _fold(scores: Floats, labels: Floats, task: Floats) -> tuple[Floats, Floats, Floats]:
    place, own = np.unique(task, return_inverse=True)
    own_of = np.eye(len(place))[own]
    high, low = scores[labels], scores[~labels]
    beaten = (high[:, None] > low) + 0.5 * (high[:, None] == low)
    positive, negative = own_of[labels], own_of[~labels]
    return positive.T @ beaten @ negative, np.outer(positive.sum(0), negative.sum(0)), place


def draws(tasks: int, number: int, generator: np.random.Generator) -> Floats:
    """How often each task is drawn `[number, tasks]`."""
    return generator.multinomial(tasks, np.full(tasks, 1 / tasks), number).astype(float)


def auroc_by_task(pairs: Pairs, weights: Floats, level: float) -> Estimate:
    """Percentile interval over `weights [draws, tasks]`."""
    rate = pairs.rate
    if rate in (0.0, 1.0):
        low, high = clopper_pearson(rate * pairs.fewest, pairs.fewest, level=level)
    else:
        low, high = _quantiles(pairs.rates(weights), level)
    return Estimate(estimate=rate, low=min(low, rate), high=max(high, rate), level=level)


def difference_by_task(first: Pairs, second: Pairs, weights: Floats, level: float) -> Estimate:
    """AUROC of `first` minus that of `second`, on the same rows, folds and draws."""
    gap = first.rate - second.rate
    low, high = _quantiles(first.rates(weights) - second.rates(weights), level)
    return Estimate(estimate=gap, low=min(low, gap), high=max(high, gap), level=level)


def _quantiles(values: Floats, level: float) -> tuple[float, float]:
    low, high = np.nanquantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def beaten_columns(scores: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """For many columns: pairs won, ties half, `[strengths, columns]`, and pairs
    `[columns]`.

    `scores [rows, strengths, columns]`, `labels [rows, columns]`.
    """
    from scipy.stats import rankdata

    wanted = labels[:, None, :]
    positives = labels.sum(0).astype(float)
    ranks = rankdata(scores, axis=0)
    won = (ranks * wanted).sum(0) - positives * (positives + 1) / 2
    return won, positives * (len(labels) - positives)
