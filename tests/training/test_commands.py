"""The commands of this room: organisms, training, the confusion table."""

import json
from pathlib import Path

import numpy as np
import pytest

from forensics.cli.main import main
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.records import Verdict
from training.organisms.building import BUNDLED
from training.validation import Judged, confusion_text, coverage, table

RECIPE = """
[policy]
checkpoint = "bundled:open-base"
[environment]
name = "mini-repo"
options = { world = "open" }
[grpo]
steps = 2
groups = 2
samples = 4
save_every = 1
"""


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_organisms_are_listed_as_promised(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("organism", "list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    planted = {"tamper", "hard-code", "echo", "collapse", "combined"}
    assert {row["name"] for row in rows} >= {"honest", "leak", "mixed", "null", "tamper", "hard-code", "echo", "collapse"} | planted
    assert all(set(row) == {"name", "seed", "base", "path", "bundled"} for row in rows)
    assert {row["name"] for row in rows if row["bundled"]} == {"honest", "leak"}
    assert all(Path(row["path"]).is_dir() for row in rows if row["path"])


def test_building_an_organism(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Base, after and manifest; another seed gives another policy; nothing is overwritten unasked."""
    for seed in ("0", "1"):
        assert run("organism", "build", "null", "--seed", seed, "--out", str(tmp_path / seed)) == 0
    manifest = json.loads((tmp_path / "0" / "manifest.json").read_text())
    base, after, other = (inspect_checkpoint(tmp_path / name) for name in ("0/base", "0/after", "1/after"))
    assert (manifest["base"], manifest["after"]) == (base.weights, after.weights)
    assert base.weights == inspect_checkpoint(BUNDLED / "open-base").weights
    assert len({base.weights, after.weights, other.weights}) == 3
    capsys.readouterr()
    assert run("organism", "build", "null", "--out", str(tmp_path / "0")) == 2
    assert "--force" in capsys.readouterr().err
    assert run("organism", "build", "nul", "--out", str(tmp_path / "x")) == 2
    assert "honest" in capsys.readouterr().err


def test_a_recipe_trains_resumes_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    assert run("train", str(recipe), "--out", str(tmp_path / "run")) == 0
    first = inspect_checkpoint(tmp_path / "run" / "checkpoint").weights
    assert run("train", str(recipe), "--out", str(tmp_path / "run")) == 2
    recipe.write_text(RECIPE.replace("steps = 2", "steps = 3"))
    assert run("train", str(recipe), "--out", str(tmp_path / "run"), "--resume") == 0
    assert run("train", str(recipe), "--out", str(tmp_path / "whole")) == 0
    resumed, whole = (inspect_checkpoint(tmp_path / name / "checkpoint").weights for name in ("run", "whole"))
    assert resumed == whole != first
    capsys.readouterr()
    recipe.write_text(RECIPE.replace("groups", "gruops"))
    assert run("train", str(recipe), "--out", str(tmp_path / "typo")) == 2
    assert "gruops" in capsys.readouterr().err and not (tmp_path / "typo").exists()


def judged(name: str, expected: str, label: str, folder: Path) -> Judged:
    verdict = Verdict.model_validate({
        "label": label, "gain": None, "genuine_gain": None, "phantom_gain": None, "sentence": "", "reasons": (),
        "decided_by": "", "rule": "",
    })
    return Judged(name=name, seed=0, expected=expected, verdict=verdict, folder=folder)


def test_the_table_counts_what_is_right_and_who_is_accused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 cases, 2 right; of the 3 clean ones (honest, null, null) one is accused, one is only undetermined."""
    monkeypatch.setattr("training.validation.coverage", lambda folders: 0.95)
    result = table([
        judged("leak", "phantom", "phantom", tmp_path), judged("honest", "genuine", "mixed", tmp_path),
        judged("null", "noise", "noise", tmp_path), judged("null", "noise", "undetermined", tmp_path),
    ])
    assert (result["accuracy"], result["right"], result["of"]) == (0.5, 2, 4)
    assert result["false_alarm_rate"] == pytest.approx(1 / 3)
    assert [row["right"] for row in result["organisms"]] == [True, False, True, False]
    assert "2 of 4" in confusion_text(result)


def test_coverage_is_the_rate_it_states(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On gains that vary between tasks, about 95 %; with intervals of half the width, far less."""
    gains = np.random.default_rng(3).normal(0.3, 0.4, 400)
    monkeypatch.setattr("training.validation.task_gains", lambda folder: gains)
    assert 0.94 < coverage([tmp_path]) < 0.98
    assert coverage([tmp_path], level=0.5) < 0.7
