"""The commands of this room: organisms, training, the confusion table."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics.cli.main import main
from forensics.errors import UserError
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.policies.compatibility import resolve_device
from forensics.records import Verdict
from forensics.records.tables import write_trajectories
from tests.training.trajectories import trajectory
from training.organisms import organism as building
from training.organisms.organism import BUNDLED
from training.recipe import parse_recipe
from training.validation import (
    Judged,
    confusion_text,
    cost,
    coverage,
    played,
    table,
    task_gains,
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
        "honest",
        "leak",
        "mixed",
        "null",
        "tamper",
        "hard-code",
        "echo",
        "collapse",
        "combined",
    }
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


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "steps = 2",
            "steps = 2\nlearning_rate = inf",
            "grpo.learning_rate: Input should be a finite number",
        ),
        (
            "steps = 2",
            "steps = 2\nlearning_rate = 1e30",
            "grpo.learning_rate: Input should be less than or equal to 1",
        ),
        (
            "[grpo]",
            "[rewards]\noutcome = nan\n[grpo]",
            "rewards.outcome: Input should be a finite number",
        ),
        ("steps = 2", "steps = '2'", "grpo.steps: Input should be a valid integer, not '2'"),
        ("groups = 2", "groups = true", "grpo.groups: Input should be a valid integer, not True"),
        ("groups = 2", "groups = 2.0", "grpo.groups: Input should be a valid integer, not 2.0"),
        (
            "steps = 2",
            "steps = 2\nrecompute_old = 1",
            "grpo.recompute_old: Input should be a valid boolean, not 1",
        ),
        (
            "[grpo]",
            "[sampling]\ntemperature = '1'\n[grpo]",
            "sampling.temperature: Input should be a valid number",
        ),
    ],
)
def test_values_of_another_type_are_refused(
    old: str, new: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.replace(old, new))
    assert run("train", str(recipe), "--out", str(tmp_path / "run")) == 2
    assert says in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_whole_numbers_are_floats_and_options_are_their_text() -> None:
    parsed = parse_recipe(
        {
            "policy": {"checkpoint": "x"},
            "grpo": {"steps": 1, "gradient_norm": 1},
            "rewards": {"outcome": 2},
            "environment": {
                "name": "e",
                "options": {"turns": 2, "rate": 0.5, "open": True, "world": "capped"},
            },
        },
        "test",
    )
    assert parsed.environment.options == {
        "turns": "2",
        "rate": "0.5",
        "open": "true",
        "world": "capped",
    }
    assert (parsed.grpo.gradient_norm, parsed.rewards) == (1.0, {"outcome": 2.0})


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [1, 700, 2000])
def test_a_file_limit_is_told_in_one_sentence(kilobytes: int, tmp_path: Path) -> None:
    """At the first file, while weights are saved, while moments are."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    command = (
        f"ulimit -f {kilobytes}; exec {sys.executable} -m forensics train {recipe} --out"
        f" {tmp_path / 'run'}"
    )
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 2 and "ulimit -f" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("device", ["tpu", "cuda:99"])
def test_a_device_that_is_not_there_leaves_no_folder(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    assert run("train", str(recipe), "--out", str(tmp_path / "run"), "--device", device) == 2
    told = capsys.readouterr().err
    assert device in told and "cpu" in told and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words", [("organism", "build", "leak", "--out", "{}"), ("validate", "--cache", "{}")]
)
def test_no_folder_is_claimed_for_a_device_that_is_not_there(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tuple(word.format(tmp_path / "made") for word in words)
    assert run(*words, "--device", "cuda:99") == 2
    assert "cuda:99" in capsys.readouterr().err and not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("organism", "build", "leak", "--out", "{}"),  # the policy that RL starts from
        (
            "organism",
            "build",
            "tamper",
            "--out",
            "{}",
        ),  # the one that its base, which is not bundled, goes on from
        ("validate", "--quick", "--cache", "{}"),
        ("validate", "--seeds", "1", "--cache", "{}"),
    ],
)
def test_the_device_reaches_the_policy(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be no other device, so `mps` is taken for one, and the first
    policy that is loaded is noted.
    """
    devices: list[str] = []

    def noted(path: Path, *, device: str = "auto", **rest: Any) -> None:
        devices.append(device)
        raise UserError("noted")

    for place in ("policies.compatibility", "investigation.inputs"):
        monkeypatch.setattr(f"forensics.{place}.resolve_device", lambda device: device)
    monkeypatch.setattr("forensics.policies.huggingface.load_policy", noted)
    assert run(*(word.format(tmp_path / "made") for word in words), "--device", "mps") == 2
    assert devices == ["mps"]


def test_commands_that_make_checkpoints_answer_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.replace("steps = 2", "steps = 0"))
    assert run("train", str(recipe), "--out", str(tmp_path / "run"), "--seed", "3", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["seed"], told["stopped"]) == (3, None) and inspect_checkpoint(
        told["checkpoint"]
    ).weights


def test_devices_are_told_in_the_same_words(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of every command with `--device`, and the sentence for one that does not exist."""
    told = []
    for command in ("investigate", "train", "demo", "organism build", "validate"):
        assert run(*command.split(), "--help") == 0
        told.append(" ".join(capsys.readouterr().out.split()))
    with pytest.raises(UserError) as refused:
        resolve_device("tpu")
    for name in ("auto", "cpu", "mps", "cuda or cuda:N"):
        assert all(name in page for page in told) and name in str(refused.value)


def test_a_quick_validation_keeps_nothing_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches: list[Path] = []

    def noted(cache: Path, progress: Any, device: str) -> dict[str, Any]:
        cache.mkdir(exist_ok=True)
        caches.append(cache)
        raise UserError("noted")

    monkeypatch.setattr("training.validation.quick_validation", noted)
    monkeypatch.chdir(tmp_path)
    assert (
        run("validate", "--quick")
        == run("validate", "--quick", "--cache", str(tmp_path / "kept"))
        == 2
    )
    assert caches[1] == tmp_path / "kept" and not caches[0].exists()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


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


def test_the_cost_is_what_was_played_and_drawn(tmp_path: Path) -> None:
    stored = tmp_path / "trajectories"
    stored.mkdir()
    for number, runs in enumerate((3, 2)):
        write_trajectories(
            stored / f"{number}.parquet", [trajectory("t", 1.0, i) for i in range(runs)]
        )
    assert cost([tmp_path, tmp_path]) == {"cases": 2, "episodes": 10, "drawn_tokens": 20}


def test_coverage_looks_at_plain_episodes_only(tmp_path: Path) -> None:
    """Episodes in which an action was refused are the case's too, but none of its gain."""
    stored = tmp_path / "trajectories"
    stored.mkdir()
    for name, outcome in (
        ("before-open", 0.0),
        ("after-0-open", 1.0),
        ("after-1-open", 0.0),
        ("before-altered-open", 1.0),
        ("after-0-altered-open", 0.0),
        ("before-without-open-door", 1.0),
    ):
        write_trajectories(
            stored / f"{name}-0123456789abcdef-0000.parquet", [trajectory("t", outcome, 0)]
        )
    assert task_gains(tmp_path).tolist() == [0.5]
    assert [side for side, _ in played(tmp_path, "open")] == ["after-0", "after-1", "before"]
    assert [side for side, _ in played(tmp_path, "without-open-door")] == ["before"]


def test_coverage_is_the_rate_it_states(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On gains that vary between tasks, about 95 %; with intervals of half the width, far less."""
    gains = np.random.default_rng(3).normal(0.3, 0.4, 400)
    monkeypatch.setattr("training.validation.task_gains", lambda folder: gains)
    assert 0.94 < coverage([tmp_path]) < 0.98
    assert coverage([tmp_path], level=0.5) < 0.7
