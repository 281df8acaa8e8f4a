"""Estimates against closed forms, published values and identities."""

from math import log2

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from forensics.errors import MissingInput
from forensics.statistics import (
    benjamini_hochberg,
    binomial,
    clopper_pearson,
    mean,
    paired,
    permutation_test,
    ratio,
    share,
    sign_flip_test,
    t_quantile,
)
from forensics.statistics.intervals import difference_of_shares, largest
from forensics.statistics.permutation import e_benjamini_hochberg, jensen_shannon
from forensics.statistics.shapley import shapley_weights

AFTER_MINUS_BEFORE = np.array([1.0, -1.0])
UNIT = st.floats(0, 1, width=32)


def gains(differences: np.ndarray) -> np.ndarray:
    """Scores `[seeds, cells, tasks]` of (after, before) whose difference is as given."""
    before = np.full(differences.shape, 0.25)
    return np.stack([before + differences, before], axis=1)


# --- contrasts ------------------------------------------------------------------------


def test_one_seed_is_a_t_interval_over_tasks() -> None:
    # 100 tasks, half gain 0, half gain .5: mean .25, sum of squares 100 * .25^2 = 6.25.
    # Two pseudo-tasks at distance 1 add 2. Standard error sqrt(8.25 / 99 / 100) =
    # .0288675; t[99] = 1.984217; half-width .057279.
    found = paired(gains(np.array([[0.0, 0.5] * 50])), AFTER_MINUS_BEFORE)
    assert found.estimate == pytest.approx(0.25)
    assert found.high - found.estimate == pytest.approx(0.057279, abs=2e-6)
    assert found.estimate - found.low == pytest.approx(0.057279, abs=2e-6)
    assert (found.seeds, found.clusters, found.half_width_training, found.seed_deviation) == (
        1,
        100,
        None,
        None,
    )


def test_seeds_add_their_own_part_with_few_degrees_of_freedom() -> None:
    # The tasks above plus seed effects -.1, 0, .1 and no interaction. Training part:
    # t[2] = 4.302653 times .1 / sqrt(3) = .248414. Task part as before. Together
    # sqrt(.248414^2 + .057279^2) = .254932.
    tasks, effects = np.array([0.0, 0.5] * 50), np.array([-0.1, 0.0, 0.1])
    found = paired(gains(tasks + effects[:, None]), AFTER_MINUS_BEFORE)
    assert found.seed_deviation == pytest.approx(0.1)
    assert found.half_width_training == pytest.approx(0.248414, abs=1e-6)
    assert found.high - found.estimate == pytest.approx(0.254932, abs=2e-6)


@pytest.mark.parametrize("value", [0.0, 0.75, -0.25])
@pytest.mark.parametrize("seeds", [1, 3])
def test_no_interval_has_width_zero(value: float, seeds: int) -> None:
    found = paired(gains(np.full((seeds, 50), value)), AFTER_MINUS_BEFORE)
    assert found.low < value or found.low == -1
    assert found.high > value
    # Never seen to differ on 50 tasks: the share of tasks that do may be up to .071
    # (exact, 97.5 %).
    assert found.high - found.low > 0.05


@given(
    arrays(float, (3, 4, 6), elements=UNIT), st.permutations(range(6)), st.permutations(range(3))
)
@settings(max_examples=60, deadline=None)
def test_the_order_of_tasks_and_seeds_does_not_matter(
    scores: np.ndarray, tasks: list[int], seeds: list[int]
) -> None:
    weights = np.array([1.0, -1.0, -1.0, 1.0])
    found, shuffled = (paired(scores, weights), paired(scores[seeds][:, :, tasks], weights))
    assert (shuffled.estimate, shuffled.low, shuffled.high) == pytest.approx(
        (found.estimate, found.low, found.high), abs=1e-9
    )


def test_t_quantiles_from_the_tables() -> None:
    assert [round(t_quantile(0.95, dof), 3) for dof in (1, 2, 10, 120)] == [
        12.706,
        4.303,
        2.228,
        1.980,
    ]


# --- shares ---------------------------------------------------------------------------


def test_exact_binomial_closed_forms() -> None:
    # None of 20: the upper end solves (1 - p)^20 = .025. Published: 5 of 10 gives .187 to .813.
    assert clopper_pearson(0, 20) == (0.0, pytest.approx(1 - 0.025 ** (1 / 20)))
    assert clopper_pearson(20, 20) == (pytest.approx(0.025 ** (1 / 20)), 1.0)
    assert clopper_pearson(5, 10) == (
        pytest.approx(0.1871, abs=1e-4),
        pytest.approx(0.8129, abs=1e-4),
    )
    for wrong in ((3, 2), (-1, 5), (0, 0)):
        with pytest.raises(ValueError, match="is not a count"):
            clopper_pearson(*wrong)


def test_a_share_on_which_all_tasks_agree_counts_tasks_not_runs() -> None:
    whole = np.full(20, 4.0)
    every = share(whole, whole)
    assert (every.estimate, every.high, every.clusters, every.n) == (1.0, 1.0, 20, 80)
    assert every.low == pytest.approx(0.025 ** (1 / 20))  # 20 of 20, not 80 of 80


# --- permutation and divergence -------------------------------------------------------


def test_sign_flips_are_exact_for_few_tasks() -> None:
    generator = np.random.default_rng(0)
    assert sign_flip_test(np.ones(5), generator) == 2 / 2**5
    # 1, 1, 1, -1: |sum| is at least 2 unless two signs agree and two do not: 10 of 16 patterns.
    assert sign_flip_test(np.array([1.0, 1, 1, -1]), generator) == 10 / 16
    with pytest.raises(MissingInput):
        sign_flip_test(np.array([]), generator)


@pytest.mark.parametrize("paired", [True, False])
def test_permutation_by_task(paired: bool) -> None:
    generator = np.random.default_rng(4)
    first, second = generator.normal(0, 1, (40, 3)), generator.normal(0, 1, (40, 3))

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        return float(abs(a.mean() - b.mean()))

    assert permutation_test(first, second + 1, distance, generator, paired=paired) == 1 / 1000
    null = [
        permutation_test(
            *generator.normal(0, 1, (2, 20)), distance, generator, repeats=99, paired=paired
        )
        for _ in range(300)
    ]
    assert np.mean(np.array(null) <= 0.1) < 0.16
    assert np.mean(np.array(null) <= 0.5) > 0.4


def test_jensen_shannon_ends_and_a_value_between() -> None:
    assert jensen_shannon([3, 1], [6, 2]) == 0
    assert jensen_shannon([5, 0], [0, 2]) == 1
    # (1, 0) against (.5, .5): middle (.75, .25).
    expected = 0.5 * log2(1 / 0.75) + 0.5 * (0.5 * log2(0.5 / 0.75) + 0.5 * log2(0.5 / 0.25))
    assert jensen_shannon([4, 0], [1, 1]) == pytest.approx(expected)
    assert jensen_shannon([0, 0], [1, 1]) is None


# --- many tests -----------------------------------------------------------------------


def test_benjamini_hochberg_by_hand() -> None:
    # Ranked .005, .1, .2 of three: .015, .15, .2; equally spaced values all end at the largest.
    assert benjamini_hochberg([0.2, 0.005, 0.1]) == pytest.approx([0.2, 0.015, 0.15])
    assert benjamini_hochberg([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05] * 5)
    # .04 alone would be .08, but .041 is found at .041, so .04 is too.
    assert benjamini_hochberg([0.04, 0.041]) == pytest.approx([0.041, 0.041])
    assert benjamini_hochberg([]).shape == (0,)
    with pytest.raises(ValueError, match="outside"):
        benjamini_hochberg([0.1, float("nan")])


def test_e_benjamini_hochberg_by_hand() -> None:
    # e = 20, 40, 1: ranked 3/40, 3/(2*20), 3/3.
    assert e_benjamini_hochberg([20, 40, 1]) == pytest.approx([0.075, 0.075, 1])
    assert e_benjamini_hochberg([10, 9]) == pytest.approx(
        [1 / 9, 1 / 9]
    )  # 2/10 alone, 2/(2*9) together
    assert e_benjamini_hochberg([0.0]) == pytest.approx([1.0])


# --- attribution ----------------------------------------------------------------------

Game = dict[frozenset[str], float]


def worth(weights: Game, game: Game) -> float:
    return sum(weight * game[world] for world, weight in weights.items())


def subsets(names: str) -> list[frozenset[str]]:
    return [
        frozenset(n for i, n in enumerate(names) if bits >> i & 1)
        for bits in range(2 ** len(names))
    ]


@given(st.integers(1, 4), st.data())
@settings(max_examples=60, deadline=None)
def test_shapley_values_are_efficient_and_additive(count: int, data: st.DataObject) -> None:
    names = "abcd"[:count]
    games = [{w: data.draw(st.floats(-1, 1, width=16)) for w in subsets(names)} for _ in range(2)]
    for game in games:
        total = sum(worth(weights, game) for weights in shapley_weights(names).values())
        assert total == pytest.approx(game[frozenset(names)] - game[frozenset()], abs=1e-9)
    both = {world: games[0][world] + games[1][world] for world in games[0]}
    for weights in shapley_weights(names).values():
        assert worth(weights, both) == pytest.approx(
            sum(worth(weights, game) for game in games), abs=1e-9
        )


def test_a_ratio_of_sums_at_its_ends() -> None:
    alike = ratio(np.full(10, 2.0), np.full(10, 4.0))
    assert alike.estimate == 0.5 and alike.low < 0.5 < alike.high, "no interval has width zero"
    parts, wholes = np.array([1.0, 2.0, 6.0]), np.array([2.0, 5.0, 3.0])
    there, back = ratio(parts, wholes), ratio(-parts, wholes)
    assert there.estimate == 0.9 and back.ends == (-0.9, -there.high, -there.low)
    with pytest.raises(MissingInput, match="1 task, which"):
        ratio(parts[:1], wholes[:1])


def test_differences_of_shares_and_the_largest_of_several() -> None:
    first, second = binomial(16, 20), binomial(4, 10)
    apart = difference_of_shares(first, second)
    assert apart.estimate == pytest.approx(0.4) and apart.low < 0.4 < apart.high <= 1
    same = difference_of_shares(first, first)
    assert same.low == -same.high
    assert largest([first, second, mean(np.array([0.9, 0.9]))]).high >= first.high
