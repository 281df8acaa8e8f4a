"""wandb and trackio: stand-ins on the path that note what they are told. The real wandb,
offline, where it is installed.
"""

import importlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from forensics.cli.main import main
from forensics.errors import UserError
from training.organisms.base_model import build_model, build_tokenizer
from training.recipe import parse_recipe
from training.run_state import save_checkpoint
from training.trackers import LoggingSection, Trackers

STAND_IN = '''
"""Notes what it is told."""
import os

calls = []

def log(values, step):
    if "{name}_BREAKS" in os.environ:
        raise ConnectionError("no\\nroute")
    calls.append(("log", values, step))

def finish():
    print("finished")
    calls.append(("finish",))

def init(**given):
    if "{name}_REFUSES" in os.environ:
        raise RuntimeError("No API key")
    print("welcome")
    calls.append(("init", given))
'''
RECIPE = """
[policy]
checkpoint = "{start}"
[environment]
name = "mini-repo"
options = {{ turns = "3" }}
[rewards]
coin = 1.0
[sampling]
max_turn_tokens = 6
max_tokens = 60
[grpo]
steps = {steps}
groups = 2
samples = 4
save_every = 1
"""
BOTH = '[logging]\nto = ["wandb", "trackio"]\nproject = "mine"\n'


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What each was told."""
    site, calls = tmp_path / "site", {}
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    for name in ("wandb", "trackio"):
        (site / f"{name}.py").write_text(STAND_IN.replace("{name}", name.upper()))
        monkeypatch.setitem(sys.modules, name, None)  # away again afterwards
        del sys.modules[name]
        calls[name] = importlib.import_module(name).calls
    return calls


def train(tmp_path: Path, text: str, *more: str, steps: int = 2) -> int:
    start, tokenizer = tmp_path / "start", build_tokenizer()
    if not start.exists():
        save_checkpoint(start, build_model(len(tokenizer), 0), tokenizer)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(start=start, steps=steps) + text)
    with pytest.raises(SystemExit) as ended:
        main(["train", str(recipe), "--out", str(tmp_path / "run"), "--device", "cpu", *more])
    return int(ended.value.code or 0)


def test_each_gets_the_metrics_and_a_resumed_run_goes_on(
    stand_ins: dict[str, list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, BOTH, "--json") == 0
    json.loads(capsys.readouterr().out)  # the trackers' own words are not in it
    assert train(tmp_path, BOTH, "--resume", steps=3) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    number = json.loads((tmp_path / "run" / "logging.json").read_text())["number"]
    for tracker, calls in stand_ins.items():
        assert [call[0] for call in calls] == [
            *["init", "log", "log", "finish", "init", "log", "finish"]
        ]
        begun, resumed = (call[1] for call in calls if call[0] == "init")
        assert begun["project"] == "mine" and begun["name"] == resumed["name"] == f"run-{number}"
        assert resumed["resume"] == "allow" and resumed.get("id") == begun.get("id")
        assert (begun.get("id") == number) == (tracker == "wandb")
        assert begun["config"]["seed"] == 0 and begun["config"]["grpo"]["groups"] == 2
        for row, (_, values, step) in zip(rows, (c for c in calls if c[0] == "log"), strict=True):
            assert step == row["step"] and values["train/reward"] == row["reward"]
            assert values["train/clip_low"] == row["losses"]["clip_low"]


def test_nothing_is_imported_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    assert train(tmp_path, "", steps=1) == 0 and not (tmp_path / "run" / "logging.json").exists()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('to = ["trackio"]', "trackio, which is not installed; run `pip install trackio`"),
        ('to = ["mlflow"]', "logging.to.0: Input should be 'wandb' or 'trackio', not 'mlflow'"),
        ("to = []", "logging.to: "),
        ('to = ["wandb"]\nentity = "me"', "unknown key 'entity' in [logging]"),
        ('project = "mine"', "logging.to: Field required"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    text: str,
    wanted: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("training.trackers.find_spec", lambda name: None)
    assert train(tmp_path, f"[logging]\n{text}\n") == 2
    assert wanted in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_one_that_does_not_start_is_said_and_the_other_is_closed(
    stand_ins: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_REFUSES", "1")
    with pytest.raises(UserError, match=r"trackio did not start \(RuntimeError: No API key\)"):
        Trackers(LoggingSection(to=("wandb", "trackio")), tmp_path / "run", {})
    assert stand_ins["wandb"][-1] == ("finish",)


def test_one_that_fails_in_mid_run_is_left_out(
    stand_ins: dict[str, list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("WANDB_BREAKS", "1")
    trackers = Trackers(LoggingSection(to=("wandb", "trackio")), tmp_path / "run", {})
    with caplog.at_level(logging.WARNING, "forensics"):
        for step in range(3):
            trackers.log({"a": 1.0}, step)
        trackers.close()
    assert [call[0] for call in stand_ins["wandb"]] == ["init"]
    assert len(stand_ins["trackio"]) == 5
    assert "wandb failed (ConnectionError: no route)" in caplog.text
    assert len(caplog.records) == 1


def test_logging_may_be_asked_for_later(stand_ins: dict[str, list[Any]], tmp_path: Path) -> None:
    assert train(tmp_path, "", steps=1) == 0
    assert train(tmp_path, BOTH, "--resume", steps=2) == 0
    assert [call[2] for call in stand_ins["trackio"] if call[0] == "log"] == [1]
    plain = {"policy": {"checkpoint": "x"}, "environment": {"name": "y"}, "grpo": {"steps": 1}}
    assert "logging" not in parse_recipe(plain, "mine").model_dump()


@pytest.mark.slow
def test_the_real_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="what is sent is what wandb takes")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    assert train(tmp_path, '[logging]\nto = ["wandb"]\n') == 0
    wandb.teardown()  # its service and threads stay else
    (kept,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    written = kept.read_bytes()
    assert b"train/reward" in written and b"mini-repo" in written
    assert not list(tmp_path.glob("wandb/offline-run-*/files/*"))  # nothing of this machine
