"""E-values: never above one on average under the null, however they are
stopped, and strong when there is something.
"""

import numpy as np
import pytest
from scipy.stats import binom

from forensics.statistics.evalues import (
    difference_interval,
    flat_weights,
    grid_means,
    log_e_values,
    nearest_null,
)


@pytest.mark.parametrize(
    "bound", [-0.5, 0.07, 0.8, *(pytest.param(b, marks=pytest.mark.slow) for b in (0.0, 0.3))]
)
def test_every_bet_is_fair_at_best_under_every_null(bound: float) -> None:
    """Exact for a pair: both factors are linear, so their expectation needs
    only the means, on a fine grid of nulls.
    """
    first, second = (
        each.reshape(-1) for each in np.meshgrid(grid_means(), grid_means(), indexing="ij")
    )
    b, tilt = nearest_null(first, second, bound)
    for mean in np.linspace(0, 1, 41):
        for other in np.linspace(max(0, mean - bound), 1, 41) if mean - bound <= 1 else ():
            assert ((1 + tilt * (mean - b - bound)) * (1 - tilt * (other - b))).max() <= 1 + 1e-6
    for x in (0, 1):
        assert (1 + tilt * (x - b - bound)).min() >= -1e-6 and (1 - tilt * (x - b)).min() >= -1e-6


def largest(first: np.ndarray, second: np.ndarray, bound: float) -> np.ndarray:
    """The largest e-value along each run of pairs `[runs, pairs]`, looked at after every one."""
    best = np.zeros(len(first))
    for row, (x, y) in enumerate(zip(first, second, strict=True)):
        best[row] = max(
            log_e_values(x[:n], y[:n], [bound], flat_weights())[0] for n in range(2, len(x), 3)
        )
    return np.exp(best)


@pytest.mark.parametrize("fractional", [pytest.param(False, marks=pytest.mark.slow), True])
def test_looking_after_every_pair_does_not_break_the_bound(fractional: bool) -> None:
    """At the null's edge: P(sup e >= 5) <= 1/5, judged with an exact binomial
    bound at 1 in 1000.
    """
    generator, runs = np.random.default_rng(1), 250
    bound, mean = 0.1, 0.45
    shape = (runs, 50, 2 if fractional else 1)
    first = (generator.random(shape) < mean + bound).mean(2)
    second = (generator.random(shape) < mean).mean(2)
    assert (largest(first, second, bound) >= 5).sum() <= binom.ppf(0.999, runs, 1 / 5)


@pytest.mark.parametrize(
    ("first", "second"),
    [(0.9, 0.3), *(pytest.param(*p, marks=pytest.mark.slow) for p in ((0.5, 0.5), (0.05, 0.02)))],
)
def test_intervals_cover_when_they_are_stopped_at_the_worst_moment(
    first: float, second: float
) -> None:
    """Stopped as soon as the interval leaves the truth out, if ever: at most 5 % of runs may."""
    generator, runs, bad = np.random.default_rng(4), 150, 0
    for _ in range(runs):
        x, y = generator.random(60) < first, generator.random(60) < second
        for n in (5, 10, 20, 30, 45, 60):
            low, high = difference_interval(x[:n], y[:n], 0.95, flat_weights())
            if not low <= first - second <= high:
                bad += 1
                break
    assert bad <= binom.ppf(0.999, runs, 0.05)


def test_an_interval_is_what_neither_one_sided_test_rejects_at_half_the_error() -> None:
    x, y = np.repeat([1.0, 0.0], [32, 8]), np.repeat([1.0, 0.0], [14, 26])
    low, high = difference_interval(x, y, 0.9, flat_weights(), step=0.01)
    assert log_e_values(x, y, [low], flat_weights())[0] >= np.log(20)
    assert log_e_values(x, y, [low + 0.02], flat_weights())[0] < np.log(20)
    assert log_e_values(y, x, [-high], flat_weights())[0] >= np.log(20)
    assert log_e_values(y, x, [-high + 0.02], flat_weights())[0] < np.log(20)
