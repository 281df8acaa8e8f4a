"""The search: what it books, what it rules out, and that its posterior knows
what it says it knows.

The potentials that are shown, against the truth: near it everywhere, and at
confirmed cliffs too.
"""

import numpy as np
import pytest

from resampling.cliffs.cliff_search import (
    ChainConfig,
    CliffConfig,
    DrawBudget,
    Draws,
    PotentialChains,
    Tally,
    search,
    steps_of,
)
from resampling.cliffs.cliffs import find_cliffs
from resampling.trace_rollouts import Request
from tests.resampling.random_traces import certain_trace, long_trace, random_traces
from tests.resampling.solvable_traces import SolvableSampler, SolvableTrace, solvable_trace


def searched(planted: list[SolvableTrace], seed: int = 0):  # type: ignore[no-untyped-def]
    draws = Draws(sampler=SolvableSampler(planted, seed=seed))
    return search([world.trace for world in planted], draws, CliffConfig(), DrawBudget()), draws


def by_enumeration(
    pi: list[float], counts: list[tuple[int, int]], config: ChainConfig
) -> np.ndarray:
    """P(drop >= delta - slack) at each step by running over every level of q
    and of the last potential.
    """
    grid, prior = config.grid, config.prior
    total, falls = 0.0, np.zeros(len(pi))
    stack = [(len(pi) - 1, b, 1.0, ()) for b in range(len(grid))]
    while stack:
        step, b, weight, fallen = stack.pop()
        if step < 0:
            total += weight
            falls[list(fallen)] += weight
            continue
        draws, wins = counts[step]
        for q in range(len(grid)):
            chance = weight * prior[b, q] * grid[q] ** wins * (1 - grid[q]) ** (draws - wins)
            drop = (1 - pi[step]) * (grid[q] - grid[b])
            place = (grid[b] + drop) * len(grid) - 0.5
            lower = int(np.clip(np.floor(place), 0, len(grid) - 2))
            now = (*fallen, step) if drop >= config.delta - config.slack else fallen
            for level, share in ((lower, 1 - (place - lower)), (lower + 1, place - lower)):
                if chance * share > 0:
                    stack.append((step - 1, level, chance * share, now))
    return falls / total


def test_the_posterior_is_exact_on_its_grid() -> None:
    """Against plain enumeration of every path of a short trace."""
    config = ChainConfig(levels=5, drift=0.15, jump=0.2)
    pi, counts = [0.3, 0.6, 0.5], [(6, 6), (4, 1), (5, 0)]
    world = solvable_trace("w", pi, np.full(4, 0.5))
    steps = steps_of(world.trace)
    tally = Tally(world.trace, steps)
    tally.draws[:3], tally.successes[:3] = zip(*counts, strict=True)
    chains = PotentialChains([steps], config)
    chains.update(np.zeros(3, int), np.arange(3), [tally])
    chains.infer()
    assert chains.cliff[0] == pytest.approx(by_enumeration(pi, counts, config), rel=1e-4)


def test_a_posterior_of_one_half_is_right_half_of_the_time() -> None:
    """Worlds drawn from the prior itself: expected cliffs, by class of
    posterior, against those that are there.
    """
    config, generator = ChainConfig(), np.random.default_rng(8)
    grid, claimed, true = config.grid, [], []
    for _ in range(120):
        pi, others, after = generator.uniform(0.2, 0.8, 20), np.zeros(20), generator.random()
        last = after
        for step in reversed(range(20)):
            others[step] = generator.choice(
                grid, p=config.prior[int(np.argmin(np.abs(grid - after)))]
            )
            after = pi[step] * after + (1 - pi[step]) * others[step]
        potentials = [last]
        for step in reversed(range(20)):
            potentials.append(pi[step] * potentials[-1] + (1 - pi[step]) * others[step])
        world = solvable_trace("w", pi, potentials[::-1])
        steps = steps_of(world.trace)
        tally = Tally(world.trace, steps)
        tally.count(
            SolvableSampler([world], seed=1).draw(
                [Request(trace="w", kept=k, n=8) for k in range(0, 20, 2)]
            )
        )
        chains = PotentialChains([steps], config)
        chains.update(np.zeros(20, int), np.arange(20), [tally])
        chains.infer()
        claimed += chains.cliff[0].tolist()
        true += (world.drops >= config.delta - config.slack).tolist()
    posterior, real = np.array(claimed), np.array(true, float)
    for low, high in ((0.0, 0.05), (0.05, 0.3), (0.3, 0.8), (0.8, 1.0)):
        inside = (posterior >= low) & (posterior <= high)
        spread = np.sqrt((posterior[inside] * (1 - posterior[inside])).sum())
        assert (
            abs(real[inside].sum() - posterior[inside].sum())
            <= 4 * spread + 0.1 * posterior[inside].sum()
        )


def test_what_the_bound_rules_out_costs_nothing() -> None:
    planted = [certain_trace(f"w{seed}", np.random.default_rng(seed)) for seed in range(5)]
    found, draws = searched(planted)
    assert draws.total.rollouts == 0
    assert all(each.searched == 0 and not each.candidates for each in found.values())


def test_rollouts_are_counted_once_where_they_left() -> None:
    world = long_trace("w", np.random.default_rng(1), tokens=60)
    steps = steps_of(world.trace)
    tally = Tally(world.trace, steps)
    rollouts = list(SolvableSampler([world], missing=0.1).draw([Request(trace="w", kept=0, n=500)]))
    tally.count(rollouts)
    certain = sum(1 for r in rollouts if r.outcome is not None and tally.place(r) is None)
    missing = sum(r.outcome is None for r in rollouts)
    assert tally.draws.sum() + missing + certain == 500 and certain < 50
    forced = list(SolvableSampler([world]).draw([Request(trace="w", kept=3, n=5, append=(7,))]))
    assert all(tally.place(r) is None for r in forced)


def test_the_curve_is_near_the_truth_and_falls_where_a_cliff_is_confirmed() -> None:
    planted = {world.trace.id: world for world in random_traces("long", 8, 4)}
    report = find_cliffs(
        [world.trace for world in planted.values()],
        SolvableSampler(list(planted.values()), seed=1),
    )
    shown = {trace.trace: trace for trace in report.traces}
    errors = [
        np.abs(shown[name].potentials - world.potentials).mean() for name, world in planted.items()
    ]
    assert max(errors) < 0.08
    assert len(report.cliffs) >= 5
    falls = [
        shown[c.trace].potentials[c.token] - shown[c.trace].potentials[c.token + 1]
        for c in report.cliffs
    ]
    true = [
        planted[c.trace].potentials[c.token] - planted[c.trace].potentials[c.token + 1]
        for c in report.cliffs
    ]
    assert np.abs(np.subtract(falls, true)).max() < 0.2
    assert abs(np.mean(falls) - np.mean(true)) < 0.06
    covered = np.mean(
        [(shown[name].low <= world.potentials).mean() for name, world in planted.items()]
    )
    assert covered > 0.9
