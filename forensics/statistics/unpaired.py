"""The difference of two means whose tasks are not the same, such as those of an early and a late stretch of a run."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forensics.errors import MissingInput
from forensics.statistics.paired import PSEUDO_TASKS, t_quantile

Floats = NDArray[np.float64]
NO_RANGE = 1e-100  # its square can still be told from 0


@dataclass(frozen=True, kw_only=True)
class MeanDifference:
    """`last - first` with its interval. `clusters`: the tasks of both sides together."""

    first: float
    last: float
    estimate: float
    low: float
    high: float
    level: float
    clusters: int


def difference_of_means(
    first: Floats, last: Floats, *, reach: float | None = None, level: float = 0.95
) -> MeanDifference:
    """Mean of `last [tasks]` minus mean of `first [tasks]`, any unit, tasks independent.

    A t interval with unequal variances and the degrees of freedom of the smaller side, which errs on the wide side
    where Welch's approximation errs on the narrow one. As in `paired`, two pseudo-tasks `reach` away from the mean
    (1 for shares; by default the range of what was seen) enter the variance, so no interval has width zero. A task
    on both sides counts as two; its sides agree more than strangers, so the interval is too wide rather than too
    narrow. Raises `MissingInput` with fewer than two tasks on a side.
    """
    fewest = min(len(first), len(last))
    if fewest < 2:
        raise MissingInput(
            f"One of the two stretches has {fewest} task{'' if fewest == 1 else 's'}, which gives no spread.",
            "Compare longer stretches, or train with more groups a step.",
        )
    seen = float(np.ptp(np.concatenate([first, last])))
    jump = reach if reach is not None else seen if seen > NO_RANGE else 1.0
    variance = sum(
        (side.var(ddof=1) + PSEUDO_TASKS * jump**2 / (len(side) - 1)) / len(side) for side in (first, last)
    )
    half = t_quantile(level, fewest - 1) * float(np.sqrt(variance))
    estimate = float(last.mean() - first.mean())
    furthest = reach if reach is not None else float("inf")
    return MeanDifference(
        first=float(first.mean()), last=float(last.mean()), estimate=estimate, level=level,
        low=min(estimate, max(estimate - half, -furthest)), high=max(estimate, min(estimate + half, furthest)),
        clusters=len(first) + len(last),
    )
