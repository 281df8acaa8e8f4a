"""What a latent causes, beside random directions of equal activation size."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from crosscoders.activations.harvest import harvest
from crosscoders.activations.streams import plain_text
from crosscoders.patching.decisions import starting_with
from crosscoders.steering.activation_edits import feature_change
from crosscoders.study.causes import RANDOM, WORTH, Probe, caused, causes
from forensics.errors import UserError
from tests.crosscoders.steering_world import (
    SHARED,
    SITE,
    cued_runs,
    known_dictionary,
    stream_of,
)


@pytest.fixture(scope="module")
def runs(pair):
    return cued_runs(pair)


@pytest.fixture(scope="module")
def stream(pair, runs):
    return stream_of(pair, runs)


@pytest.fixture(scope="module")
def probe(pair, runs, stream):
    return Probe.of(pair.after, stream, starting_with("history", runs))


def test_the_planted_latent_causes_the_behaviour_and_others_do_not(pair, probe):
    found = causes(probe, known_dictionary(pair), [SHARED, *range(6)])
    planted = found.pop(SHARED)
    assert planted.holds and planted.p_value == 1 / (RANDOM + 1)
    assert planted.effect.high < -0.05 < planted.unchanged
    assert len(set(planted.random)) == RANDOM  # each is drawn anew
    assert not any(one.holds for one in found.values())
    tiny = [one for one in found.values() if one.p_value < 0.05 and one.beyond.low > 0]
    assert all(abs(one.effect.estimate) < WORTH[0] for one in tiny)


def test_the_chance_is_that_of_a_model_whose_site_is_changed_by_hand(pair, probe, stream):
    change = feature_change(
        known_dictionary(pair), [SHARED], mode="ablate", acting="after", strength=1.0
    )
    told = probe.values(change)
    for batch in probe.batches:
        for row, member in enumerate(batch.members):
            own, other = batch.pairs[row, :, 1], batch.pairs[row, :, 0]
            handle = pair.after.model.model.layers[1].register_forward_hook(
                lambda _m, _a, out, own=own, other=other: (
                    (change.apply(own, other)[None], *out[1:])
                    if isinstance(out, tuple)
                    else change.apply(own, other)[None]
                )
            )
            with torch.no_grad():
                logits = pair.after.model(batch.tokens[row][None]).logits[0, -1]
            handle.remove()
            first = [action[0] for action in probe.behaviour.actions]
            assert told[member] == pytest.approx(float(logits.softmax(-1)[first].sum()), abs=1e-5)


def test_a_change_of_nothing_moves_nothing_and_fails(probe, pair):
    silent = known_dictionary(pair)
    with torch.no_grad():
        silent.threshold.fill_(float("inf"))
    change = feature_change(silent, [SHARED], mode="ablate", acting="after", strength=1.0)
    assert np.array_equal(probe.values(change), probe.values())
    found = caused(probe, change)
    assert not found.holds and found.effect.estimate == found.dose == 0 and found.p_value == 1


def test_without_a_behaviour_the_loss_is_read(pair, stream):
    probe = Probe.of(pair.after, stream, None)
    assert probe.measure == "loss"
    batch = probe.batches[0]
    with torch.no_grad():
        logs = pair.after.model(batch.tokens[:1]).logits[0].log_softmax(-1)
    own = -logs[:-1].gather(-1, batch.tokens[0, 1:, None]).mean()
    assert probe.values()[batch.members[0]] == pytest.approx(float(own), abs=1e-5)
    assert causes(probe, known_dictionary(pair), [SHARED])[SHARED].effect.estimate != 0


def test_directions_drawn_at_random_rarely_pass(pair, probe):
    """They are what they are set beside, so 1 in 21 passes the first half of the test."""
    change = feature_change(
        known_dictionary(pair), [SHARED], mode="ablate", acting="after", strength=1.0
    )
    generator, clean = torch.Generator().manual_seed(7), probe.values()
    passed = [
        caused(probe, change.turned(generator), seed=seed, unchanged=clean).holds
        for seed in range(20)
    ]
    assert sum(passed) <= 3


def test_one_task_is_refused(pair):
    texts = [plain_text([1, 2, 3], "one", "one")]
    stream = harvest((pair.before, pair.after), texts, SITE)
    with pytest.raises(UserError, match="at least two tasks"):
        Probe.of(pair.after, stream, None)


@dataclass(frozen=True, kw_only=True)
class Moving:
    """A change that moves tasks in fours so much, and turned at random another so much."""

    own: tuple[float, ...]
    other: tuple[float, ...]
    strength: float = 1.0

    def turned(self, _):
        return replace(self, own=self.other)


class Reading:
    """Reads a loss of 1, and what a change adds to it."""

    measure, is_chance = "loss", False

    def nats(self, values):
        return values

    def values(self, change=None):
        moved = 0 if change is None else change.strength * np.tile(change.own, 4)
        return np.ones(16) + moved


@pytest.mark.parametrize(
    ("own", "other", "holds"),
    [
        ((1.0, 1.1, 0.9, 1.0), (0.5, 0.4, 0.6, 0.5), True),
        ((1.0, 1.1, 0.9, 1.0), (-0.5, -0.4, -0.6, -0.5), True),
        ((1.0, 1.1, 0.9, 1.0), (-1.5, -1.4, -1.6, -1.5), False),  # further, the other way
        ((3.0, -1.0, 3.0, -1.0), (0.95, 0.95, 0.95, 0.95), False),  # by less than the tasks' spread
        ((4e-4, 5e-4, 4e-4, 5e-4), (1e-5, 1e-5, 1e-5, 1e-5), False),  # not worth a word
    ],
)
def test_what_holds_is_furthest_by_more_than_the_spread_and_worth_a_word(own, other, holds):
    found = caused(Reading(), Moving(own=own, other=other))
    assert bool(found.holds) is holds
    largest = abs(np.mean(own)) > abs(np.mean(other))
    assert found.p_value == (1 / (RANDOM + 1) if largest else 1)
    assert len(found.random) == (RANDOM if largest else 1)
    assert found.dose == pytest.approx(np.mean(own) / 4)
    assert found.effect.estimate == pytest.approx(np.mean(own)) and found.undone is None


def test_a_share_is_told_of_what_surely_changed_for_the_better():
    change = Moving(own=(0.5, 0.4, 0.5, 0.6), other=(0.0, 0.0, 0.0, 0.0))
    for rise, share in (((-1.0, -0.8, -1.0, -1.2), 0.5), ((1.0, 0.8, 1.0, 1.2), None)):
        found = caused(Reading(), change, rise=np.tile(rise, 4))
        assert (found.undone and found.undone.estimate) == (share and pytest.approx(share))
    assert caused(Reading(), change, rise=np.tile((-2.0, 1.0, -2.0, 1.0), 4)).undone is None
