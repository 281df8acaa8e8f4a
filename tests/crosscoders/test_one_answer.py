"""What latents cause in a world of one turn, alone and together: a planted direction that makes
the answer.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from crosscoders.latents.row_groups import WIN
from crosscoders.latents.table import latent_table
from crosscoders.study.causes import RANDOM, Probe, causes
from crosscoders.study.leading_reader import read_difference
from crosscoders.study.material import PAIR
from crosscoders.study.reported import causing_together, latent_sets, reported, sentence
from tests.crosscoders.steering_world import (
    PARTS,
    SHARED,
    cued_runs,
    inquiry_of,
    known_dictionary,
    split,
    stream_of,
)
from tests.crosscoders.test_findings import table


def answered(run):
    """The run ended with its first action, and won by asking for the history."""
    end = 1 + next(number for number, step in enumerate(run.steps) if step.role == "assistant")
    won = float("history" in run.steps[end - 1].kinds)
    return run.model_copy(update={"steps": run.steps[:end], "outcome": won})


@pytest.fixture(scope="module")
def runs(pair):
    return cued_runs(pair)


@pytest.fixture(scope="module")
def stream(pair, runs):
    return stream_of(pair, [answered(run) for run in runs])


@pytest.fixture(scope="module")
def probe(pair, stream):
    return Probe.of(pair.after, stream, None)


def test_the_chance_of_a_won_answer_is_what_the_planted_direction_moves(pair, probe):
    assert probe.measure == "chance of the won answers"
    rise = probe.rise(pair.before)
    found = causes(probe, known_dictionary(pair), [SHARED, *range(6)], rise=rise)
    planted = found.pop(SHARED)
    assert planted.holds and planted.p_value == 1 / (RANDOM + 1)
    assert planted.undone.low > 0.5 and planted.effect.high < 0
    assert not any(one.holds for one in found.values())
    assert all(abs(one.undone.estimate) < 0.2 for one in found.values())


def test_the_chance_is_that_of_all_tokens_of_the_answer(pair, probe, stream):
    won = {text.note.task: text for text in stream.tokenized if text.note.outcome >= WIN}
    assert set(probe.tasks) == set(won) and len(won) < len(stream.tokenized)
    for task, value in zip(probe.tasks, probe.values(), strict=True):
        ids = torch.from_numpy(won[task].token_ids).long()
        with torch.no_grad():
            logs = pair.after.model(ids[None]).logits[0, :-1].double().log_softmax(-1)
        own = logs.gather(-1, ids[1:, None])[won[task].sampled[1:]]
        assert value == pytest.approx(float(own.sum().exp()), abs=1e-5)


def test_runs_of_several_actions_and_worlds_without_a_win_are_read_by_their_loss(pair, runs):
    assert Probe.of(pair.after, stream_of(pair, runs), None).measure == "loss"
    lost = [answered(run).model_copy(update={"outcome": 0.0}) for run in runs]
    assert Probe.of(pair.after, stream_of(pair, lost), None).measure == "loss"


def test_the_loss_of_the_same_texts_misses_the_planted_direction(pair, runs):
    silent = [answered(run).model_copy(update={"outcome": None}) for run in runs]
    probe = Probe.of(pair.after, stream_of(pair, silent), None)
    assert probe.measure == "loss"
    assert not causes(probe, known_dictionary(pair), [SHARED])[SHARED].holds


def test_answers_without_a_chance_worth_a_word_are_read_by_their_loss(pair, probe, stream):
    assert probe.is_chance
    with torch.no_grad():
        head = pair.after.model.get_output_embeddings().weight
        own = head.clone()
        head.mul_(0)  # every token is as likely: a chance of 1 in a vocabulary, several times
        rare = Probe.of(pair.after, stream, None)
        head.copy_(own)
    assert rare.measure == "loss of the won answers" and not rare.is_chance
    assert np.allclose(rare.values(), rare.nats(rare.values())) and rare.values().min() > 0


def test_a_direction_that_many_latents_write_bit_by_bit_is_found_as_a_set(pair, probe, stream):
    parts = split(pair)
    members, rise = list(range(SHARED, SHARED + PARTS)), probe.rise(pair.before)
    alone = causes(probe, parts, members[:2], rise=rise)
    assert not any(one.holds for one in alone.values())
    found = latent_sets(probe, rise, [parts, parts], stream, members, members)
    assert causing_together(found, 1) and found[0].undone.low > 0.5
    assert max(found[0].random_undone) < found[0].undone.estimate
    causing = dict.fromkeys(members, False)
    own = table(members, [1.0] * (SHARED + PARTS))
    told = reported(own, [], 1, causing, f"the {probe.measure}", found)
    assert told.latents == [] and told.together == tuple(members)
    assert told.sentences[0].startswith(f"Taken out together, the {PARTS} latents")
    assert "makes none of them a finding" in told.sentences[0]


def test_a_set_that_goes_beyond_what_training_changed_is_told_in_words(pair, probe, stream):
    rise, members = probe.rise(pair.before), list(range(SHARED, SHARED + PARTS))
    (one,) = latent_sets(probe, rise, [split(pair)], stream, members, members)
    for share, told in (
        (0.5, "undo 50 % [40 %, 60 %]"),
        (3.0, "undo more than all"),
        (-2.46, "go the other way by more than all"),
    ):
        undone = replace(one.undone, estimate=share, low=share - 0.1, high=share + 0.1)
        other = replace(one, cause=replace(one.cause, undone=undone))
        assert f"own {told} of what training changed" in sentence([other], 0)
        seeds = sentence([one, replace(other, seed=1)], 1)
        alone = told.partition(" [")[0].removeprefix("undo ").removeprefix("go ")
        assert f"those of 1 other seed {alone}" in seeds


def test_latents_that_write_nothing_of_it_are_no_set_that_causes(pair, probe, stream):
    rise = probe.rise(pair.before)
    found = latent_sets(probe, rise, [known_dictionary(pair)], stream, [0, 1, 2], [0])
    assert [one.which for one in found] == ["specific"] and not causing_together(found, 0)
    assert not found[0].cause.holds and "not shown to be" in sentence(found, 0)


def test_a_test_that_stopped_tells_of_the_directions_that_were_tried(pair, probe, stream):
    rise = probe.rise(pair.before)
    found = latent_sets(probe, rise, [known_dictionary(pair)], stream, [0, 1, 2], [0])
    cause = found[0].cause
    assert cause.turned is not None and len(cause.turned) == len(cause.random) < RANDOM
    assert all(abs(one) < abs(cause.dose) for one in cause.random[:-1])
    assert abs(cause.random[-1]) >= abs(cause.dose) and cause.p_value == 1 / len(cause.random)
    undone = [-0.1 * cause.unchanged, -0.3 * cause.unchanged, -0.4 * cause.unchanged]

    def said(number):
        part = replace(cause, turned=tuple(undone[:number]))
        return sentence([replace(found[0], cause=part, before=0.0)], 0)

    assert "turned at random once, 10 %, where the test stopped)" in said(1)
    assert "turned at random 30 % in the median of 3, 40 % at most, where the test" in said(3)
    undone = undone[:1] * RANDOM
    assert "turned at random 10 % in the median of 20, 10 % at most)" in said(RANDOM)


def test_the_set_of_another_seed_is_read_in_its_own_dictionary(pair, probe, stream):
    """Two of two latents there; of the same numbers here half of the direction is left."""
    members, rise = list(range(SHARED, SHARED + PARTS)), probe.rise(pair.before)
    found = latent_sets(probe, rise, [split(pair), split(pair, 2)], stream, members, members)
    assert [one.latents for one in found] == [tuple(members), tuple(members[:2])]
    own, other = (one.undone.estimate for one in found)
    assert other == pytest.approx(own, abs=0.01)


def test_a_reader_of_answers_is_tested_whole(pair, stream, tmp_path):
    dictionary, streams = (
        known_dictionary(pair),
        SimpleNamespace(reported=stream, chosen=stream, small=True),
    )
    inquiry = inquiry_of(pair, streams, tmp_path)
    found, _ = read_difference(inquiry, {PAIR: dictionary}, latent_table(dictionary, stream), 0)
    assert found and all(one.cause is one.whole and one.cause.turned for one in found)


def test_a_set_that_another_seed_lacks_does_not_come_back(pair, probe, stream):
    mute = split(pair)
    with torch.no_grad():
        mute.threshold.fill_(float("inf"))
    members = list(range(SHARED, SHARED + PARTS))
    rise = probe.rise(pair.before)
    found = latent_sets(probe, rise, [split(pair), mute], stream, members, members)
    assert found[0].cause.holds and not causing_together(found, 1)
    idle = replace(found[0], seed=1, cause=replace(found[0].cause, holds=False))
    assert not causing_together([found[0], idle], 1)
    assert causing_together([found[0], replace(idle, cause=found[0].cause)], 1) == tuple(members)
