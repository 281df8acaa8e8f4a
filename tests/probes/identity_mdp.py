"""A small world in which everything about progress advantage is known exactly.

1. A step is a string of 1 to 3 tokens of a vocabulary of 3 (token 0 ends it
   early): 15 steps, in each of 4 states.
2. A policy is a table of token logits, one row for each state and each
   beginning of a step.
3. The KL-regularised return (2606.26080) of a policy, `E sum_t gamma^t (r -
   beta log(pi / reference))`, is the solution of a linear system; `ascend`
   follows its exact gradient, plainly, and knows of no formula for the optimum.
4. `advantages` finds A* by soft value iteration over whole steps, and knows of
   no tokens and of no policy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

STATES: Final = 4
VOCABULARY: Final = 3
DISCOUNT: Final = 0.8
RATE: Final = 2.0
STEPS: Final[tuple[tuple[int, ...], ...]] = (
    (0,),
    (1, 0),
    (2, 0),
    *((i, j, k) for i in (1, 2) for j in (1, 2) for k in range(VOCABULARY)),
)
BEGINNINGS: Final = ((), (1,), (2,), (1, 1), (1, 2), (2, 1), (2, 2))


@dataclass(frozen=True, kw_only=True)
class World:
    """`rewards [states, steps]`, `moves [states, steps, states]` (chances of
    the next state), `reference` token log-probabilities `[states, beginnings,
    vocabulary]`, nats. `beta`: the weight of the KL.
    """

    rewards: np.ndarray
    moves: np.ndarray
    reference: np.ndarray
    beta: float = 1.0


def draw_world(generator: np.random.Generator, *, certain: bool) -> World:
    """`certain`: every step leads to one state."""
    shape = (STATES, len(STEPS))
    spread = generator.dirichlet(np.full(STATES, 0.7), shape)
    logits = 0.3 * generator.standard_normal((STATES, len(BEGINNINGS), VOCABULARY))
    return World(
        rewards=0.5 * generator.standard_normal(shape),
        reference=logits - np.log(np.exp(logits).sum(-1, keepdims=True)),
        moves=np.eye(STATES)[generator.integers(0, STATES, shape)] if certain else spread,
    )


def token_places(step: tuple[int, ...]) -> list[tuple[int, int]]:
    """Of each token of a step, the number of the beginning before it, and the token."""
    return [(BEGINNINGS.index(step[:place]), token) for place, token in enumerate(step)]


def step_logprobs(tokens: np.ndarray) -> np.ndarray:
    """`[states, steps]` from token log-probabilities `[states, beginnings, vocabulary]`."""
    return np.array(
        [[sum(row[place] for place in token_places(step)) for step in STEPS] for row in tokens]
    )


def advantages(world: World) -> np.ndarray:
    """A* `[states, steps]` by soft value iteration."""
    base = step_logprobs(world.reference)
    value, change = np.zeros(STATES), 1.0
    while change > 1e-13:
        worth = world.rewards + DISCOUNT * world.moves @ value
        found = world.beta * np.log(np.exp(base + worth / world.beta).sum(1))
        value, change = found, float(np.abs(found - value).max())
    worth = world.rewards + DISCOUNT * world.moves @ value
    best = world.beta * np.log(np.exp(base + worth / world.beta).sum(1))
    return np.asarray(worth - best[:, None])


def regularised_return(logits: torch.Tensor, world: World) -> torch.Tensor:
    """Mean over first states; `logits [states, beginnings, vocabulary]`
    float64. A scalar with its exact gradient.
    """
    tokens = logits.log_softmax(-1)
    rows = tokens.flatten(1) @ _incidence().T
    chances = rows.exp()
    gains = torch.from_numpy(world.rewards) - world.beta * (
        rows - torch.from_numpy(step_logprobs(world.reference))
    )
    moves = torch.einsum("sa,sat->st", chances, torch.from_numpy(world.moves))
    eye = torch.eye(STATES, dtype=torch.float64)
    return torch.linalg.solve(eye - DISCOUNT * moves, (chances * gains).sum(1)).mean()


def ascend(world: World, updates: int) -> Iterator[np.ndarray]:
    """Token log-probabilities `[states, beginnings, vocabulary]` before the
    first update and after each one.
    """
    logits = torch.from_numpy(world.reference.copy()).requires_grad_()
    yield world.reference
    for _ in range(updates):
        (slope,) = torch.autograd.grad(regularised_return(logits, world), logits)
        with torch.no_grad():
            logits += RATE * slope
        yield logits.detach().log_softmax(-1).numpy()


def error(tokens: np.ndarray, world: World) -> float:
    """The largest |beta * summed log-ratio - A*| over all states and steps."""
    ratio = step_logprobs(tokens) - step_logprobs(world.reference)
    return float(np.abs(world.beta * ratio - advantages(world)).max())


def _incidence() -> torch.Tensor:
    """`[steps, beginnings * vocabulary]`: 1 where a step has this token after this beginning."""
    found = torch.zeros((len(STEPS), len(BEGINNINGS) * VOCABULARY), dtype=torch.float64)
    for number, step in enumerate(STEPS):
        for at, token in token_places(step):
            found[number, at * VOCABULARY + token] = 1
    return found


def curve(world: World, marks: tuple[int, ...]) -> list[dict[str, float]]:
    """After so many updates: the largest error, and how the summed log-ratio
    goes with A* over all states and steps.
    """
    truth, base, rows = advantages(world), step_logprobs(world.reference), []
    for number, tokens in enumerate(ascend(world, max(marks))):
        if number in marks:
            ratio = step_logprobs(tokens) - base
            alike = (
                float(np.corrcoef(ratio.ravel(), truth.ravel())[0, 1])
                if ratio.any()
                else float("nan")
            )
            rows.append({"updates": number, "error": error(tokens, world), "correlation": alike})
    return rows
