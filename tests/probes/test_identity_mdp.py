"""A* = beta * (sum over a step's tokens of the log-ratio), in a world where
both sides are known exactly.
"""

from functools import cache

import numpy as np
import pytest

from forensics.policies.sampled_tokens import TokenScores
from probes.grades.step_grades import grade, step_rewards
from tests.probes.identity_mdp import (
    STATES,
    STEPS,
    World,
    advantages,
    ascend,
    draw_world,
    error,
    step_logprobs,
    token_places,
)
from tests.probes.scored_runs import scored

UPDATES = 1500
BOTH = pytest.mark.parametrize("certain", [True, False], ids=["certain", "random"])


def world_of(certain: bool) -> World:
    return draw_world(np.random.default_rng(0), certain=certain)


@cache
def trained(certain: bool, updates: int = UPDATES) -> np.ndarray:
    *_, last = ascend(world_of(certain), updates)
    return last


def walk(
    world: World, tokens: np.ndarray, other: np.ndarray, seed: int
) -> tuple[TokenScores, list[tuple[int, int]]]:
    """An episode of five steps as the scorer would give it, and its states and steps."""
    generator, state, taken = np.random.default_rng(seed), 0, []
    chances = np.exp(step_logprobs(tokens))
    for _ in range(5):
        step = int(generator.choice(len(STEPS), p=chances[state] / chances[state].sum()))
        taken.append((state, step))
        state = int(generator.choice(STATES, p=world.moves[state, step]))
    of = [
        [[float(table[at][place]) for place in token_places(STEPS[step])] for at, step in taken]
        for table in (tokens, other)
    ]
    return scored(of[0], of[1]), taken


def rewards(one: TokenScores, beta: float) -> list[float]:
    found = step_rewards(
        grade(one), one.trajectory, policy="after", reference="before", beta=beta
    ).rewards
    return [value for value in found if value is not None]


@BOTH
def test_at_the_optimum_the_identity_holds_for_every_step_of_every_state(certain: bool) -> None:
    assert error(trained(certain), world_of(certain)) < 1e-6


@BOTH
def test_before_the_optimum_it_does_not(certain: bool) -> None:
    world = world_of(certain)
    errors = [error(trained(certain, updates), world) for updates in (0, 10, 100, 300)]
    assert errors == sorted(errors, reverse=True) and errors[1] > 0.1 and errors[2] > 1e-3


@BOTH
def test_step_rewards_are_the_true_advantages(certain: bool) -> None:
    world, tokens = world_of(certain), trained(certain)
    truth = advantages(world)
    lengths = set()
    for seed in range(40):
        one, taken = walk(world, tokens, world.reference, seed)
        assert rewards(one, world.beta) == pytest.approx(
            [truth[place] for place in taken], abs=1e-6
        )
        lengths |= {len(STEPS[step]) for _, step in taken}
    assert lengths == {1, 2, 3}


def test_advantages_worked_by_hand() -> None:
    """Every step leads to state 0, so `A* = r - beta log sum reference exp(r /
    beta)`; rewards alike: all 0.
    """
    drawn = world_of(certain=True)
    home = np.zeros_like(drawn.moves)
    home[..., 0] = 1
    world = World(rewards=drawn.rewards, moves=home, reference=drawn.reference, beta=0.7)
    chances = np.exp(step_logprobs(world.reference))
    by_hand = world.rewards - 0.7 * np.log(
        (chances * np.exp(world.rewards / 0.7)).sum(1, keepdims=True)
    )
    assert advantages(world) == pytest.approx(by_hand, abs=1e-9)
    flat = World(rewards=np.ones_like(world.rewards), moves=drawn.moves, reference=drawn.reference)
    assert advantages(flat) == pytest.approx(0, abs=1e-9)
