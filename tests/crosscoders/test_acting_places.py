"""A latent is tested where it acts, and on what training changed there."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from crosscoders.activations.harvest import harvest
from crosscoders.activations.streams import texts_of
from crosscoders.patching.decisions import changed_themes, starting_with, theme_of
from crosscoders.study.causes import (
    FEWEST,
    Probe,
    acting_places,
    causes,
    causes_where_they_act,
)
from forensics.progress import silent
from forensics.records import Step, Trajectory
from tests.crosscoders.steering_world import SHARED, SITE, cued_runs, known_dictionary

EARLY = 3  # a token of the prompt that passes for a first decision here


@pytest.fixture(scope="module")
def runs(pair):
    return cued_runs(pair)


@pytest.fixture(scope="module")
def stream(pair, runs):
    """Texts with a decision before that at which the planted latent is active."""
    texts = []
    for text in texts_of(runs, sources={pair.after.identity: "after"}):
        deciding = text.deciding.copy()
        deciding[EARLY] = True
        texts.append(replace(text, deciding=deciding))
    return harvest((pair.before, pair.after), texts, SITE)


def moved(pair, runs, stream, latents, dictionary=None):
    inquiry = SimpleNamespace(
        policies=(pair.before, pair.after),
        streams=SimpleNamespace(learnt=stream, reported=stream),
        behaviours=[starting_with(kind, runs) for kind in ("test", "history")],
        progress=silent,
    )
    return causes_where_they_act(inquiry, dictionary or known_dictionary(pair), latents, 96)


@torch.no_grad()
def test_it_acts_at_a_decision_else_before_the_one_that_follows(pair, stream):
    dictionary, latents = known_dictionary(pair), [SHARED, 0, 7]
    found = acting_places(dictionary, stream, latents)
    rows = {latent: {} for latent in latents}
    for block in stream.blocks():
        codes = dictionary.encode(dictionary.scaled(block.activations)).dense(SHARED + 1)
        for row, text in enumerate(block.rows.text.tolist()):
            for latent in latents:
                place = int(block.rows.position[row]), float(codes[row, latent])
                rows[latent].setdefault(text, []).append(place)
    for latent in latents:
        expected = {}
        for text, told in rows[latent].items():
            decisions = np.flatnonzero(stream.tokenized[text].deciding)
            there = [one for one in told if one[0] in decisions and one[1] > 0]
            before = there or [one for one in told if one[0] <= decisions[-1]]
            at, value = max(before, key=lambda one: one[1])
            if value > 0:
                expected[text] = next(int(one) for one in decisions if one >= at)
        assert found[latent] == expected
    assert found[SHARED] and min(found[SHARED].values()) > EARLY


def test_what_is_silent_at_the_first_decision_is_tested_where_it_acts(pair, runs, stream):
    first = Probe.of(pair.after, stream, starting_with("history", runs))
    assert causes(first, known_dictionary(pair), [SHARED])[SHARED].effect.estimate == 0
    found = moved(pair, runs, stream, [SHARED, 0])
    assert found[SHARED].holds and found[SHARED].effect.high < -0.05
    assert found[SHARED].measure == "chance of start history where it acts"
    assert found[SHARED].undone.low > 0.5 and not found[0].holds


def test_where_too_few_tasks_have_it_nothing_is_tested(pair, runs, stream):
    few = stream.part(stream.tokenized[: FEWEST - 1])
    assert moved(pair, runs, few, [SHARED]) == {}
    mute = known_dictionary(pair)
    mute.threshold.data.fill_(float("inf"))
    assert moved(pair, runs, stream, [SHARED], mute) == {}


def run(policy, task, *kinds):
    steps = [Step(role="assistant", text=kind, kinds=(kind,)) for kind in kinds]
    return Trajectory(
        id=f"{policy}-{task}",
        task=task,
        policy=policy,
        environment="",
        seed=0,
        outcome=None,
        end="terminated",
        steps=tuple(steps),
    )


def test_what_training_surely_changed_is_asked_for_beside_the_theme():
    runs = []
    for number in range(40):
        task = f"task-{number}"
        runs.append(run("old", task, "look", "edit", *(["lost"] if number % 2 else [])))
        kinds = ["look", "leak", *(["edit"] if number % 4 == 0 else [])]
        kinds += ["noise"] if number == 3 else []
        runs.append(run("new", task, *kinds))
    pair = ("old", "new")
    theme = theme_of(runs, pair, ())
    found = changed_themes(theme, runs, pair)
    assert [one.name for one in found] == ["leak", "edit", "lost"]
    assert (found[1].before, found[1].after) == (1.0, 0.25)
    assert changed_themes(theme, runs, pair, alone=True) == [theme]
    assert changed_themes(None, runs, pair) == []
    assert changed_themes(theme, runs, ("old", "elsewhere")) == [theme]
