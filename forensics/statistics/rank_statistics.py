"""Does a score tell positive rows from negative ones? The area under the ROC
curve, with tasks as the unit.

1. AUROC: the probability that a positive row has a higher score than a negative
   one, ties counted half (Mann and Whitney).
2. With folds only pairs of rows within one fold are compared. Scores of different
   folds come from different probes, and a fold with many positives is held out
   of a training set with few: pooled, an empty score falls below 0.5 for that
   reason alone.
3. Spread by task (Obuchowski, Biometrics 1997, written as a linearisation): each
   row's part is the share of opposite rows that it beats (DeLong's placement);
   parts are summed within tasks, and only tasks are independent.
4. Interval: the spread gives an effective number of trials for the exact binomial
   interval, as for `share`, shrunk for the degrees of freedom of the tasks with
   the rarer label: where 3 of 60 tasks have a success, 60 would cover at 72 %
   where these cover at 98 %. So it stays in [0, 1] and never has width zero; a
   perfect score has as many trials as those tasks.
5. Two scores on the same rows are compared by the difference of their tasks'
   parts, with a t interval and two pseudo-tasks, as for `mean`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forensics.errors import MissingInput
from forensics.statistics.intervals import (
    PSEUDO_TASKS,
    Estimate,
    around,
    effective_share,
    t_quantile,
)

Floats = NDArray[np.float64]
MOST_TRIALS = 10**6  # and as degrees of freedom: where Student's t is the normal distribution


class _Area(NamedTuple):
    estimate: float
    by_task: Floats  # [tasks]; sums to 0
    rarer: int  # tasks that have a row of the rarer label
    rows: int


def auroc(
    scores: ArrayLike,
    positive: ArrayLike,
    tasks: ArrayLike,
    *,
    folds: ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    """`scores [rows]` finite, `positive [rows]` bool, `tasks [rows]` and `folds
    [rows]` names or numbers.

    `n` counts the rows, `clusters` their tasks. Raises `MissingInput` where no
    fold has rows of both labels, or where all are of one task.
    """
    area = _area(scores, positive, tasks, folds)
    estimate, spread, count = area.estimate, _variance(area.by_task), len(area.by_task)
    if estimate in (0.0, 1.0) or spread < 1e-15:
        trials = float(area.rarer)
    else:
        shrunk = (t_quantile(level, MOST_TRIALS) / t_quantile(level, max(area.rarer - 1, 1))) ** 2
        trials = min(shrunk * estimate * (1 - estimate) / spread, MOST_TRIALS)
    return effective_share(estimate, trials, level=level, n=area.rows, clusters=count)


def auroc_difference(
    first: ArrayLike,
    second: ArrayLike,
    positive: ArrayLike,
    tasks: ArrayLike,
    *,
    folds: ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    """AUROC of `first` minus that of `second` on the same rows. Raises as `auroc` does."""
    one, other = (_area(scores, positive, tasks, folds) for scores in (first, second))
    count = len(one.by_task)
    estimate = one.estimate - other.estimate
    spread = _variance(one.by_task - other.by_task) + PSEUDO_TASKS / (count * (count - 1))
    half = t_quantile(level, count - 1) * float(np.sqrt(spread))
    return around(estimate, half, (-1.0, 1.0), level=level, n=one.rows, clusters=count)


def _area(
    scores: ArrayLike, positive: ArrayLike, tasks: ArrayLike, folds: ArrayLike | None
) -> _Area:
    values, won = np.asarray(scores, float), np.asarray(positive, bool)
    names, task = np.unique(np.asarray(tasks), return_inverse=True)
    fold = np.zeros(len(values)) if folds is None else np.asarray(folds)
    sides = [(won & (fold == one), ~won & (fold == one)) for one in np.unique(fold)]
    pairs = [int(high.sum()) * int(low.sum()) for high, low in sides]
    if not sum(pairs):
        raise (
            MissingInput(
                f"All {len(won)} runs {'succeeded' if won.any() else 'failed'}.",
                "Grade runs of which some succeed and some fail.",
            )
            if folds is None
            else MissingInput(
                "No part of the held-out tasks has rows of both labels.",
                "Read more tasks, or ask a question whose answers differ.",
            )
        )
    if len(names) < 2:
        raise MissingInput(
            "All runs are of one task, which gives no spread.", "Grade runs of several tasks."
        )
    right, weight, own = np.zeros(len(values)), np.zeros(len(values)), np.ones(len(values))
    rates: list[float] = []
    shares: list[float] = []
    for (high, low), count in zip(sides, pairs, strict=True):
        if count:
            right[high] = _share_below(values[high], values[low])
            right[low] = 1 - _share_below(values[low], values[high])
            weight[high | low] = count / sum(pairs)
            own[high], own[low] = high.sum(), low.sum()
            shares.append(count / sum(pairs))
            rates.append(float(right[high].mean()))
    # so written that folds of one rate have that rate to the last digit
    estimate = rates[0] + float(np.dot(shares, np.array(rates) - rates[0]))
    parts = weight * (right - estimate) / own
    by_task = sum(np.bincount(task[side], parts[side], len(names)) for side in (won, ~won))
    rarer = min(len(np.unique(task[side & (weight > 0)])) for side in (won, ~won))
    return _Area(estimate, np.asarray(by_task), rarer, len(values))


def _share_below(values: Floats, others: Floats) -> Floats:
    """For each value the share of `others` below it, ties half."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, values) + np.searchsorted(ordered, values, "right")
    return np.asarray(below / (2 * len(ordered)))


def _variance(by_task: Floats) -> float:
    return float(len(by_task) / (len(by_task) - 1) * (by_task**2).sum())


def auroc_columns(
    scores: ArrayLike, positive: ArrayLike, *, folds: ArrayLike | None = None
) -> Floats:
    """AUROC of many columns at once, without intervals: `[...]` of `scores [rows,
    ...]`; NaN where no fold has rows of both labels.

    `positive`: `[rows]`, or of as many axes as the scores, against which it is
    broadcast.
    """
    from scipy.stats import rankdata

    values, labels = np.asarray(scores), np.asarray(positive, float)
    if labels.ndim == 1:
        labels = labels.reshape(-1, *[1] * (values.ndim - 1))
    fold = np.zeros(len(values)) if folds is None else np.asarray(folds)
    won, pairs = np.zeros(values.shape[1:]), np.zeros(values.shape[1:])
    for one in np.unique(fold):
        here = labels[fold == one]
        positives = here.sum(0)
        ranks = rankdata(values[fold == one], axis=0)
        won += (ranks * here).sum(0) - positives * (positives + 1) / 2
        pairs += positives * (len(here) - positives)
    return np.asarray(np.divide(won, pairs, out=np.full(won.shape, np.nan), where=pairs > 0))


def auroc_sparse(
    row: NDArray[np.int64],
    column: NDArray[np.int64],
    value: Floats,
    positive: NDArray[np.bool_],
    columns: int,
) -> Floats:
    """AUROC `[columns]` from the values above 0 alone: `value [entries]` at
    `row`, `column [entries]`. All other rows of a column are one large tie at 0.

    NaN without rows `positive [rows]` of both labels.
    """
    rows, positives = len(positive), int(positive.sum())
    if not 0 < positives < rows:
        return np.full(columns, np.nan)
    order = np.lexsort((value, column))
    column, value, wins = column[order], value[order], positive[row[order]]
    silent = rows - np.bincount(column, minlength=columns)
    ranks = silent[column] + midranks(column, value)
    active = np.bincount(column, weights=wins, minlength=columns)
    of_active = np.bincount(column, weights=ranks * wins, minlength=columns)
    sums = of_active + (positives - active) * (silent + 1) / 2
    return np.asarray((sums - positives * (positives + 1) / 2) / (positives * (rows - positives)))


def midranks(column: NDArray[np.int64], value: Floats) -> Floats:
    """Rank `[entries]` from 1 of each value among those of its column, ties
    sharing their mean; sorted by both.
    """
    other = np.r_[True, column[1:] != column[:-1]][: len(column)]
    starts = np.flatnonzero(other)
    opens = np.flatnonzero(other | np.r_[True, value[1:] != value[:-1]][: len(column)])
    lengths = np.diff(np.r_[opens, len(column)])
    middle = np.repeat(opens + (lengths - 1) / 2, lengths)
    return np.asarray(
        middle - np.repeat(starts, np.diff(np.r_[starts, len(column)])) + 1.0, dtype=float
    )
