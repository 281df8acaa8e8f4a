"""The published ways, as we run them, behave as their own formulas say."""

import numpy as np

from resampling.solvable_traces import SolvableSampler, solvable_trace
from tests.resampling.random_traces import flat_trace, halving, published_cliffs, published_rule


def test_the_published_rule_reports_false_cliffs_and_misses_true_ones_as_computed() -> None:
    """Computed: 0.89 false cliffs per 300 tokens at a flat 0.5; a drop from 0.5
    to 0.3 is found in 32 %.
    """
    generator = np.random.default_rng(0)
    flat = generator.binomial(64, 0.5, (3000, 301)) / 64
    rate = published_cliffs(
        flat.reshape(-1)
    )  # one long row: its 3000 seams are draws of the same kind
    assert 0.8 < rate.mean() * 300 < 0.98
    pairs = generator.binomial(64, [0.5, 0.3], (20_000, 2)) / 64
    found = np.mean([published_cliffs(pair)[0] for pair in pairs])
    assert 0.30 < found < 0.34


def test_costs_are_what_the_rules_ask_for() -> None:
    world = flat_trace("w", np.random.default_rng(1), tokens=40, level=0.5)
    found = published_rule([world.trace], SolvableSampler([world]), continuations=8)
    assert (found.rollouts, found.tokens) == (8 * 41, 8 * 40 * 41 // 2)
    assert halving([world.trace], SolvableSampler([world]), continuations=8, gap=0.9).rollouts == 16


def test_both_find_a_large_cliff_and_halving_walks_past_a_move_that_is_undone() -> None:
    pi = np.full(16, 0.1)
    cliff = np.where(np.arange(17) <= 5, 0.9, 0.3)
    dip = np.where(np.arange(17) == 6, 0.3, 0.9)
    worlds = [solvable_trace("cliff", pi, cliff), solvable_trace("dip", pi, dip)]
    traces, sampler = [world.trace for world in worlds], SolvableSampler(worlds, seed=2)
    assert published_rule(traces, sampler).cliffs >= {("cliff", 5), ("dip", 5)}
    assert halving(traces, sampler, continuations=256).cliffs == {("cliff", 5)}
