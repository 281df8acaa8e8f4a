"""Which source of the gain a latent belongs to: a planted one, and what names none."""

import json

import numpy as np
import pytest
import torch

from crosscoders.activations.harvest import harvest
from crosscoders.activations.streams import StepNote, TextNote, texts_of
from crosscoders.study.diff_page import sentences_of
from crosscoders.study.measures import (
    _standing_out,
    decided_sources,
    latent_sources,
    sources_of_case,
)
from forensics.protocols import SamplingSettings
from tests.crosscoders.steering_world import SHARED, SITE, cued_runs, known_dictionary, stream_of


@pytest.fixture(scope="module")
def runs(pair):
    """Of cued and of other tasks."""
    tasks = pair.environment.tasks("held-out", 60, 0)
    return list(pair.after.play(pair.environment, tasks, 1, SamplingSettings(), 4))


def read(pair, runs, outcome):
    ended = [run.model_copy(update={"outcome": outcome}) for run in runs]
    return harvest((pair.before, pair.after), texts_of(ended), SITE)


@pytest.fixture(scope="module")
def stream(pair, runs):
    return read(pair, runs, 1.0)


def test_the_planted_latent_belongs_to_the_kind_that_its_direction_raises(pair, stream):
    found = latent_sources(
        known_dictionary(pair), stream, [SHARED, 0, 1, 2], ["list", "history", "prompt:code"]
    )
    planted = found.pop(SHARED)
    assert planted["name"] == "history"
    assert planted["share"]["low"] > planted["of_decisions"]
    assert planted["share"]["estimate"] > 0.5
    assert all(one is None or one["name"] != "prompt:code" for one in found.values())
    (said,) = sentences_of({"source": planted})
    assert said.startswith("Source of the gain: history, with ")


def test_without_sources_or_won_runs_a_latent_belongs_nowhere(pair, runs, stream):
    dictionary = known_dictionary(pair)
    assert latent_sources(dictionary, stream, [SHARED], []) == {SHARED: None}
    assert latent_sources(dictionary, stream, [SHARED], ["prompt:code"]) == {SHARED: None}
    lost = read(pair, runs, 0.0)
    assert latent_sources(dictionary, lost, [SHARED], ["history"]) == {SHARED: None}


def test_a_latent_that_is_always_active_belongs_nowhere(pair, stream):
    dictionary = known_dictionary(pair)
    with torch.no_grad():
        dictionary.bias[0] = 1000.0
    assert latent_sources(dictionary, stream, [0], ["history", "list"]) == {0: None}


def test_a_decision_is_for_its_action_and_what_that_and_the_prompt_show():
    steps = (
        StepNote(role="user", channels=("cue",)),
        StepNote(role="assistant", kinds=("look",)),
        StepNote(role="tool", channels=("leak",)),
        StepNote(role="assistant", kinds=("edit",)),
    )
    text = TextNote(id="one", task="one", steps=steps)
    assert decided_sources(text, 0, sampled=False) == {"cue", "look", "leak"}
    assert decided_sources(text, 1, sampled=True) == {"cue", "edit"}
    assert decided_sources(text, 3, sampled=True) == set()


def test_a_case_names_what_surely_carries_some_of_the_gain(tmp_path):
    def row(about, low, question="refusal.carried"):
        about = {"about": about} if about else {}
        return {
            "kind": "evidence",
            "question": question,
            **about,
            "estimate": low + 0.1,
            "interval": {"low": low, "high": low + 0.2, "level": 0.95},
            "unit": "score difference",
            "layer": "score",
            "method": "m",
            "summary": "s",
            "n": 10,
            "clusters": 10,
            "provenance": {"instrument": "i", "code": "c", "inputs": {}, "config": {}, "seed": 0},
        }

    rows = [
        row("look", 0.2),
        row("edit", -0.05),
        row("look + edit", 0.3),
        row("leak", 0.5, "gain.channel"),
        row("turns", 0.5, "behaviour.turns"),
    ]
    assert sources_of_case(tmp_path) == ()
    (tmp_path / "evidence.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert sources_of_case(tmp_path) == ("leak", "look")


@pytest.mark.parametrize(
    ("spread", "sources", "found"),
    [(0.1, 9, True), (0.5, 1, False), (0.29, 1, True), (0.29, 9, False)],
)
def test_a_source_stands_out_by_its_interval_at_a_level_for_all_sources(spread, sources, found):
    """Of decisions a half are for the first source, of the activity .7 on average over tasks."""
    turns = np.tile([1.0, -1.0], 10)
    activity, rows = np.ones((20, sources + 1)), np.ones((20, sources + 1))
    activity[:, :-1], rows[:, :-1] = 0.0, 0.5
    activity[:, 0] = 0.7 + spread * turns
    told = _standing_out(activity, rows, [f"source {n}" for n in range(sources)])
    assert (told is not None) is found


def test_runs_of_one_task_are_no_tasks_of_their_own(pair, runs, stream):
    again = [run.model_copy(update={"id": f"{run.id} again"}) for run in runs]
    twice, dictionary = read(pair, [*runs, *again], 1.0), known_dictionary(pair)
    once, both = (
        latent_sources(dictionary, one, [SHARED], ["history"])[SHARED] for one in (stream, twice)
    )
    assert once is not None and both is not None
    for end in ("low", "high"):
        assert both["share"][end] == pytest.approx(once["share"][end], abs=1e-6)


def test_where_the_after_model_won_runs_they_alone_are_read(pair):
    runs = cued_runs(pair, pair.before, pair.after)
    won, dictionary = (
        [run.model_copy(update={"outcome": 1.0}) for run in runs],
        known_dictionary(pair),
    )
    both, own = (
        latent_sources(dictionary, stream_of(pair, part), [SHARED], ["history"])[SHARED]
        for part in (won, won[len(won) // 2 :])
    )
    assert own is not None and both == own
