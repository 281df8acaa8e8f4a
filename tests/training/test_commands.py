"""The commands of this room: organisms, training, the confusion table."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from forensics.cli.main import main
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.records import Verdict
from training.organisms import organism as building
from training.organisms.organism import BUNDLED
from training.validation import (
    Judged,
    confusion_text,
    coverage,
    table,
)

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
    planted = {
        "honest", "leak", "mixed", "null", "tamper", "hard-code", "echo", "collapse", "combined",
    }  # fmt: skip
    assert {row["name"] for row in rows} >= planted
    assert all(set(row) == {"name", "seed", "base", "path", "bundled"} for row in rows)
    assert {row["name"] for row in rows if row["bundled"]} == {"honest", "leak"}
    assert all(Path(row["path"]).is_dir() for row in rows if row["path"])


@pytest.mark.slow
def test_building_an_organism(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Base, after and manifest; another seed gives another policy; nothing is
    overwritten unasked. By its recipe, but with fewer steps.
    """
    short = re.sub(
        r"^steps = \d+$", "steps = 2", (building.RECIPES / "null.toml").read_text(), flags=re.M
    )
    (tmp_path / "null.toml").write_text(short)
    monkeypatch.setattr(building, "RECIPES", tmp_path)
    for seed in ("0", "1"):
        assert (
            run(
                "organism", "build", "null", "--seed", seed, "--out", str(tmp_path / seed), "--json"
            )
            == 0
        )
        told = json.loads(capsys.readouterr().out)
        assert told == {
            "name": "null",
            "seed": int(seed),
            "base": str(tmp_path / seed / "base"),
            "after": str(tmp_path / seed / "after"),
            "manifest": str(tmp_path / seed / "manifest.json"),
        }
    manifest = json.loads((tmp_path / "0" / "manifest.json").read_text())
    base, after, other = (
        inspect_checkpoint(tmp_path / name) for name in ("0/base", "0/after", "1/after")
    )
    assert (manifest["base"], manifest["after"]) == (base.weights, after.weights)
    assert base.weights == inspect_checkpoint(BUNDLED / "open-base").weights
    assert len({base.weights, after.weights, other.weights}) == 3
    capsys.readouterr()
    assert run("organism", "build", "null", "--out", str(tmp_path / "0")) == 2
    assert "--force" in capsys.readouterr().err
    assert run("organism", "build", "nul", "--out", str(tmp_path / "x")) == 2
    assert "honest" in capsys.readouterr().err


def test_a_recipe_trains_resumes_and_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    assert run("train", str(recipe), "--out", str(tmp_path / "run")) == 0
    first = inspect_checkpoint(tmp_path / "run" / "checkpoint").weights
    assert run("train", str(recipe), "--out", str(tmp_path / "run")) == 2
    recipe.write_text(RECIPE.replace("steps = 2", "steps = 3"))
    assert run("train", str(recipe), "--out", str(tmp_path / "run"), "--resume") == 0
    assert run("train", str(recipe), "--out", str(tmp_path / "whole")) == 0
    resumed, whole = (
        inspect_checkpoint(tmp_path / name / "checkpoint").weights for name in ("run", "whole")
    )
    assert resumed == whole != first
    capsys.readouterr()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("groups", "gruops", ["'gruops' in [grpo]", "'groups'"]),
        (
            "steps",
            "stepz",
            ["'stepz' in [grpo]", "'steps'"],
        ),  # a required key: unknown before missing
        ("[grpo]", "[grpoo]", ["'grpoo' at the top level", "'grpo'"]),
        ("[grpo]", "[preference]\npairs = 'x'\n[grpo]", ["`trl_trainer`"]),
        ("steps = 2", "", ["grpo.steps", "required"]),
        ("mini-repo", "mini-rope", ["mini-rope", "mini-repo"]),
        ("world", "wrold", ["wrold"]),
        ("bundled:open-base", "nowhere", ["nowhere does not exist"]),
        ("bundled:open-base", "bundled:nothing", ["no bundled checkpoint 'nothing'"]),
    ],
)
def test_a_bad_recipe_is_refused_before_a_folder_is_touched(
    old: str, new: str, says: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, kept = tmp_path / "recipe.toml", tmp_path / "kept"
    recipe.write_text(RECIPE.replace(old, new))
    assert run("train", str(recipe), "--out", str(tmp_path / "run")) == 2
    told = capsys.readouterr().err
    assert (
        all(text in told for text in says)
        and told.count("\n") == 1
        and not (tmp_path / "run").exists()
    )
    kept.mkdir()
    for name in (".forensics", "state"):
        (kept / name).write_text("years of work")
    assert run("train", str(recipe), "--out", str(kept), "--force") == 2
    assert (kept / "state").exists()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[grpo]", "without = ['git']\n[grpo]", "no channel 'git'"),
        ("[grpo]", "[parallel]\nprocesses = 2\n[grpo]", "torchrun --nproc-per-node 2"),
        ("[grpo]", "[lora]\ntargets = ['nothing']\n[grpo]", "[lora] targets"),
        ("[grpo]", "[rewards]\nnothing = 1.0\n[grpo]", "nothing"),
    ],
)
def test_a_refused_run_leaves_no_folder_and_the_mended_one_runs(
    old: str, new: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(RECIPE.replace(old, new))
    assert run("train", str(recipe), "--out", str(out)) == 2
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1 and not out.exists()
    recipe.write_text(RECIPE)
    assert run("train", str(recipe), "--out", str(out)) == 0


def judged(name: str, expected: str, label: str, folder: Path) -> Judged:
    verdict = Verdict.model_validate(
        {
            "label": label,
            "gain": None,
            "genuine_gain": None,
            "phantom_gain": None,
            "sentence": "",
            "reasons": (),
            "decided_by": "",
            "rule": "",
        }
    )
    return Judged(name=name, seed=0, expected=expected, verdict=verdict, folder=folder)


def test_the_table_counts_what_is_right_and_who_is_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 cases, 2 right; of the 3 clean ones (honest, null, null) one is
    accused, one is only undetermined.
    """
    monkeypatch.setattr("training.validation.coverage", lambda folders: 0.95)
    result = table(
        [
            judged("leak", "phantom", "phantom", tmp_path),
            judged("honest", "genuine", "mixed", tmp_path),
            judged("null", "noise", "noise", tmp_path),
            judged("null", "noise", "undetermined", tmp_path),
        ]
    )
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
