"""Potentials: intervals that cover, rollouts that are used again, and what may not be counted."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import binom

from forensics.errors import UserError
from resampling.cliffs.cliff_search import DrawBudget
from resampling.cliffs.potentials import (
    PotentialConfig,
    estimate_potentials,
    find_potentials,
    plan,
    stretches,
)
from resampling.solvable_traces import SolvableSampler, SolvableTrace, solvable_trace
from resampling.trace_rollouts import Request
from tests.resampling.random_traces import certain_trace, hard_trace, long_trace


def covered(
    world: SolvableTrace, config: PotentialConfig, seed: int, **sampling: object
) -> np.ndarray:
    found, _ = find_potentials(
        [world.trace], SolvableSampler([world], seed=seed, **sampling), config
    )  # type: ignore[arg-type]
    rows = found[world.trace.id]
    return (rows.low <= world.potentials) & (world.potentials <= rows.high)


SAMPLINGS: tuple[dict[str, Any], ...] = ({}, {"fractional": True}, {"missing": 0.2})


@pytest.mark.parametrize(
    "maker,sampling",
    [
        pytest.param(maker, sampling, marks=pytest.mark.slow if maker != hard_trace else ())
        for maker in (long_trace, hard_trace, certain_trace)
        for sampling in SAMPLINGS
    ],
)
def test_intervals_cover_at_every_prefix(maker, sampling) -> None:  # type: ignore[no-untyped-def]
    """Averaged over prefixes at least at their level; the worlds, not the
    correlated prefixes, are the repeats.
    """
    config = PotentialConfig(budget=DrawBudget(rollouts=600))
    shares = [
        covered(maker("w", np.random.default_rng(seed), tokens=60), config, seed, **sampling).mean()
        for seed in range(40)
    ]
    assert np.mean(shares) >= 0.95 - 3 * np.std(shares) / np.sqrt(len(shares))


def test_intervals_cover_at_one_prefix_reached_by_shared_rollouts() -> None:
    world = solvable_trace("w", [0.9, 0.6, 0.9, 0.5, 0.9], [0.6, 0.57, 0.5, 0.52, 0.4, 0.44])
    config = PotentialConfig(budget=DrawBudget(rollouts=120))
    hits = np.array([covered(world, config, seed) for seed in range(300)])
    assert (hits.sum(0) >= binom.ppf(1e-3, 300, 0.95)).all()


def test_a_wanted_precision_is_reached_and_still_covered() -> None:
    world = hard_trace("w", np.random.default_rng(3), tokens=40)
    config = PotentialConfig(precision=0.15)
    hits = []
    for seed in range(12):
        found, bill = find_potentials([world.trace], SolvableSampler([world], seed=seed), config)
        rows = found["w"]
        assert ((rows.high - rows.low) / 2 <= 0.15 + 1e-9).all() and bill.rollouts > 0
        hits.append(((rows.low <= world.potentials) & (world.potentials <= rows.high)).mean())
    assert np.mean(hits) >= 0.95


def test_used_again_gives_the_same_as_independent_rollouts_for_fewer() -> None:
    world = long_trace("w", np.random.default_rng(5), tokens=80, cliffs=1)
    sampler = SolvableSampler([world], seed=1)
    requests = plan(world.trace, 0.02, 400)
    rollouts = list(sampler.draw(requests))
    shared = estimate_potentials(world.trace, rollouts)
    alone = estimate_potentials(world.trace, [replace(r, followed=0) for r in rollouts])
    error = np.sqrt(0.25 / np.maximum(shared.draws, 1) + 0.25 / np.maximum(alone.draws, 1))
    both = alone.draws > 30
    assert (np.abs(shared.estimate - alone.estimate)[both] <= 4 * error[both] + 0.04).all()
    assert shared.draws.min() > 300 and len(rollouts) < 0.8 * 400 * len(
        stretches(world.trace, 0.02)
    )


def test_a_rollout_counts_once_in_a_stretch_however_many_prefixes_it_passes() -> None:
    world = solvable_trace("w", [0.999] * 30, np.full(31, 0.5))
    rows = estimate_potentials(
        world.trace, SolvableSampler([world]).draw([Request(trace="w", kept=0, n=50)]), pooled=0.05
    )
    assert (rows.draws == 50).all()
    assert rows.high[0] - rows.low[0] > 0.25  # as wide as for 50 draws, not for 50 x 31


def test_the_recorded_run_is_never_counted_nor_are_forced_or_missing_ones() -> None:
    world = solvable_trace("w", [0.5] * 4, np.full(5, 0.5), outcome=1.0)
    nothing = estimate_potentials(world.trace, [])
    assert (
        np.isnan(nothing.estimate).all() and (nothing.low == 0).all() and (nothing.high == 1).all()
    )
    sampler = SolvableSampler([world], missing=0.5)
    forced = sampler.draw(
        [
            Request(trace="w", kept=1, n=20, avoid=True),
            Request(trace="w", kept=1, n=20, append=(9,)),
        ]
    )
    assert (estimate_potentials(world.trace, forced).draws == 0).all()
    plain = list(sampler.draw([Request(trace="w", kept=0, n=200)]))
    there = [r for r in plain if r.outcome is not None]
    assert estimate_potentials(world.trace, plain).draws[0] == len(there) < 130


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=30), st.floats(0.005, 0.5))
def test_stretches_split_the_prefixes_and_move_at_most_what_they_may(
    pi: list[float], pooled: float
) -> None:
    trace = solvable_trace("w", pi, np.full(len(pi) + 1, 0.5)).trace
    parts = stretches(trace, pooled)
    assert [k for first, last in parts for k in range(first, last + 1)] == list(range(len(pi) + 1))
    assert all(1 - np.prod(pi[first:last]) <= pooled + 1e-9 for first, last in parts)


def test_a_budget_is_kept_and_one_that_pays_for_nothing_is_refused() -> None:
    world = long_trace("w", np.random.default_rng(6), tokens=60)
    for budget in (DrawBudget(rollouts=500), DrawBudget(tokens=20_000)):
        _, bill = find_potentials(
            [world.trace], SolvableSampler([world]), PotentialConfig(budget=budget)
        )
        assert bill.rollouts <= 500 or bill.tokens <= 20_000
    with pytest.raises(UserError, match="give more"):
        find_potentials(
            [world.trace], SolvableSampler([world]), PotentialConfig(budget=DrawBudget(rollouts=3))
        )
    with pytest.raises(UserError, match="precision"):
        PotentialConfig()
