"""A correlation over steps, and the difference of two, with intervals over
tasks.

Tasks are left out one at a time (a jackknife on Fisher's scale, t quantile),
since steps of one task belong together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from forensics.errors import MissingInput
from forensics.statistics import t_quantile

MOST = 1 - 1e-9  # Fisher's scale ends at 1


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """Pearson's, or a difference of two. Over `steps` of `tasks`."""

    estimate: float
    low: float
    high: float
    steps: int
    tasks: int


def correlation(first: np.ndarray, second: np.ndarray, tasks: Sequence[str]) -> Correlation:
    """`first`, `second`, `tasks [steps]`. Raises `MissingInput` without spread,
    or with fewer than three tasks.
    """
    found, half = _jackknifed(lambda keep: _fisher(first[keep], second[keep]), tasks)
    return Correlation(
        estimate=float(np.tanh(found)),
        low=float(np.tanh(found - half)),
        high=float(np.tanh(found + half)),
        steps=len(first),
        tasks=len(set(tasks)),
    )


def correlation_difference(
    first: np.ndarray, other: np.ndarray, truth: np.ndarray, tasks: Sequence[str]
) -> Correlation:
    """Correlation of `first` with `truth` minus that of `other`. Raises as `correlation` does."""

    def apart(keep: np.ndarray) -> float:
        return float(
            np.tanh(_fisher(first[keep], truth[keep])) - np.tanh(_fisher(other[keep], truth[keep]))
        )

    found, half = _jackknifed(apart, tasks)
    return Correlation(
        estimate=found, low=found - half, high=found + half, steps=len(first), tasks=len(set(tasks))
    )


def _fisher(first: np.ndarray, second: np.ndarray) -> float:
    if first.std() == 0 or second.std() == 0:
        raise MissingInput(
            "All steps are alike, so nothing can go with anything.", "Grade other runs."
        )
    return float(np.arctanh(np.clip(np.corrcoef(first, second)[0, 1], -MOST, MOST)))


def _jackknifed(
    measure: Callable[[np.ndarray], float], tasks: Sequence[str]
) -> tuple[float, float]:
    """The measure on everything, and half the width of its interval. `measure`
    takes which steps are kept.
    """
    names, task = np.unique(np.asarray(tasks, dtype=str), return_inverse=True)
    count = len(names)
    if count < 3:
        raise MissingInput(
            f"The steps are of {count} tasks, which gives no interval.", "Grade runs of more tasks."
        )
    whole = measure(np.ones(len(task), bool))
    without = np.array([measure(task != number) for number in range(count)])
    spread = (count - 1) / count * ((without - without.mean()) ** 2).sum()
    return whole, t_quantile(0.95, count - 1) * float(np.sqrt(spread))
