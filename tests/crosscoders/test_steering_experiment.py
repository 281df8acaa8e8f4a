"""Experiments from files on a planted pair: the feature that causes the behaviour moves it,
random directions and a silent feature do not, and a wrong prediction is said to be wrong.
"""

import hashlib
import json
import re

import pytest
import torch

from crosscoders.dictionaries.saved import save_dictionary
from crosscoders.steering.evaluation import Bench
from crosscoders.steering.experiment import SteeringExperiment
from crosscoders.steering.experiment_file import read_experiment
from crosscoders.steering.experiment_result import Found, result_of
from forensics.errors import UserError
from forensics.records import canonical_json
from forensics.study import run_study
from tests.crosscoders.steering_world import SHARED, SITE, cued, known_dictionary
from training.environments.mini_repo import MiniRepo

SILENT = 0  # a latent whose threshold nothing reaches
HEAD = f"""
dictionary = "dictionary"
measure = "kind:history"
strengths = 1
tasks = 12
choosing = 12
samples = 1
controls = 2
features = {SHARED}
"""
DOWN = HEAD + '[predicts]\nbeyond_random = false\neffect = "down"\nat_least = 0.1\n'
SURE = DOWN.replace("controls = 2", "controls = 19").replace("beyond_random = false\n", "")
TEXTS = '[side_effects]\ntexts = "harmless.txt"\n'
NOTHING_ELSE = '[side_effects]\nelsewhere = "none"\n'


class Cued(MiniRepo):
    """Cued tasks only, so that the behaviour is there to be removed."""

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        drawn = MiniRepo.tasks(self, split, 8 * number, seed)
        shown = ((task, self.spawn().reset(task, 0).text) for task in drawn)
        return tuple(task for task, text in shown if cued(text))[:number]


@pytest.fixture(scope="module")
def folder(pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    dictionary = known_dictionary(pair)
    with torch.no_grad():
        dictionary.threshold[SILENT] = 1e6
    save_dictionary(dictionary, folder / "dictionary", site=SITE)
    (folder / "harmless.txt").write_text("fail pear : 3 -> 12\n\nadd 1 fig : x * 2 - 6")
    return folder


def experiment_of(pair, folder, name):
    return SteeringExperiment(
        experiment=read_experiment(folder / f"{name}.toml"),
        before=pair.before,
        after=pair.after,
        environment=Cued(world="capped"),
    )


def carried_out(pair, folder, text, name):
    (folder / f"{name}.toml").write_text(text)
    return run_study(experiment_of(pair, folder, name), folder / name).summary


def rows_of(found, role):
    return [row for row in found["rows"] if row["role"] == role]


@pytest.fixture(scope="module")
def planted(pair, folder):
    return carried_out(pair, folder, DOWN + TEXTS, "planted")


def test_the_planted_feature_moves_the_behaviour(planted) -> None:
    assert planted["prediction"]["verdict"] == "held"
    assert planted["summary"]["effect"]["estimate"] < -0.3
    assert planted["summary"]["effect"]["estimate"] < min(planted["summary"]["random_directions"])
    (refused,) = rows_of(planted, "refusal")
    assert refused["measured"]["estimate"] == 0 and refused["effect"]["estimate"] < -0.2


def test_the_difference_itself_is_a_baseline_that_may_lead(planted) -> None:
    """One after-only direction is the whole difference, so the simpler readers find it too,
    and the first sentence says so.
    """
    effect = planted["summary"]["effect"]["estimate"]
    for role in ("principal-component", "mean-direction"):
        (row,) = rows_of(planted, role)
        assert row["effect"]["estimate"] == pytest.approx(effect, abs=0.1)
    assert rows_of(planted, "projected-out")[0]["directions"] == 2
    assert planted["sentences"][0].startswith("A simpler change does as much or more")


def test_side_effects_are_told(planted) -> None:
    (row,) = rows_of(planted, "features")
    assert row["elsewhere"]["n"] == 12 and row["kl"]["texts"] == 2
    assert 0 < row["kl"]["estimate"] < rows_of(planted, "random-direction")[0]["kl"]["estimate"]
    assert rows_of(planted, "unsteered")[0]["kl"] is None
    assert rows_of(planted, "random-direction")[0]["elsewhere"] is None


def test_another_prediction_of_the_same_rows_is_said_to_be_wrong(planted, folder) -> None:
    def of(text):
        (folder / "again.toml").write_text(text)
        table = read_experiment(folder / "again.toml").table
        found = Found(
            measure="kind:history", rows=planted["rows"], missing={}, latents={}, sinks=False
        )
        return result_of(found, table, {**planted["experiment"], "inputs": {}})

    larger = 1 + abs(planted["summary"]["effect"]["low"])
    nothing = DOWN.replace('"down"\nat_least', '"none"\nat_most')
    for text in (DOWN.replace("down", "up"), DOWN.replace("0.1", f"{larger:.2f}"), nothing):
        found = of(text)
        assert found["prediction"]["verdict"] == "did not hold"
        assert any("It did not hold" in line for line in found["sentences"][:2])


def test_a_feature_that_does_nothing_is_said_not_to(pair, folder) -> None:
    text = HEAD.replace(f"features = {SHARED}", f"features = {SILENT}") + "project_out = []\n"
    none = text + '[predicts]\neffect = "none"\nat_most = 0.3\n' + NOTHING_ELSE
    found = carried_out(pair, folder, none, "silent")
    assert found["summary"]["effect"]["estimate"] == 0
    assert found["prediction"]["verdict"] == "held"
    assert any(line.startswith("0 ablated") and "no effect" in line for line in found["sentences"])
    assert found["missing"].keys() == {"KL divergence", "success elsewhere"}


@pytest.mark.slow
def test_beyond_random_directions_on_more_tasks(pair, folder) -> None:
    more = SURE.replace("tasks = 12", "tasks = 24\nfeature_controls = 3")
    found = carried_out(pair, folder, more, "sure")
    assert found["prediction"]["verdict"] == "held" and found["prediction"]["p_value"] == 1 / 20
    assert found["summary"]["moved"]["estimate"] > 0.6
    assert found["summary"]["effect"]["high"] < min(found["summary"]["random_directions"])
    others = rows_of(found, "random-feature")
    assert 1 <= len(others) <= 3 and all(row["features"] != [SHARED] for row in others)
    effect = found["summary"]["effect"]["estimate"]
    assert all(abs(row["effect"]["estimate"]) < 0.5 * abs(effect) for row in others)
    shared = SURE.replace(f"features = {SHARED}", "features = 3")
    assert carried_out(pair, folder, shared, "other")["prediction"]["verdict"] == "did not hold"


def test_the_page_is_one_file_for_offline(planted, folder) -> None:
    drawn = (folder / "planted" / "steering.html").read_text()
    for said in ("What was predicted", "By strength", "prediction: held", "harmless texts"):
        assert said in drawn
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/\S+", "", drawn)


@pytest.mark.slow
def test_sets_strengths_and_positions_are_all_run_and_drawn(pair, folder) -> None:
    text = HEAD.replace("strengths = 1", 'strengths = [1, 0.5]\nat = ["deciding", "everywhere"]')
    text = text.replace(f"features = {SHARED}", f'features = ["{SHARED},3", "pca:1"]')
    for old, new in (("tasks = 12", "tasks = 3"), ("controls = 2", "controls = 1")):
        text = text.replace(old, new)
    text = text.replace("choosing = 12", "choosing = 6")
    found = carried_out(pair, folder, text + NOTHING_ELSE, "curves")
    run = {(row["set"], row["strength"], row["at"]) for row in rows_of(found, "features")}
    assert run == {
        (name, strength, at)
        for name in (f"{SHARED},3", "pca:1")
        for strength in (0.5, 1.0)
        for at in ("deciding", "everywhere")
    }
    assert len(rows_of(found, "random-direction")) == 4, "at the whole strength alone"
    assert found["prediction"] is None and found["experiment"]["told_of"]["strength"] == 1
    drawn = (folder / "curves" / "steering.html").read_text()
    assert "pca:1, everywhere" in drawn and "Nothing; add [predicts]" in drawn


def test_it_is_killed_and_goes_on(pair, folder, planted, monkeypatch) -> None:
    """Same bytes; an edited prediction is another experiment."""
    played, play = [], Bench._played

    def dies(self, condition, tasks):
        if len(played) == 4:
            raise KeyboardInterrupt
        played.append(condition)
        return play(self, condition, tasks)

    def again(name, text, **more):
        (folder / f"{name}.toml").write_text(text)
        study = experiment_of(pair, folder, name)
        return run_study(study, folder / "cut", **more)

    monkeypatch.setattr(Bench, "_played", dies)
    with pytest.raises(KeyboardInterrupt):
        again("planted", DOWN + TEXTS)
    monkeypatch.setattr(Bench, "_played", play)
    again("planted", DOWN + TEXTS, resume=True)
    for file in ("steering.json", "steering.html", "experiment.toml"):
        assert (folder / "cut" / file).read_bytes() == (folder / "planted" / file).read_bytes()
    assert (folder / "cut" / "experiment.toml").read_text() == DOWN + TEXTS
    with pytest.raises(UserError, match="is not empty"):
        again("planted", DOWN + TEXTS)
    with pytest.raises(UserError, match="started with the experiment"):
        again("edited", (DOWN + TEXTS).replace("0.1", "0.05"), resume=True)


def test_the_hashes_are_those_of_the_file_and_of_what_it_names(planted, folder) -> None:
    content = (folder / "planted" / "experiment.toml").read_bytes()
    assert planted["experiment"]["experiment_sha256"] == hashlib.sha256(content).hexdigest()
    text = canonical_json(planted["inputs"])
    assert planted["experiment"]["inputs_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert (
        planted["inputs"]["texts"]
        == hashlib.sha256((folder / "harmless.txt").read_bytes()).hexdigest()
    )
    assert str(folder) not in json.dumps(planted)
