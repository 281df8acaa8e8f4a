"""The search: what it books, what it rules out, and that its posterior knows
what it says it knows.

The potentials that are shown, against the truth: near it everywhere, and at
confirmed cliffs too.
"""

from dataclasses import replace

import numpy as np
import pytest

from resampling.cliffs.chain import ChainConfig, PotentialChains, Tally, steps_of
from resampling.cliffs.cliff_search import (
    CANDIDATE,
    MISSED,
    CliffConfig,
    DrawBudget,
    Draws,
    search,
)
from resampling.cliffs.cliffs import find_cliffs
from resampling.solvable_traces import SolvableSampler, SolvableTrace, solvable_trace
from resampling.trace_rollouts import Request
from tests.resampling.random_traces import certain_trace, long_trace, random_traces


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


def test_candidates_are_uncertain_tokens_and_the_unseen_rest_is_small() -> None:
    planted = random_traces("long", 6, 4)
    found, _ = searched(planted)
    for world in planted:
        result = found[world.trace.id]
        assert all(
            c.free >= CliffConfig().delta and c.posterior >= CANDIDATE for c in result.candidates
        )
        assert result.missed <= MISSED or result.missed < 0.3


def test_nothing_depends_on_the_order_of_traces() -> None:
    planted = random_traces("hard", 6, 2)
    one, _ = searched(planted)
    other, _ = searched(planted[::-1])
    for name, result in one.items():
        assert np.array_equal(result.cliff, other[name].cliff)
        assert [c.token for c in result.candidates] == [c.token for c in other[name].candidates]


def test_the_luck_of_the_environment_is_no_suspect() -> None:
    """After token 5 the environment gives a bad answer that it seldom gives:
    the fall is not the token's doing.
    """
    answers, luck, potentials = np.ones(12), np.zeros(12), np.full(13, 0.8)
    answers[5], luck[5], potentials[6:] = 0.1, 0.845, 0.3
    potentials[:6] = 0.1 * 0.3 + 0.9 * 0.845
    world = solvable_trace("w", np.full(12, 0.5), potentials, answers=answers, other_answers=luck)
    assert abs(world.drops).max() < 0.01 and world.potentials[5] - world.potentials[6] > 0.4
    found, _ = searched([world])
    assert found["w"].cliff.max() < 0.2


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


def test_a_rollout_that_repeats_the_last_token_counts_at_the_end_whatever_luck_follows() -> None:
    """An environment with fresh luck ends what is followed one token early (`Rollout.followed`)."""
    world = long_trace("w", np.random.default_rng(1), tokens=60)
    tally = Tally(world.trace, steps_of(world.trace))
    rollout = next(
        r
        for r in SolvableSampler([world]).draw([Request(trace="w", kept=59, n=50)])
        if r.followed == 1
    )
    assert tally.place(rollout) == tally.place(replace(rollout, followed=0)) == len(tally.steps)


def test_a_budget_is_not_overrun() -> None:
    planted = random_traces("long", 3, 1)
    draws = Draws(sampler=SolvableSampler(planted))
    search([world.trace for world in planted], draws, CliffConfig(), DrawBudget(rollouts=150))
    assert draws.total.rollouts == 150


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


def test_where_nothing_was_drawn_nothing_is_known() -> None:
    """The bound rules out every token, so the search draws nothing: no
    potential is one half for that.
    """
    world = certain_trace("w", np.random.default_rng(0))
    report = find_cliffs([world.trace], SolvableSampler([world], seed=2))
    assert report.rollouts == 0
    for curve in (report.traces[0].potentials, report.traces[0].low, report.traces[0].high):
        assert np.isnan(curve).all() and len(curve) == len(world.trace) + 1


def test_the_luck_of_the_environment_shows_without_being_a_cliff() -> None:
    """After token 5 the environment gives a bad answer that it seldom gives:
    the fall is not the token's doing.
    """
    answers, luck, potentials = np.ones(12), np.zeros(12), np.full(13, 0.8)
    answers[5], luck[5], potentials[6:] = 0.1, 0.845, 0.3
    potentials[:6] = 0.1 * 0.3 + 0.9 * 0.845
    world = solvable_trace("w", np.full(12, 0.5), potentials, answers=answers, other_answers=luck)
    report = find_cliffs([world.trace], SolvableSampler([world], seed=2))
    assert not report.cliffs
    assert report.traces[0].potentials[3] > report.traces[0].potentials[8] + 0.3
