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
from forensics.statistics.permutation import e_benjamini_hochberg


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


@pytest.mark.parametrize("bound", [0.0, 0.1])
def test_the_projection_is_the_nearest_null(bound: float) -> None:
    """Growth-rate optimal for Bernoulli draws: no other point of the null's
    edge is nearer in divergence.
    """

    def divergence(theta: np.ndarray, mean: np.ndarray) -> np.ndarray:
        return theta * np.log(theta / mean) + (1 - theta) * np.log((1 - theta) / (1 - mean))

    x, y = np.array([0.9, 0.7, 0.55]), np.array([0.2, 0.5, 0.3])
    b, _ = nearest_null(x, y, bound)
    best = divergence(x, b + bound) + divergence(y, b)
    for other in np.linspace(0.01, 0.99 - bound, 197):
        assert (
            best
            <= divergence(x, np.full(3, other + bound)) + divergence(y, np.full(3, other)) + 1e-9
        ).all()


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


def test_the_mean_of_the_e_value_is_at_most_one_and_not_wasted_under_the_alternative() -> None:
    generator = np.random.default_rng(2)
    values = []
    for _ in range(2000):
        x, y = generator.random(8) < 0.6, generator.random(8) < 0.5
        values.append(np.exp(log_e_values(x, y, [0.1], flat_weights())[0]))
    assert np.mean(values) <= 1 + 4 * np.std(values) / np.sqrt(2000)
    x, y = generator.random(60) < 0.8, generator.random(60) < 0.4
    assert log_e_values(x, y, [0.1], flat_weights())[0] > np.log(20)


def test_the_order_of_outcomes_makes_no_difference_and_arms_must_match() -> None:
    generator = np.random.default_rng(3)
    x, y = generator.random(30) < 0.7, generator.random(30) < 0.4
    one = log_e_values(x, y, [0.05], flat_weights())
    assert log_e_values(generator.permutation(x), y, [0.05], flat_weights()) == pytest.approx(one)
    with pytest.raises(ValueError, match="pairs"):
        log_e_values(x, y[:-1], [0.05], flat_weights())
    with pytest.raises(ValueError, match="missing"):
        log_e_values([np.nan], [0.0], [0.05], flat_weights())


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


def test_an_interval_narrows_and_two_equal_arms_contain_zero() -> None:
    x = np.tile([1.0, 0.0], 200)
    few = difference_interval(x[:20], x[:20], 0.95, flat_weights())
    many = difference_interval(x, x, 0.95, flat_weights())
    assert few[0] < many[0] < 0 < many[1] < few[1] and many[1] - many[0] < 0.35


def test_e_bh_rejects_by_the_rule() -> None:
    """Of 4 at rate 0.1: the k-th largest must reach 4 / (0.1 k): 40, 20, 13.3, 10."""
    assert (e_benjamini_hochberg([30, 25, 12, 0]) <= 0.1).tolist() == [True, True, False, False]
    assert (e_benjamini_hochberg([39, 19, 12, 9]) <= 0.1).tolist() == [False] * 4
