"""The oracle itself: its potentials against plain simulation, and the identity they obey."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from resampling.cliffs.chain import Tally, steps_of
from resampling.cliffs.cliff_search import unpruned
from resampling.solvable_traces import SolvableSampler, SolvableTrace, solvable_trace
from resampling.trace_rollouts import Request
from tests.resampling.random_traces import long_trace, random_traces

PROBABILITY = st.floats(0.02, 0.98)


def solved(probabilities: list[float], others: list[float], final: float) -> SolvableTrace:
    """The world with these other tokens: potentials by the recursion, worked here once more."""
    potentials = [final]
    for pi, other in zip(reversed(probabilities), reversed(others), strict=True):
        potentials.append(pi * potentials[-1] + (1 - pi) * other)
    return solvable_trace("w", probabilities, potentials[::-1])


def outcomes(world: SolvableTrace, n: int = 4000, **request: object) -> np.ndarray:
    sampler = SolvableSampler([world], seed=3)
    return np.array(
        [r.outcome for r in sampler.draw([Request(trace=world.trace.id, n=n, **request)])]
    )  # type: ignore[arg-type]


def near(sample: np.ndarray, probability: float) -> bool:
    """Within four standard errors."""
    return abs(sample.mean() - probability) <= 4 * np.sqrt(
        max(probability * (1 - probability), 1e-3) / len(sample)
    )


def talking() -> SolvableTrace:
    """The environment answers after token 1: as recorded half of the time, and
    the other answer is bad luck.
    """
    answers = [1.0, 0.5, 1.0, 1.0]
    potentials = [0.66, 0.6, 0.9, 0.8, 0.8]
    return solvable_trace(
        "w", [0.6, 0.8, 0.5, 0.9], potentials, answers=answers, other_answers=[1, 0.2, 1, 1]
    )


@pytest.mark.parametrize("kept", [0, 40, 99, 299])
def test_potentials_are_the_success_rates_of_rollouts(kept: int) -> None:
    world = long_trace("w", np.random.default_rng(4), cliffs=2)
    assert near(outcomes(world, kept=kept), world.potentials[kept])


def test_avoiding_and_appending_draw_what_they_say() -> None:
    world = solved([0.7, 0.4, 0.9], [0.9, 0.1, 0.5], 0.6)
    own = world.trace.tokens
    assert near(outcomes(world, kept=1, avoid=True), world.others[1])
    assert near(outcomes(world, kept=1, append=(own[1],)), world.potentials[2])
    assert near(outcomes(world, kept=0, append=(own[0], 999)), world.others[1])


def test_what_a_token_costs_leaves_out_the_luck_of_the_answer() -> None:
    world = talking()
    assert world.after[1] == pytest.approx(0.5 * 0.9 + 0.5 * 0.2)
    assert world.drops[1] == pytest.approx(0.6 - 0.55)
    assert near(outcomes(world, kept=1, append=(world.trace.tokens[1],)), 0.55)
    assert near(outcomes(world, kept=2), 0.9)
    assert near(outcomes(world, kept=0), 0.66)


def test_a_rollout_that_another_answer_parts_has_drawn_the_token_but_not_followed_it() -> None:
    world = talking()
    rollouts = list(SolvableSampler([world]).draw([Request(trace="w", kept=1, n=400)]))
    parted = [r for r in rollouts if r.followed == 0 and r.tokens[0] == world.trace.tokens[1]]
    assert 0.3 < len(parted) / 400 < 0.5  # 0.8 draw the token, half of them hear another answer
    assert all(len(r.tokens) == 3 for r in rollouts)
    tally = Tally(world.trace, steps_of(world.trace))
    assert {tally.place(r) for r in parted} == {tally.steps.step(1, answer=True)}


def test_rollouts_that_follow_are_exact_draws_of_every_prefix_they_pass() -> None:
    world = solved([0.8] * 6, [0.1, 0.9, 0.2, 0.8, 0.3, 0.7], 0.5)
    rollouts = list(SolvableSampler([world], seed=5).draw([Request(trace="w", kept=0, n=20_000)]))
    for prefix in range(1, 7):
        assert near(
            np.array([r.outcome for r in rollouts if r.followed >= prefix]),
            world.potentials[prefix],
        )


def test_a_rollout_depends_on_seed_request_and_number_alone() -> None:
    world = solved([0.5] * 5, [0.2, 0.8, 0.5, 0.5, 0.5], 0.5)
    sampler = SolvableSampler([world], seed=1, missing=0.2)
    whole = list(sampler.draw([Request(trace="w", kept=2, n=20)]))
    parts = [(2, 12, 8), (0, 3, 0), (2, 8, 0)]
    asked = [Request(trace="w", kept=kept, n=n, first=first) for kept, n, first in parts]
    again = {r.number: r for r in sampler.draw(asked) if r.kept == 2}
    assert [again[n] for n in range(20)] == whole
    assert list(SolvableSampler([world], seed=2).draw([Request(trace="w", kept=2, n=20)])) != whole


def test_missing_and_fractional_outcomes() -> None:
    world = solved([0.5, 0.5], [0.3, 0.6], 0.5)
    lost = list(SolvableSampler([world], missing=0.3).draw([Request(trace="w", kept=0, n=2000)]))
    assert 0.25 < sum(r.outcome is None for r in lost) / 2000 < 0.35
    assert {r.end for r in lost if r.outcome is None} == {"errored"}
    halves = [
        r.outcome
        for r in SolvableSampler([world], fractional=True).draw(
            [Request(trace="w", kept=0, n=2000)]
        )
    ]
    assert set(halves) == {0.0, 0.5, 1.0} and near(np.array(halves), world.potentials[0])


@given(
    st.lists(st.tuples(PROBABILITY, st.floats(0, 1)), min_size=1, max_size=12),
    st.floats(0, 1),
    PROBABILITY,
)
def test_the_identity_and_the_bounds_and_that_pruning_keeps_every_cliff(
    tokens: list[tuple[float, float]],
    final: float,
    delta: float,
) -> None:
    pi, others = (np.array(each) for each in zip(*tokens, strict=True))
    world = solved(pi.tolist(), others.tolist(), final)
    assert world.drops == pytest.approx((1 - pi) * world.contrasts, abs=1e-9)
    assert (np.abs(world.drops) <= 1 - pi + 1e-9).all()
    whole = 1 - np.prod(world.trace.probabilities)
    assert abs(world.potentials[-1] - world.potentials[0]) <= whole + 1e-9
    assert set(world.cliffs(delta + 1e-9)) <= set(unpruned(world.trace, delta).tolist())


@given(PROBABILITY)
def test_pruning_is_sharp(pi: float) -> None:
    """Where other tokens win and this one loses the drop is all of 1 - pi; no
    token could fall further.
    """
    world = solved([pi], [1.0], 0.0)
    assert world.cliffs(1 - pi - 1e-9) == (0,)
    assert unpruned(world.trace, 1 - pi - 1e-9).tolist() == [0] and not len(
        unpruned(world.trace, 1 - pi + 1e-9)
    )


def test_a_potential_that_other_tokens_cannot_make_up_for_is_refused() -> None:
    with pytest.raises(ValueError, match="bound"):
        solvable_trace("w", [0.9], [0.9, 0.2])


@settings(max_examples=5)
@given(st.integers(0, 10_000))
def test_the_benchmark_world_is_what_it_says(seed: int) -> None:
    for world in random_traces("long", 3, seed):
        free = 1 - world.trace.probabilities
        cliffs = world.cliffs(0.199)
        assert len(world.trace) == 300 and 70 <= (free > 0.05).sum() <= 76 and len(cliffs) <= 3
        quiet = np.delete(world.drops, cliffs)
        assert np.abs(quiet).max() < 0.06 and (quiet != 0).mean() > 0.9
