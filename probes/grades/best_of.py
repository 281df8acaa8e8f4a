"""Best of N: choose one of a task's runs by its score; how often is the chosen one a success?

1. For a task with `K >= N` graded runs the expectation over all subsets of size N is exact: the run of rank `r` (from
   the lowest) is the best of a subset with probability `C(r - 1, N - 1) / C(K, N)`; runs of equal scores share.
2. Beside it stand the mean (a run drawn at random) and the oracle (a subset succeeds if any of its runs does).
3. Intervals are paired and by task (`forensics.statistics.estimate_contrast`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from forensics.errors import MissingInput
from forensics.statistics import ContrastEstimate, estimate_contrast

CELLS = ("chosen", "mean", "oracle")


@dataclass(frozen=True, kw_only=True)
class BestOf:
    """Rates of success. `gain`: of choosing by the score over drawing at random. `closed`: the share of the way from
    random to the oracle that it goes (`None` where the two are equal)."""

    n: int
    chosen: ContrastEstimate
    mean: ContrastEstimate
    oracle: ContrastEstimate
    gain: ContrastEstimate

    @property
    def closed(self) -> float | None:
        room = self.oracle.estimate - self.mean.estimate
        return self.gain.estimate / room if room > 0 else None


def best_of(scores: np.ndarray, success: np.ndarray, tasks: Sequence[str], n: int) -> BestOf:
    """`scores [runs]` finite, `success [runs]` bool. Tasks with fewer than `n` runs take no part.

    Raises `MissingInput` where fewer than two tasks have `n` runs.
    """
    rows = [_expected(score, won, n) for score, won in by_task(scores, success, tasks).values() if len(score) >= n]
    if len(rows) < 2:
        raise MissingInput(f"{len(rows)} of the tasks {'has' if len(rows) == 1 else 'have'} {n} graded runs.",
                           f"Grade at least {n} runs of each of several tasks.")
    table = np.array(rows).T[None]
    parts = {name: estimate_contrast(table, np.eye(3)[i]) for i, name in enumerate(CELLS)}
    return BestOf(n=n, gain=estimate_contrast(table, np.array([1.0, -1.0, 0.0])), **parts)


def best_of_difference(
    first: np.ndarray, second: np.ndarray, success: np.ndarray, tasks: Sequence[str], n: int
) -> ContrastEstimate:
    """Success when choosing by `first` minus by `second`. Raises as `best_of` does."""
    one, other = by_task(first, success, tasks), by_task(second, success, tasks)
    rows = [(_expected(*one[task], n)[0], _expected(*other[task], n)[0]) for task in one if len(one[task][0]) >= n]
    if len(rows) < 2:
        raise MissingInput(f"Fewer than two tasks have {n} graded runs.", f"Grade {n} runs of several tasks.")
    return estimate_contrast(np.array(rows).T[None], np.array([1.0, -1.0]))


def common_size(tasks: Sequence[str]) -> int:
    """The number of runs that most tasks have, the larger one where two are as common; 0 without runs."""
    counts = np.unique(np.asarray(tasks), return_counts=True)[1] if len(tasks) else np.zeros(0, int)
    sizes, how_many = np.unique(counts, return_counts=True)
    return int(sizes[::-1][how_many[::-1].argmax()]) if len(sizes) else 0


def by_task(
    scores: np.ndarray, success: np.ndarray, tasks: Sequence[str]
) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    """Of each task, in the order of names, its scores and successes."""
    names, task = np.unique(np.asarray(tasks, dtype=str), return_inverse=True)
    order = np.argsort(task, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(task, minlength=len(names)))[:-1])
    return {str(name): (scores[part], success[part].astype(float)) for name, part in zip(names, parts, strict=True)}


def _expected(scores: np.ndarray, success: np.ndarray, n: int) -> tuple[float, float, float]:
    """Chosen, mean and oracle over all subsets of size `n`."""
    chances = _chance_of_best(len(scores), n)
    chosen = sum(chances[ranks].sum() * success[runs].mean() for runs, ranks in _equals(scores))
    lost = int((success == 0).sum())
    return float(min(chosen, 1.0)), float(success.mean()), 1 - comb(lost, n) / comb(len(scores), n)


def _equals(scores: np.ndarray) -> list[tuple[np.ndarray, slice]]:
    """Runs of each value, lowest first, with the ranks (from 0) that they share."""
    found, first = [], 0
    for value in np.unique(scores):
        at = np.flatnonzero(scores == value)
        found.append((at, slice(first, first + len(at))))
        first += len(at)
    return found


def _chance_of_best(runs: int, n: int) -> np.ndarray:
    """`[runs]`: that the run of each rank is the best of a random subset of size `n`."""
    return np.array([comb(rank, n - 1) / comb(runs, n) for rank in range(runs)])
