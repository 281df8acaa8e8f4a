"""E-values for two streams: is one mean larger than the other by more than a
bound?

1. Draws come in pairs, one from each arm: `x` from the first (other tokens),
   `y` from the second (this token). The null is convex: `mean(x) - mean(y) <=
   bound`.
2. Against one alternative (theta_x, theta_y) the growth-rate optimal e-value of
   a pair of Bernoulli draws is the likelihood ratio to the null's nearest point
   in Kullback-Leibler divergence, the reverse information projection (Turner,
   Ly and Grünwald, 2106.02693; Turner and Grünwald, 2203.09785). That point
   lies on the null's edge, at (b + bound, b), and there the ratio is a product
   of two bets, `(1 + tilt (x - b - bound)) (1 - tilt (y - b))`.
3. In that form it is linear in each draw. Its expectation under the null is at
   most 1 for *any* outcomes in [0, 1] with those means, so the same number
   serves fractional scores (where it is a bet, no longer the optimal one).
4. The alternative is not known: a mixture over a grid of them, with weights
   fixed before the first pair (here the posterior of the search), is again an
   e-process. It may be looked at after every pair and stopped at will.
5. Inverting the test over all bounds gives an interval for the difference that
   holds at any stopping time.

Departure: mixtures with weights from the search instead of the running estimate
of the papers, which must first learn the alternative from the very draws that
should testify.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
LEVELS = 20  # means on each side of the grid of alternatives
HALVINGS = 50
EDGE = 1e-9


def grid_means(levels: int = LEVELS) -> Floats:
    """The means that alternatives are made of `[levels]`, evenly spaced inside (0, 1)."""
    return np.asarray((np.arange(levels) + 0.5) / levels)


def flat_weights(levels: int = LEVELS) -> Floats:
    """Equal weight for every alternative `[first mean, second mean]`."""
    return np.full((levels, levels), 1 / levels**2)


def nearest_null(first: ArrayLike, second: ArrayLike, bound: ArrayLike) -> tuple[Floats, Floats]:
    """The null's nearest point to each alternative: the second arm's mean `b`
    there, and the `tilt` of the bets.

    The arrays broadcast. `bound` lies in (-1, 1). An alternative inside the
    null gets a tilt of 0, an e-value of 1.
    """
    x, y, gap = np.broadcast_arrays(
        np.asarray(first, float), np.asarray(second, float), np.asarray(bound, float)
    )
    low, high = np.maximum(0.0, -gap) + EDGE, np.minimum(1.0, 1 - gap) - EDGE
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        rising = _slope(x, middle + gap) + _slope(y, middle) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    b = (low + high) / 2
    return b, np.where(x - y > gap, np.maximum(_slope(x, b + gap), 0.0), 0.0)


def _slope(theta: Floats, mean: Floats) -> Floats:
    """How fast the log-likelihood of `theta`'s draws rises with the mean."""
    return np.asarray((theta - mean) / (mean * (1 - mean)))


def log_e_values(first: ArrayLike, second: ArrayLike, bounds: ArrayLike, weights: Floats) -> Floats:
    """The logarithm of the e-value of all pairs for each bound `[K]`.

    `first`, `second`: as many outcomes of each arm `[pairs]`, in [0, 1], none
    missing; how they are paired makes no difference. `weights` `[levels,
    levels]`: of the alternatives, by the means of the first and the second arm.
    Alternatives inside a null take no part in its mixture; where none is left
    the e-value is 1.
    """
    x, y = _checked(first), _checked(second)
    if len(x) != len(y):
        raise ValueError(f"the arms have {len(x)} and {len(y)} outcomes; an e-value is of pairs")
    gaps = np.atleast_1d(np.asarray(bounds, float))
    b, tilt = _projected(len(weights), tuple(gaps.tolist()))
    growth = _arm(x, tilt, b + gaps[:, None]) + _arm(y, -tilt, b)
    mixed = np.where(tilt > 0, weights.reshape(-1), 0.0)
    return np.where(mixed.sum(1) > 0, log_mean(growth, mixed), 0.0)


@lru_cache(maxsize=4096)
def _projected(levels: int, bounds: tuple[float, ...]) -> tuple[Floats, Floats]:
    grid = grid_means(levels)
    return nearest_null(np.repeat(grid, levels), np.tile(grid, levels), np.asarray(bounds)[:, None])


def _arm(outcomes: Floats, tilt: Floats, mean: Floats) -> Floats:
    """The logarithm of what betting on one arm has won `[K, J]`; an e-value
    does not depend on the order.
    """
    values, counts = np.unique(outcomes, return_counts=True)
    with np.errstate(divide="ignore"):
        terms = (
            n * np.log1p(np.maximum(tilt * (value - mean), -1.0))
            for value, n in zip(values, counts, strict=True)
        )
        return np.asarray(sum(terms, np.zeros_like(mean)))


def log_mean(logs: Floats, weights: Floats) -> Floats:
    """`log(sum(weights exp(logs)) / sum(weights))` along the last axis."""
    taken = np.where(weights > 0, logs, -np.inf)
    top = taken.max(1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            top[:, 0] + np.log((weights * np.exp(taken - top)).sum(1) / weights.sum(1))
        )


def _checked(outcomes: ArrayLike) -> Floats:
    values = np.asarray(outcomes, float)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(
            "an outcome is missing or lies outside [0, 1]; leave out what is missing, scale other"
            " scores"
        )
    return values


def difference_interval(
    first: ArrayLike,
    second: ArrayLike,
    level: float,
    weights: Floats,
    step: float = 0.02,
) -> tuple[float, float]:
    """An interval for mean(first) - mean(second) that covers at `level` at any
    stopping time.

    Both one-sided tests at half the error each, inverted over bounds `step`
    apart and rounded outwards.
    """
    bounds = np.linspace(-1, 1, round(2 / step) + 1)[1:-1]
    limit = np.log(2 / (1 - level))
    below = log_e_values(first, second, bounds, weights) < limit
    above = log_e_values(second, first, -bounds, weights.T) < limit
    low = bounds[below][0] - step if below.any() else bounds[-1]
    high = bounds[above][-1] + step if above.any() else bounds[0]
    return float(max(low, -1.0)), float(min(high, 1.0))
