"""How well a score tells one group of rows from another: the area under the ROC
curve, with tasks as the unit.

1. AUROC: the chance that a row of the first group has the higher score, ties
   counting half (Mann and Whitney).
2. All latents of a dictionary at once from their active values alone: silent
   rows are one large tie at zero.
3. Interval: each row's part of the sum (DeLong's placement value) is added up
   by task; the variance over tasks gives an effective number of trials for the
   exact binomial interval, as in `forensics.statistics.intervals`. Where no task
   disagrees that number is the number of tasks, so a perfect score on few tasks
   claims little.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crosscoders.dictionaries.dictionary import Codes
from forensics.statistics.intervals import clopper_pearson, t_quantile

Floats = NDArray[np.float64]
MANY = 10**6  # degrees of freedom at which Student's t is the normal distribution


@dataclass(frozen=True, kw_only=True)
class Separation:
    """An AUROC with its interval; `None` for the ends with fewer than two
    tasks. `tasks` had a row of either group.
    """

    estimate: float
    low: float | None
    high: float | None
    tasks: int


def auroc(scores: np.ndarray, first: np.ndarray) -> Floats:
    """AUROC `[columns]` of `scores [rows, columns]` for rows where `first
    [rows]`; NaN where a group is empty.
    """
    from scipy.stats import rankdata

    positives, others = int(first.sum()), int((~first).sum())
    if not positives or not others:
        return np.full(scores.shape[1], np.nan)
    sums: Floats = rankdata(scores, axis=0)[first].sum(0)
    return (sums - positives * (positives + 1) / 2) / (positives * others)


def auroc_of_latents(codes: Codes, first: np.ndarray, latents: int) -> Floats:
    """AUROC `[latents]` of every latent's activations, which are above 0 where they are active."""
    rows, positives = len(first), int(first.sum())
    if not 0 < positives < rows:
        return np.full(latents, np.nan)
    row, latent, value = (part.cpu().numpy() for part in (codes.row, codes.latent, codes.value))
    order = np.lexsort((value, latent))
    latent, value, wins = latent[order], value[order], first[row[order]]
    silent = rows - np.bincount(latent, minlength=latents)
    ranks = silent[latent] + _midranks(latent, value)
    of_active = np.bincount(latent, weights=ranks * wins, minlength=latents)
    active = np.bincount(latent, weights=wins, minlength=latents)
    sums: Floats = of_active + (positives - active) * (silent + 1) / 2
    found: Floats = (sums - positives * (positives + 1) / 2) / (positives * (rows - positives))
    return found


def _midranks(latent: np.ndarray, value: np.ndarray) -> Floats:
    """Rank `[active]` from 1 of each value among those of its latent, ties
    sharing their mean; sorted by both.
    """
    other = np.r_[True, latent[1:] != latent[:-1]][: len(latent)]
    starts = np.flatnonzero(other)
    opens = np.flatnonzero(other | np.r_[True, value[1:] != value[:-1]][: len(latent)])
    lengths = np.diff(np.r_[opens, len(latent)])
    middle: Floats = np.repeat(opens + (lengths - 1) / 2, lengths)
    return middle - np.repeat(starts, np.diff(np.r_[starts, len(latent)])) + 1.0


def separation(
    scores: np.ndarray, first: np.ndarray, task: np.ndarray, level: float = 0.95
) -> Separation | None:
    """AUROC of `scores [rows]` with an interval over tasks `task [rows]`;
    `None` where a group is empty.
    """
    from scipy.stats import rankdata

    positives, others = int(first.sum()), int((~first).sum())
    if not positives or not others:
        return None
    ranks = rankdata(scores)
    below = np.empty(
        len(scores)
    )  # the share of the other group that a row lies on the right side of
    below[first] = (ranks[first] - rankdata(scores[first])) / others
    below[~first] = 1 - (ranks[~first] - rankdata(scores[~first])) / positives
    area = float(below[first].mean())
    names, place = np.unique(task, return_inverse=True)
    parts = np.where(first, (below - area) / positives, (below - area) / others)
    low, high = _ends(area, np.bincount(place, weights=parts).astype(float), level)
    return Separation(estimate=area, low=low, high=high, tasks=len(names))


def _ends(area: float, parts: Floats, level: float) -> tuple[float | None, float | None]:
    """`parts [tasks]` sum to zero."""
    tasks = len(parts)
    if tasks < 2:
        return None, None
    variance = tasks / (tasks - 1) * float((parts**2).sum())
    spread = area * (1 - area)
    shrink = (t_quantile(level, MANY) / t_quantile(level, tasks - 1)) ** 2
    trials = float(tasks) if variance < 1e-15 or spread <= 0 else shrink * spread / variance
    low, high = clopper_pearson(min(area * trials, trials), trials, level=level)
    return min(low, area), max(high, area)
