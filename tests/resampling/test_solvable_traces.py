"""The oracle itself: its potentials against plain simulation, and the identity they obey."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from resampling.cliffs.cliff_search import unpruned
from resampling.trace_rollouts import Request
from tests.resampling.random_traces import long_trace
from tests.resampling.solvable_traces import SolvableSampler, SolvableTrace, solvable_trace

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


@pytest.mark.parametrize("kept", [0, 40, 99, 299])
def test_potentials_are_the_success_rates_of_rollouts(kept: int) -> None:
    world = long_trace("w", np.random.default_rng(4), cliffs=2)
    assert near(outcomes(world, kept=kept), world.potentials[kept])


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
