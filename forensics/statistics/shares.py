"""Intervals for shares: exact for independent trials, effective-size for shares clustered by task."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forensics.errors import MissingInput
from forensics.statistics.paired import t_quantile


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share with its interval. `n` counts the observations, `clusters` the tasks that had any."""

    estimate: float
    low: float
    high: float
    level: float
    n: float
    clusters: int


def clopper_pearson(successes: float, trials: float, *, level: float = 0.95) -> tuple[float, float]:
    """Exact binomial interval (Clopper and Pearson, Biometrika 1934); fractional counts are allowed.

    Raises `ValueError` unless `0 <= successes <= trials` and `trials > 0`.
    """
    from scipy.special import betaincinv

    if not (trials > 0 and 0 <= successes <= trials):
        raise ValueError(f"{successes} of {trials} is not a count of successes; give 0 <= successes <= trials > 0")
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    return low, high


def clustered_share(
    numerators: NDArray[np.float64], denominators: NDArray[np.float64], *, level: float = 0.95
) -> Share:
    """`sum(numerators) / sum(denominators)` where tasks are the independent unit.

    `numerators [tasks]` counts part of `denominators [tasks]`, for example wins through a channel among wins.
    Method of Korn and Graubard (Survey Methodology 1998): the linearised variance over tasks gives an effective
    number of trials, shrunk for the few degrees of freedom, which goes into the exact binomial interval. Where
    every task agrees the effective number is the number of tasks. Raises `MissingInput` where the share has no
    denominator or a single task.
    """
    seen = denominators > 0
    part, whole = np.asarray(numerators, float)[seen], np.asarray(denominators, float)[seen]
    clusters = len(whole)
    if clusters < 2:
        raise MissingInput(
            f"The share rests on {clusters} task{'' if clusters == 1 else 's'}, which gives no interval.",
            "Run more tasks, or more samples of each.",
        )
    share = float(part.sum() / whole.sum())
    trials = _effective_trials(part, whole, share, level)
    low, high = clopper_pearson(min(share * trials, trials), trials, level=level)
    return Share(
        estimate=share, low=min(low, share), high=max(high, share), level=level, n=float(whole.sum()), clusters=clusters
    )


def _effective_trials(
    part: NDArray[np.float64], whole: NDArray[np.float64], share: float, level: float
) -> float:
    clusters, total = len(whole), float(whole.sum())
    residuals = part - share * whole
    variance = clusters / (clusters - 1) * float((residuals**2).sum()) / total**2
    if share in (0.0, 1.0) or variance < 1e-15:
        return float(clusters)
    shrink = (t_quantile(level, max(int(total) - 1, 1)) / t_quantile(level, clusters - 1)) ** 2
    return float(min(shrink * share * (1 - share) / variance, total))
