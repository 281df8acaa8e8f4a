"""Experiment files: what they mean, and what cannot be meant, in one sentence with its cure."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st

from crosscoders.dictionaries.saved import save_dictionary
from crosscoders.steering.activation_edits import (
    along,
    principal_directions,
    projection,
)
from crosscoders.steering.experiment_file import Predicted, read_experiment
from crosscoders.steering.experiment_result import judged
from forensics.cli.main import main
from forensics.errors import UserError
from tests.crosscoders.steering_world import shift_change
from tests.crosscoders.test_steering_changes import AFTER, BEFORE, small
from training.organisms.organism import checkpoint_path

ROOT = Path(__file__).parents[2]
WHOLE = """
before = "B"
after = "A"
dictionary = "dictionary"
features = "contrast:4"
measure = "success"
[predicts]
effect = "down"
at_least = 0.3
"""


def read(tmp_path, text):
    (tmp_path / "one.toml").write_text(text)
    return read_experiment(tmp_path / "one.toml")


def test_ten_lines_are_an_experiment(tmp_path) -> None:
    found = read(tmp_path, WHOLE)
    assert found.table.tried == (0.5, 1.0, 2.0) and found.table.projected == (2,)
    assert found.table.told_of == ("contrast:4", 1.0, "deciding")
    assert found.place("dictionary") == tmp_path / "dictionary"


@pytest.mark.parametrize(
    ("written", "sets"),
    [
        ("12", ("12",)),
        ("[12, 17]", ("12,17",)),
        ('"12,17"', ("12,17",)),
        ('["top:4", "12"]', ("top:4", "12")),
        ("[[12, 17], 3]", ("12,17", "3")),
    ],
)
def test_sets_of_features(tmp_path, written, sets) -> None:
    assert read(tmp_path, WHOLE.replace('"contrast:4"', written)).table.features == sets


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("measure =", "mesure =", "unknown key 'mesure', did you mean 'measure'?"),
        ("at_least", "atleast", r"unknown key 'atleast' in \[predicts\], did you mean 'at_least'"),
        ("features =", "#", "features is missing; add it"),
        ('"contrast:4"', "[]", "features"),
        ('"contrast:4"', '"best"', "neither a list of latents"),
        ('measure = "success"\n', "", "a prediction is of a measure; add measure"),
        ('"down"', '"none"', "predicted with at_most"),
        ('"down"', '"sideways"', "'up', 'down' or 'none', not 'sideways'"),
        ("at_least = 0.3", "at_least = -1", "greater than 0, not -1"),
        ("[predicts]", "controls = 5\n[predicts]", "use controls = 19 or more"),
        ("at_least", "strength = 3\nat_least", "predicts.strength is 3.0 and is not run"),
        ("at_least", 'features = "9"\nat_least', "predicts.features is 9 and is not run"),
        ('dictionary = "dictionary"\n', "", "latents are those of a dictionary; add dictionary"),
        ('"contrast:4"', '"pca:2"\nmode = "add"', "pca:2 is taken out, not added"),
        ("[predicts]", "[sampling]\nheat = 1\n[predicts]", "unknown key 'heat' in"),
        ("[predicts]", "strengths = [nan]\n[predicts]", "finite"),
        ("[predicts]", "[predicts", "is not valid TOML"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(tmp_path, old, new, said) -> None:
    from crosscoders.steering.experiment import SteeringExperiment
    from forensics.study import run_study

    assert old in WHOLE
    with pytest.raises(UserError, match=said) as refused:
        found = read(tmp_path, WHOLE.replace(old, new, 1))
        save_dictionary(small(), tmp_path / "dictionary", site="blocks.0.hook_resid_post")
        run_study(SteeringExperiment(experiment=found), tmp_path / "out")
    assert "\n" not in str(refused.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"B"', '"nowhere"', "nowhere"),
        ('"contrast:4"', "9", "there is no latent 9 in dictionary, which has 0 to 2"),
        ('"dictionary"', '"missing"', "missing"),
        ('"success"', '"channel:mail"', "this world has no channel 'mail'; it has: git-history"),
        ('"success"', '"sucess"', "there is no measure 'sucess'"),
        ("[predicts]", 'at = "start"\n[predicts]', "there is no position 'start'"),
        ("[predicts]", '[side_effects]\ntexts = "no.txt"\n[predicts]', "no.txt"),
        ("[predicts]", '[side_effects]\nelsewhere = "mars"\n[predicts]', "mars"),
    ],
)
def test_what_is_not_there_is_said_before_anything_is_played(
    tmp_path, capsys, old, new, said
) -> None:
    save_dictionary(small(), tmp_path / "dictionary", site="blocks.0.hook_resid_post")
    for name, place in (("B", "capped-base"), ("A", "leak")):
        (tmp_path / name).symlink_to(checkpoint_path(f"bundled:{place}"))
    (tmp_path / "one.toml").write_text(WHOLE.replace(old, new, 1))
    assert run(["steer", str(tmp_path / "one.toml"), "--out", str(tmp_path / "out")]) == 2
    *_, refused = capsys.readouterr().err.strip().splitlines()
    assert said in refused and not (tmp_path / "out").exists()


def test_file_and_options_exclude_each_other(tmp_path, capsys) -> None:
    (tmp_path / "one.toml").write_text(WHOLE)
    out = ["--out", str(tmp_path / "out")]
    assert run(["steer", str(tmp_path / "one.toml"), "--tasks", "200", *out]) == 2
    assert "--tasks and" in (said := capsys.readouterr().err) and "exclude each other" in said
    assert run(["steer", str(tmp_path / "none.toml"), *out]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert run(["steer", "--before", "B", "--after", "A", "--features", "1", *out]) == 2
    assert "steer needs --dictionary" in capsys.readouterr().err


def run(arguments) -> int:
    try:
        return main(arguments) or 0
    except SystemExit as stop:
        return int(stop.code or 0)


def test_a_row_moves_along_one_direction_as_far_as_the_change_moves_it() -> None:
    from crosscoders.steering.activation_edits import feature_change

    change = feature_change(small(), [1, 2], mode="ablate", acting="after", strength=0.5)
    moved = (change.apply(AFTER, BEFORE) - AFTER).detach()
    direction = torch.tensor([3.0, 4.0])
    instead = (along(change, direction).apply(AFTER, BEFORE) - AFTER).detach()
    assert instead.norm() == pytest.approx(float(moved.norm()))
    assert torch.allclose(instead / instead.norm(), -direction / 5), "taken away, as the feature is"
    added = shift_change(torch.tensor([0.0, 2.0]), mode="add", strength=3.0)
    assert torch.allclose(
        along(added, direction).apply(AFTER, None) - AFTER, 6 * direction[None] / 5
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(0, 1000))
def test_projecting_out_leaves_the_other_models_mean(number: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randn((50, 2, 6), generator=generator)
    pairs[:, 1] += 3.0
    basis = principal_directions(pairs, number)
    assert torch.allclose(basis @ basis.T, torch.eye(number), atol=1e-5)
    assert bool(((basis @ (pairs[:, 1] - pairs[:, 0]).mean(0)) >= 0).all())
    done = projection(basis, pairs, mode="ablate", acting="after", strength=1.0)
    left = done.apply(pairs[:, 1], None)
    assert torch.allclose(left @ basis.T, (pairs[:, 0].mean(0) @ basis.T).expand(50, -1), atol=1e-4)
    rest = torch.eye(6) - basis.T @ basis
    assert torch.allclose(left @ rest, pairs[:, 1] @ rest, atol=1e-4), "nothing else changes"


def test_models_that_do_not_differ_have_no_component() -> None:
    assert len(principal_directions(torch.ones(9, 2, 4), 2)) == 0


EFFECT = {"estimate": -0.4, "low": -0.5, "high": -0.3}


@pytest.mark.parametrize(
    ("stated", "random", "verdict"),
    [
        ({"effect": "down", "at_least": 0.2}, [0.0] * 19, "held"),
        ({"effect": "down", "at_least": 0.4}, [0.0] * 19, "not decided"),
        ({"effect": "down", "at_least": 0.6}, [0.0] * 19, "did not hold"),
        ({"effect": "up", "at_least": 0.1}, [0.0] * 19, "did not hold"),
        ({"effect": "down", "at_least": 0.2}, [0.0] * 18 + [-0.4], "did not hold"),
        ({"effect": "down", "at_least": 0.4}, [0.0] * 18 + [-0.4], "did not hold"),
        ({"effect": "down", "at_least": 0.2, "beyond_random": False}, [-1.0], "held"),
        ({"effect": "none", "at_most": 0.5}, [], "held"),
        ({"effect": "none", "at_most": 0.4}, [], "not decided"),
        ({"effect": "none", "at_most": 0.2}, [], "did not hold"),
    ],
)
def test_a_prediction_is_judged_by_its_interval_and_its_rank(stated, random, verdict) -> None:
    assert judged(Predicted(**stated), EFFECT, random)["verdict"] == verdict
    assert judged(Predicted(**stated), None, random)["verdict"] == "not decided"


def test_the_example_is_whole_and_is_the_one_of_the_page() -> None:
    place = ROOT / "examples" / "steering" / "leak.toml"
    found = read_experiment(place)
    for name in (found.table.before, found.table.after, found.table.side_effects.texts):
        assert name is not None and found.place(name).exists()
    assert f"```toml\n{place.read_text()}```" in (ROOT / "docs" / "inside.md").read_text()
