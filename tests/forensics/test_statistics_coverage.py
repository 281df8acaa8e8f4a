"""Intervals keep their level where the truth is known: thousands of simulated
investigations at once.
"""

import numpy as np
import pytest
from scipy.special import ndtr

from forensics.statistics import Estimate, auroc, auroc_difference, crossed_half_width, mean, ratio

TASKS, SAMPLES, SIMS = 100, 4, 2500
# Contrasts over (before open, after open, before scrubbed, after scrubbed).
CONTRASTS = {
    "gain": np.array([-1.0, 1.0, 0.0, 0.0]),
    "genuine": np.array([0.0, 0.0, -1.0, 1.0]),
    "phantom": np.array([-1.0, 1.0, 1.0, -1.0]),
    "phantom over bar": np.array([-0.2, 0.2, 1.0, -1.0]),
}
WORLDS = {  # mean rates; deviation of a training seed's effect on the after rates
    "negative genuine part": ((0.35, 0.65, 0.30, 0.20), 0.03),
    "parts that cancel": ((0.45, 0.45, 0.30, 0.50), 0.03),
    "a saturated leak": ((0.36, 0.995, 0.29, 0.30), 0.0),
    "seeds that differ a lot": ((0.35, 0.55, 0.30, 0.40), 0.08),
    "equal everywhere": ((0.40, 0.40, 0.40, 0.40), 0.0),
}


def simulated(
    rates: tuple[float, ...], seeds: int, deviation: float, generator: np.random.Generator
) -> np.ndarray:
    """Scores `[sims, seeds, cells, tasks]`; tasks differ in difficulty and in
    how much they gain.
    """
    difficulty = generator.uniform(-0.15, 0.15, (SIMS, 1, 1, TASKS))
    before = np.array(rates)[None, None, ::2, None] + difficulty
    own = generator.uniform(-0.1, 0.1, (SIMS, 1, 2, TASKS)) + generator.normal(
        0, deviation, (SIMS, seeds, 2, 1)
    )
    after = np.array(rates)[None, None, 1::2, None] + difficulty + own
    if max(rates) > 0.9:  # at the ceiling there is no room for differences
        before, after = (
            np.broadcast_to(np.array(rates)[None, None, part::2, None], x.shape)
            for part, x in ((0, before), (1, after))
        )
    scores = np.empty((SIMS, seeds, 4, TASKS))
    scores[:, :, ::2] = (
        generator.binomial(SAMPLES, before.clip(0, 1)) / SAMPLES
    )  # one before policy for all seeds
    scores[:, :, 1::2] = generator.binomial(SAMPLES, after.clip(0, 1)) / SAMPLES
    return scores


def coverage(
    scores: np.ndarray, rates: tuple[float, ...], weights: np.ndarray, part: str = "total"
) -> float:
    differences = np.einsum("c,nsct->nst", weights, scores)
    estimates = differences.mean(axis=(-2, -1))
    width = getattr(crossed_half_width(differences, 1.0, 0.95), part)
    return float((np.abs(estimates - weights @ np.array(rates)) <= width).mean())


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("seeds", [1, 2, 3, 5])
def test_intervals_cover_the_truth(world: str, seeds: int) -> None:
    rates, deviation = WORLDS[world]
    if seeds == 1:
        deviation = 0.0  # with one training seed the interval is about that checkpoint
    scores = simulated(rates, seeds, deviation, np.random.default_rng(seeds))
    for name, weights in CONTRASTS.items():
        covered = coverage(scores, rates, weights)
        assert covered > 0.935, (name, covered)  # 3.5 standard errors below .95
        if seeds == 1 and "saturated" not in world:
            assert covered < 0.985, (name, covered)  # and not by being needlessly wide


@pytest.mark.parametrize("rate", [0.005, 0.01, 0.02, 0.04])
def test_rare_differences_are_not_taken_for_certain(rate: float) -> None:
    # 100 tasks, one run each, a gain on few of them: the plain t interval covers only
    # 39 % at one in 200.
    generator = np.random.default_rng(1)
    differences = (generator.random((20000, 1, TASKS)) < rate).astype(float)
    means = differences.mean(axis=(-2, -1))
    width = crossed_half_width(differences, 1.0, 0.95).total
    assert (np.abs(means - rate) <= width).mean() > 0.93
    plain = 1.984 * differences[:, 0].std(axis=-1, ddof=1) / np.sqrt(TASKS)
    assert (np.abs(means - rate) <= plain).mean() < 0.93


def covering(found: list[Estimate], truth: float) -> float:
    return float(np.mean([one.low <= truth <= one.high for one in found]))


@pytest.mark.parametrize("tasks", [12, 40])
@pytest.mark.parametrize("share", [0.4, 1.3, -0.2])
def test_ratios_of_skewed_sums_cover(share: float, tasks: int) -> None:
    """Wholes with a long tail; parts that vary beyond them; shares beyond 0 and 1."""
    generator, found = np.random.default_rng(2), []
    for _ in range(800):
        whole = generator.gamma(1.0, 2.0, tasks) + 0.05
        part = whole * (share + generator.normal(0, 0.3, tasks))
        found.append(ratio(part, whole))
    assert 0.93 < covering(found, share) <= 0.995


@pytest.mark.parametrize("tasks", [8, 60])
def test_means_in_any_unit_cover(tasks: int) -> None:
    generator = np.random.default_rng(4)
    found = [mean(generator.gamma(2.0, 3.0, tasks)) for _ in range(800)]
    assert 0.92 < covering(found, 6.0) <= 0.995


def rows_of_tasks(
    generator: np.random.Generator, tasks: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two scores of four rows a task, rates of success that differ between
    tasks, parts of both scores that a task's rows share. Folds shift the scores,
    so that rows of different folds cannot be compared.
    """
    task = np.repeat(np.arange(tasks), 4)
    positive = generator.random(4 * tasks) < generator.uniform(0.1, 0.9, tasks)[task]
    noise = generator.normal(size=(2, 4 * tasks)) + generator.normal(size=(2, tasks))[:, task]
    scores = np.array([[0.8 * 2**0.5], [0.3 * 2**0.5]]) * positive + noise
    return scores, positive, task, task % 5


@pytest.mark.parametrize("folded", [False, True])
def test_aurocs_and_their_differences_cover(folded: bool) -> None:
    """Scores differ by N(shift, variance 4) between rows of different tasks."""
    generator, alone, apart = np.random.default_rng(5), [], []
    truth, other = (float(ndtr(shift * 2**0.5 / 2)) for shift in (0.8, 0.3))
    for _ in range(600):
        scores, positive, task, fold = rows_of_tasks(generator, 60)
        if folded:
            scores = scores + 3.0 * fold
        folds = fold if folded else None
        alone.append(auroc(scores[0], positive, task, folds=folds))
        apart.append(auroc_difference(*scores, positive, task, folds=folds))
    assert 0.925 < covering(alone, truth) <= 0.985
    assert 0.925 < covering(apart, truth - other) <= 0.99
