"""The search: what it books, what it rules out, and that its posterior knows what it says it knows."""

from dataclasses import replace

import numpy as np
import pytest

from resampling.chain import ChainConfig, Chains
from resampling.drawing import Budget, Drawing
from resampling.planted_worlds import certain_world, long_world, worlds
from resampling.rollouts import Request
from resampling.search import SearchConfig, search
from resampling.steps import Tally, steps_of
from resampling.worlds import World, sampler_of, world_of


def searched(planted: list[World], seed: int = 0, config: SearchConfig | None = None):  # type: ignore[no-untyped-def]
    drawing = Drawing(sampler=sampler_of(planted, seed=seed))
    return search([world.trace for world in planted], drawing, config or SearchConfig(), Budget()), drawing


def by_enumeration(pi: list[float], counts: list[tuple[int, int]], config: ChainConfig) -> np.ndarray:
    """P(drop >= delta - slack) at each step by running over every level of q and of the last potential."""
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
    world = world_of("w", pi, np.full(4, 0.5))
    steps = steps_of(world.trace)
    tally = Tally(world.trace, steps)
    tally.draws[:3], tally.successes[:3] = zip(*counts, strict=True)
    chains = Chains([steps], config)
    chains.update(np.zeros(3, int), np.arange(3), [tally])
    chains.infer()
    assert chains.cliff[0] == pytest.approx(by_enumeration(pi, counts, config), rel=1e-4)


def test_a_posterior_of_one_half_is_right_half_of_the_time() -> None:
    """Worlds drawn from the prior itself: expected cliffs, by class of posterior, against those that are there."""
    config, generator = ChainConfig(), np.random.default_rng(8)
    grid, claimed, true = config.grid, [], []
    for _ in range(120):
        pi, others, after = generator.uniform(0.2, 0.8, 20), np.zeros(20), generator.random()
        last = after
        for step in reversed(range(20)):
            others[step] = generator.choice(grid, p=config.prior[int(np.argmin(np.abs(grid - after)))])
            after = pi[step] * after + (1 - pi[step]) * others[step]
        potentials = [last]
        for step in reversed(range(20)):
            potentials.append(pi[step] * potentials[-1] + (1 - pi[step]) * others[step])
        world = world_of("w", pi, potentials[::-1])
        steps = steps_of(world.trace)
        tally = Tally(world.trace, steps)
        tally.book(sampler_of([world], seed=1).draw([Request(trace="w", kept=k, n=8) for k in range(0, 20, 2)]))
        chains = Chains([steps], config)
        chains.update(np.zeros(20, int), np.arange(20), [tally])
        chains.update_ends([tally])
        chains.infer()
        claimed += chains.cliff[0].tolist()
        true += (world.drops >= config.delta - config.slack).tolist()
    posterior, real = np.array(claimed), np.array(true, float)
    for low, high in ((0.0, 0.05), (0.05, 0.3), (0.3, 0.8), (0.8, 1.0)):
        inside = (posterior >= low) & (posterior <= high)
        spread = np.sqrt((posterior[inside] * (1 - posterior[inside])).sum())
        assert abs(real[inside].sum() - posterior[inside].sum()) <= 4 * spread + 0.1 * posterior[inside].sum()


def test_what_the_bound_rules_out_costs_nothing() -> None:
    planted = [certain_world(f"w{seed}", np.random.default_rng(seed)) for seed in range(5)]
    found, drawing = searched(planted)
    assert drawing.total.rollouts == 0
    assert all(each.searched == 0 and not each.candidates for each in found.values())


def test_candidates_are_uncertain_tokens_and_the_unseen_rest_is_small() -> None:
    planted = worlds("long", 6, 4)
    config = SearchConfig()
    found, _ = searched(planted, config=config)
    for world in planted:
        result = found[world.trace.id]
        assert all(c.free >= config.chain.delta and c.posterior >= config.candidate for c in result.candidates)
        assert result.missed <= config.missed or result.missed < 0.3


def test_nothing_depends_on_the_order_of_traces() -> None:
    planted = worlds("hard", 6, 2)
    one, _ = searched(planted)
    other, _ = searched(planted[::-1])
    for name, result in one.items():
        assert np.array_equal(result.cliff, other[name].cliff)
        assert [c.token for c in result.candidates] == [c.token for c in other[name].candidates]


def test_the_luck_of_the_environment_is_no_suspect() -> None:
    """After token 5 the environment gives a bad answer that it seldom gives: the fall is not the token's doing."""
    answers, luck, potentials = np.ones(12), np.zeros(12), np.full(13, 0.8)
    answers[5], luck[5], potentials[6:] = 0.1, 0.845, 0.3
    potentials[:6] = 0.1 * 0.3 + 0.9 * 0.845
    world = world_of("w", np.full(12, 0.5), potentials, answers=answers, other_answers=luck)
    assert abs(world.drops).max() < 0.01 and world.potentials[5] - world.potentials[6] > 0.4
    found, _ = searched([world])
    assert found["w"].cliff.max() < 0.2


def test_rollouts_are_booked_once_where_they_left() -> None:
    world = long_world("w", np.random.default_rng(1), tokens=60)
    steps = steps_of(world.trace)
    tally = Tally(world.trace, steps)
    rollouts = list(sampler_of([world], missing=0.1).draw([Request(trace="w", kept=0, n=500)]))
    tally.book(rollouts)
    certain = sum(1 for r in rollouts if r.outcome is not None and tally.place(r) is None)
    assert tally.draws.sum() + tally.missing + certain == 500 and certain < 50
    forced = list(sampler_of([world]).draw([Request(trace="w", kept=3, n=5, append=(7,))]))
    assert all(tally.place(r) is None for r in forced)


def test_a_rollout_that_repeats_the_last_token_counts_at_the_end_whatever_luck_follows() -> None:
    """An environment with fresh luck ends what is followed one token early (`Rollout.followed`)."""
    world = long_world("w", np.random.default_rng(1), tokens=60)
    tally = Tally(world.trace, steps_of(world.trace))
    rollout = next(r for r in sampler_of([world]).draw([Request(trace="w", kept=59, n=50)]) if r.followed == 1)
    assert tally.place(rollout) == tally.place(replace(rollout, followed=0)) == len(tally.steps)


def test_a_budget_is_not_overrun() -> None:
    planted = worlds("long", 3, 1)
    drawing = Drawing(sampler=sampler_of(planted))
    search([world.trace for world in planted], drawing, SearchConfig(), Budget(rollouts=150))
    assert drawing.total.rollouts == 150
