"""Estimates against closed forms, published values and identities."""

from math import comb, log2, sqrt

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
from forensics.statistics.shapley import first_and_last_weights, shapley_weights

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


def test_pure_sampling_noise_is_not_counted_twice() -> None:
    # Without task differences beyond the noise the task part is only the pseudo-tasks:
    # what the seeds' own spread shows already must not come in again. Tasks-only width
    # is the floor.
    noise = np.random.default_rng(0).normal(0, 0.1, (5, 4000)).clip(-0.25, 0.75)
    found = paired(gains(noise), AFTER_MINUS_BEFORE)
    assert found.half_width_training is not None
    both = sqrt(found.half_width_training**2 + found.half_width_tasks**2)
    assert (
        max(found.half_width_training, found.half_width_tasks)
        <= found.high - found.estimate
        < 0.9 * both
    )


def test_seeds_that_agree_by_luck_do_not_narrow_the_interval() -> None:
    luck = np.random.default_rng(0).uniform(-0.2, 0.7, (2, 60))
    luck[1] += luck[0].mean() - luck[1].mean()
    found = paired(gains(luck), AFTER_MINUS_BEFORE)
    assert found.half_width_training == pytest.approx(0, abs=1e-9)
    assert found.high - found.estimate == pytest.approx(found.half_width_tasks)


@pytest.mark.parametrize("value", [0.0, 0.75, -0.25])
@pytest.mark.parametrize("seeds", [1, 3])
def test_no_interval_has_width_zero(value: float, seeds: int) -> None:
    found = paired(gains(np.full((seeds, 50), value)), AFTER_MINUS_BEFORE)
    assert found.low < value or found.low == -1
    assert found.high > value
    # Never seen to differ on 50 tasks: the share of tasks that do may be up to .071
    # (exact, 97.5 %).
    assert found.high - found.low > 0.05


def test_the_interval_stays_where_the_contrast_can_be() -> None:
    found = paired(gains(np.array([[0.75, 0.75, -0.25]])), AFTER_MINUS_BEFORE)
    assert (found.low, found.high) == (-1, 1)


def test_one_task_gives_no_interval() -> None:
    with pytest.raises(MissingInput, match="Only 1 task had"):
        paired(gains(np.zeros((3, 1))), AFTER_MINUS_BEFORE)


@given(
    arrays(float, (2, 3, 8), elements=UNIT), arrays(float, 3, elements=st.floats(-1, 1, width=16))
)
@settings(max_examples=60, deadline=None)
def test_negated_weights_mirror_the_interval(scores: np.ndarray, weights: np.ndarray) -> None:
    found, mirrored = paired(scores, weights), paired(scores, -weights)
    assert (-mirrored.estimate, -mirrored.high, -mirrored.low) == pytest.approx(
        (found.estimate, found.low, found.high), abs=1e-9
    )


@given(
    arrays(float, (3, 4, 6), elements=UNIT), st.permutations(range(6)), st.permutations(range(3))
)
@settings(max_examples=60, deadline=None)
def test_the_order_of_tasks_and_seeds_does_not_matter(
    scores: np.ndarray, tasks: list[int], seeds: list[int]
) -> None:
    weights = np.array([1.0, -1.0, -1.0, 1.0])
    found, shuffled = (
        paired(scores, weights),
        paired(scores[seeds][:, :, tasks], weights),
    )
    assert (shuffled.estimate, shuffled.low, shuffled.high) == pytest.approx(
        (found.estimate, found.low, found.high), abs=1e-9
    )


@given(arrays(float, (2, 4, 6), elements=UNIT))
@settings(max_examples=60, deadline=None)
def test_estimates_of_parts_add_up(scores: np.ndarray) -> None:
    total, genuine = np.array([1.0, -1.0, 0, 0]), np.array([0, 0, 1.0, -1.0])
    parts = [paired(scores, weights).estimate for weights in (total, genuine, total - genuine)]
    assert parts[0] == pytest.approx(parts[1] + parts[2], abs=1e-12)


def test_a_higher_level_is_wider() -> None:
    scores = gains(np.random.default_rng(1).uniform(-0.2, 0.7, (3, 40)))
    narrow, wide = (paired(scores, AFTER_MINUS_BEFORE, level=level) for level in (0.8, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


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


@pytest.mark.parametrize("rate", [0.003, 0.05, 0.2, 0.5, 0.93])
def test_exact_binomial_covers_at_its_level(rate: float) -> None:
    trials = 25
    covered = sum(
        comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
        for k in range(trials + 1)
        if clopper_pearson(k, trials)[0] <= rate <= clopper_pearson(k, trials)[1]
    )
    assert covered >= 0.95


def test_a_share_on_which_all_tasks_agree_counts_tasks_not_runs() -> None:
    whole = np.full(20, 4.0)
    every = share(whole, whole)
    assert (every.estimate, every.high, every.clusters, every.n) == (1.0, 1.0, 20, 80)
    assert every.low == pytest.approx(0.025 ** (1 / 20))  # 20 of 20, not 80 of 80


def test_runs_of_a_task_that_agree_count_once() -> None:
    part = np.array([4.0, 0.0] * 30)
    clustered = share(part, np.full(60, 4.0))
    as_tasks = clopper_pearson(30, 60)
    assert (clustered.low, clustered.high) == pytest.approx(as_tasks, abs=0.01)
    as_runs = clopper_pearson(120, 240)
    assert clustered.high - clustered.low > 1.8 * (as_runs[1] - as_runs[0])


def test_few_tasks_widen_a_share_further() -> None:
    # Six tasks with four wins each, all or none through the channel: share .5, linearised variance
    # 6/5 * 6 * 2^2 / 24^2 = .05, so 5 effective trials; few tasks shrink them by (t[23] / t[5])^2 =
    # (2.068658 / 2.570582)^2 = .647612 to 3.238060.
    found = share(np.array([4.0, 0.0] * 3), np.full(6, 4.0))
    assert (found.low, found.high) == pytest.approx(clopper_pearson(1.619030, 3.238060), abs=1e-5)


def test_shares_cover_under_clustering() -> None:
    generator, hits, sims = np.random.default_rng(2), 0, 1500
    for _ in range(sims):
        rates = generator.beta(9, 1, 40)  # mean .9, strongly clustered
        found = share(generator.binomial(4, rates).astype(float), np.full(40, 4.0))
        hits += found.low <= 0.9 <= found.high
    assert hits / sims > 0.935


def test_tasks_without_a_denominator_drop_out() -> None:
    found = share(np.array([1.0, 0, 2, 0]), np.array([2.0, 0, 2, 1]))
    assert (found.estimate, found.clusters) == (0.6, 3)
    with pytest.raises(MissingInput, match="rests on 1 task"):
        share(np.array([1.0, 0]), np.array([2.0, 0]))


# --- permutation and divergence -------------------------------------------------------


def test_sign_flips_are_exact_for_few_tasks() -> None:
    generator = np.random.default_rng(0)
    assert sign_flip_test(np.ones(5), generator) == 2 / 2**5
    # 1, 1, 1, -1: |sum| is at least 2 unless two signs agree and two do not: 10 of 16 patterns.
    assert sign_flip_test(np.array([1.0, 1, 1, -1]), generator) == 10 / 16
    with pytest.raises(MissingInput):
        sign_flip_test(np.array([]), generator)


def test_sign_flips_reject_at_their_rate_and_find_what_is_there() -> None:
    generator = np.random.default_rng(3)
    null = [sign_flip_test(generator.normal(0, 1, 30), generator, repeats=199) for _ in range(600)]
    assert 0.025 < np.mean(np.array(null) <= 0.05) < 0.08
    assert sign_flip_test(generator.normal(1, 1, 60), generator) < 0.001


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


def test_paired_sides_must_match() -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        permutation_test(np.zeros(3), np.zeros(4), lambda a, b: 0.0, np.random.default_rng(0))


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


def test_false_discoveries_stay_at_the_rate() -> None:
    generator, shares = np.random.default_rng(5), []
    for _ in range(800):
        p = np.concatenate([generator.random(40), generator.beta(0.05, 5, 10)])
        found = benjamini_hochberg(p) <= 0.1
        shares.append(found[:40].sum() / max(found.sum(), 1))
    assert 0.05 < np.mean(shares) < 0.095  # 40 of 50 nulls: expected .08


# --- attribution ----------------------------------------------------------------------

Game = dict[frozenset[str], float]


def worth(weights: Game, game: Game) -> float:
    return sum(weight * game[world] for world, weight in weights.items())


def subsets(names: str) -> list[frozenset[str]]:
    return [
        frozenset(n for i, n in enumerate(names) if bits >> i & 1)
        for bits in range(2 ** len(names))
    ]


def test_redundant_shortcuts_share_the_gain() -> None:
    game = {world: float(bool(world)) for world in subsets("ab")}
    assert [worth(weights, game) for weights in shapley_weights("ab").values()] == [0.5, 0.5]


def test_the_glove_game() -> None:
    # One owner of a left glove, two of a right one; a pair is worth 1. Known: 2/3, 1/6, 1/6.
    game = {world: float("a" in world and len(world) > 1) for world in subsets("abc")}
    values = [worth(weights, game) for weights in shapley_weights("abc").values()]
    assert values == pytest.approx([2 / 3, 1 / 6, 1 / 6])


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


@given(st.integers(2, 5), st.data())
@settings(max_examples=40, deadline=None)
def test_first_and_last_average_to_shapley_for_interactions_in_pairs(
    count: int, data: st.DataObject
) -> None:
    names, part = "abcde"[:count], st.floats(-1, 1, width=16)
    single = {n: data.draw(part) for n in names}
    pairs = {(m, n): data.draw(part) for m in names for n in names if m < n}
    game = {
        world: sum(single[n] for n in world)
        + sum(v for (m, n), v in pairs.items() if {m, n} <= world)
        for world in subsets(names)
    }
    shapley = shapley_weights(names)
    for name, (first, last) in first_and_last_weights(names).items():
        assert (worth(first, game) + worth(last, game)) / 2 == pytest.approx(
            worth(shapley[name], game), abs=1e-9
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
