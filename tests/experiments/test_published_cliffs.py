"""Published cliffs against the identity: each figure of the study has an oracle of its own."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from experiments.published_cliffs import __main__ as study
from experiments.published_cliffs.bounds import (
    DRAWS,
    dispersion,
    false_rate,
    greedy_mass,
    is_possible,
    threshold,
)

DATA = Path(__file__).parents[3] / "shared" / "data" / "cliff_token"
shares = st.floats(0.001, 1)


@given(st.lists(st.tuples(shares, st.floats(0, 1)), min_size=2, max_size=12), st.data())
def test_no_set_of_tokens_falls_further_than_the_bound(
    tokens: list[tuple[float, float]], data: st.DataObject
) -> None:
    """Potentials by the law of total probability: the mean drop of any set of
    tokens is one that we call possible.
    """
    pi, p = np.array(tokens).T
    pi = pi / pi.sum()
    chosen = data.draw(st.sets(st.integers(0, len(pi) - 1), min_size=1))
    inside = np.isin(np.arange(len(pi)), list(chosen))
    drop = pi @ p - (pi[inside] @ p[inside]) / pi[inside].sum()
    assert is_possible(min(pi[inside].sum(), 1), drop - 1e-9)


@given(st.lists(shares, min_size=2, max_size=30))
def test_a_greedy_token_has_at_least_the_mass_that_its_entropy_asks_for(
    weights: list[float],
) -> None:
    pi = np.array(weights) / sum(weights)
    assert pi.max() >= greedy_mass(-(pi * np.log(pi)).sum()) - 1e-12


@pytest.mark.parametrize("potential", [0.3, 0.5])
def test_false_cliffs_on_a_flat_potential_as_often_as_computed(potential: float) -> None:
    rng = np.random.default_rng(0)
    before, after = rng.binomial(DRAWS, potential, (2, 400_000)) / DRAWS
    called = np.mean(before - after > threshold(before, after))
    assert called == pytest.approx(
        false_rate(potential), abs=5 * np.sqrt(false_rate(potential) / 400_000)
    )


def test_dispersion_is_one_for_noise_and_above_where_the_potential_moves() -> None:
    rng = np.random.default_rng(1)
    flat = rng.binomial(DRAWS, 0.4, 20_000) / DRAWS
    moving = rng.binomial(DRAWS, np.where(np.arange(20_000) % 2, 0.3, 0.5)) / DRAWS
    assert dispersion(flat)[0] == pytest.approx(1, abs=0.05)
    assert dispersion(moving)[0] > 2


def test_steps_that_say_nothing_or_are_left_out_do_not_count() -> None:
    assert dispersion([0.5, 0.25, 1.0, 1.0, 1.0], left_out=[0]) == (
        pytest.approx(0.75**2 / (0.1875 / 63)),
        1,
    )


@pytest.mark.skipif(not DATA.is_dir(), reason="the published tables are not here")
def test_every_deterministic_cliff_that_was_published_is_impossible() -> None:
    found = study.study(DATA)
    for part in ("positions", "tokens"):
        assert (
            found[part]["DF"]["impossible"]
            == found[part]["DF"]["n"]
            == found[part]["DF"]["above_0.99"]
            > 50
        )
        assert found[part]["SS"]["share"] < 0.05
