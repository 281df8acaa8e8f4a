"""Does a score tell successes from failures? AUROC with intervals by task,
differences of two, calibration.

1. AUROC: the probability that a success has a higher score than a failure, ties
   counted half.
2. Its spread by task (Obuchowski, Biometrics 1997, written as a linearisation):
   each run's part is the share of opposite runs that it beats; parts are summed
   within tasks, and only tasks are independent.
3. The interval: the spread gives an effective number of trials, which goes into
   the exact binomial interval, as for `forensics.statistics.intervals`. So it
   stays in [0, 1] and never has width zero.
4. Two scores on the same runs are compared by the difference of their tasks'
   parts, with a t interval and two pseudo-tasks in its spread, as in
   `forensics.statistics.intervals`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forensics.errors import MissingInput
from forensics.statistics import clopper_pearson, t_quantile
from forensics.statistics.intervals import PSEUDO_TASKS

Floats = np.ndarray
SUCCESS: Final = 0.5  # the outcome from which a run is a success


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """An AUROC, or a difference of two. `runs` and `tasks` behind it."""

    estimate: float
    low: float
    high: float
    level: float
    runs: int
    tasks: int


@dataclass(frozen=True, kw_only=True)
class _Parts:
    estimate: float
    by_task: Floats  # [tasks]; sums to 0
    fewest: int  # tasks that have a success, or a failure: the rarer ones


def auroc(scores: Floats, success: Floats, tasks: Sequence[str], *, level: float = 0.95) -> Ranked:
    """`scores [runs]` finite, `success [runs]` bool, `tasks [runs]`.

    Raises `MissingInput` without both successes and failures, or with one task.
    """
    parts = _parts(scores, success, tasks)
    estimate, spread, count = parts.estimate, _variance(parts.by_task), len(parts.by_task)
    if estimate in (0.0, 1.0) or spread < 1e-15:
        trials = float(parts.fewest)
    else:
        shrunk = (t_quantile(level, 10**6) / t_quantile(level, count - 1)) ** 2
        trials = min(shrunk * estimate * (1 - estimate) / spread, 1e6)
    low, high = clopper_pearson(estimate * trials, trials, level=level)
    return Ranked(
        estimate=estimate,
        low=min(low, estimate),
        high=max(high, estimate),
        level=level,
        runs=len(scores),
        tasks=len(parts.by_task),
    )


def auroc_difference(
    first: Floats, second: Floats, success: Floats, tasks: Sequence[str], *, level: float = 0.95
) -> Ranked:
    """AUROC of `first` minus that of `second` on the same runs. Raises as `auroc` does."""
    one, other = _parts(first, success, tasks), _parts(second, success, tasks)
    count = len(one.by_task)
    estimate = one.estimate - other.estimate
    spread = _variance(one.by_task - other.by_task) + PSEUDO_TASKS / (count * (count - 1))
    half = t_quantile(level, count - 1) * float(np.sqrt(spread))
    return Ranked(
        estimate=estimate,
        low=max(-1.0, estimate - half),
        high=min(1.0, estimate + half),
        level=level,
        runs=len(first),
        tasks=count,
    )


def _parts(scores: Floats, success: Floats, tasks: Sequence[str]) -> _Parts:
    success = np.asarray(success, bool)
    names, task = np.unique(np.asarray(tasks), return_inverse=True)
    won, lost = np.asarray(scores, float)[success], np.asarray(scores, float)[~success]
    if not len(won) or not len(lost):
        raise MissingInput(
            f"All {len(success)} runs {'succeeded' if len(won) else 'failed'}.",
            "Grade runs of which some succeed and some fail.",
        )
    if len(names) < 2:
        raise MissingInput(
            "All runs are of one task, which gives no spread.", "Grade runs of several tasks."
        )
    beaten = _share_below(won, lost)
    missed = 1 - _share_below(lost, won)
    estimate = float(beaten.mean())
    by_task = np.bincount(task[success], (beaten - estimate) / len(won), len(names))
    by_task += np.bincount(task[~success], (missed - estimate) / len(lost), len(names))
    fewest = min(len(np.unique(task[success])), len(np.unique(task[~success])))
    return _Parts(estimate=estimate, by_task=by_task, fewest=fewest)


def _share_below(values: Floats, others: Floats) -> Floats:
    """For each value the share of `others` below it, ties half."""
    ordered = np.sort(others)
    shares: Floats = (
        np.searchsorted(ordered, values) + np.searchsorted(ordered, values, "right")
    ) / (2 * len(ordered))
    return shares


def _variance(by_task: Floats) -> float:
    return float(len(by_task) / (len(by_task) - 1) * (by_task**2).sum())
