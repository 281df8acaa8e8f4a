"""`forensics watch`: the audits of saved checkpoints are those of the live policy."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from math import nan
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from forensics import load_policy, policy_from
from forensics.cli.main import run as run_command
from forensics.investigation import stated_sampling
from forensics.policies import identify_model, new_adapter
from forensics.protocols import SamplingSettings
from tests.tiny import save_tiny_qwen3
from tests.training.test_live import coin_recipe
from tests.training.watched_runs import (
    ONCE,
    OPTIONS,
    SETTINGS,
    answers,
    identity,
    moved,
    policies,
    runs_of,
    states,
    trained,
    watched,
    without_times,
)
from training.environments.mini_repo import MiniRepo
from training.live import AuditSettings, ForensicsCallback, promotable, read_reports
from training.live.audit_report import read_missed
from training.live.commands import Audits, Ends
from training.live.marks import read_marks
from training.live.watcher import Until, load_model, watch_of
from training.organisms.base_model import build_model, build_tokenizer
from training.recipe import LoraSection
from training.run_state import save_checkpoint
from training.trainer import grpo

ROOT = Path(__file__).parents[2]


def test_the_audits_are_those_of_the_live_policy(tmp_path: Path) -> None:
    run = trained(tmp_path, audits=tmp_path / "live")
    watched(run)
    live = answers(tmp_path / "live")
    assert len(live) == 2 * (3 + 4) + 2 and answers(run / "watch") == live
    assert without_times(run / "watch") == without_times(tmp_path / "live")


def test_a_half_written_checkpoint_is_waited_for(tmp_path: Path) -> None:
    run = trained(tmp_path)
    first, second = run / "checkpoint-1", run / "checkpoint-2"
    weights, place = (second / "model.safetensors").read_bytes(), second / "model.safetensors"
    seen = []

    def note(then: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: (seen.append(states(run)), then())

    place.unlink()
    shutil.move(first, tmp_path / "later")
    told = watched(
        run,
        Until(step=2),
        [
            note(lambda: place.write_bytes(weights[:5])),
            note(lambda: place.write_bytes(weights[:-1])),
            note(lambda: place.write_bytes(weights)),
            note(lambda: shutil.move(tmp_path / "later", first)),  # an older one, late
            note(int),
        ],
    )
    assert [one.get("checkpoint-2") for one in seen] == [*["waiting"] * 4, "audited"]
    assert told[0] == "checkpoint-2 is waited for. It has no model.safetensors."
    assert [one[:18] for one in told[1:]] == ["Audit after step 2", "Audit after step 1"]
    assert states(run) == {"checkpoint-1": "audited", "checkpoint-2": "audited"}


def test_what_vanished_or_is_broken_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path, 4)
    one, two, three = (run / f"checkpoint-{step}" for step in (1, 2, 3))
    os.truncate(two / "model.safetensors", 100)
    weights = load_file(three / "model.safetensors")
    save_file(
        {**weights, "model.norm.weight": weights["model.norm.weight"] * nan},
        three / "model.safetensors",
    )
    opened = []
    monkeypatch.setattr(
        "training.live.watcher.load_model",
        lambda folder, *more: opened.append(folder.name) or load_model(folder, *more),
    )
    told = watched(run, Until(step=4), [lambda: shutil.rmtree(one), int, int])
    assert opened == ["checkpoint-4"]
    assert [*states(run).values()] == ["vanished", "broken", "broken", "audited"]
    missed = {gone.step: gone.missed for gone in read_missed(run / "watch")}
    assert missed[1] == "It vanished before it was audited." and "holds NaN" in missed[3]
    assert "the header promises" in missed[2] or "cut off" in missed[2]
    assert [report.step for report in read_reports(run / "watch")] == [4]
    assert sum("checkpoint-2" in line for line in told) == 2  # waited for, then given up
    assert watched(run) == [] and opened == ["checkpoint-4"]  # not tried for ever
    save_file(weights, three / "model.safetensors")  # mended: other files are another try
    assert [line[:18] for line in watched(run)] == ["Audit after step 3"]
    assert [gone.step for gone in read_missed(run / "watch")] == [1, 2]


def test_every_layout_is_found_opened_and_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl's, prime-rl's (weights alone), an adapter, a last copy, and what is none."""
    saved, held = trained(tmp_path), []

    def noted(folder: Any, *more: Any) -> Any:
        assert not [one for one in held if one() is not None]  # before the next
        opened = load_model(folder, *more)
        held.append(weakref.ref(opened))
        return opened

    monkeypatch.setattr("training.live.watcher.load_model", noted)
    run = tmp_path / "layouts"
    shutil.copytree(saved / "checkpoint-1", run / "global_step_10" / "actor" / "huggingface")
    (run / "broadcasts" / "step_11").mkdir(parents=True)
    shutil.copy(saved / "checkpoint-2" / "model.safetensors", run / "broadcasts" / "step_11")
    base = load_policy(tmp_path / "base").model
    model = new_adapter(base, rank=2, alpha=4.0, targets="all-linear")
    moved(model, 12)
    model.save_pretrained(run / "adapters" / "weights" / "step-12")
    shutil.copytree(saved / "checkpoint-1", run / "final")
    shutil.copytree(tmp_path / "base", run / "other")
    (run / "configs").mkdir()
    (run / "configs" / "config.json").write_text("{}")
    shutil.copytree(saved / "checkpoint-2", run / "global_step_10" / "critic" / "huggingface")
    told = watched(run)
    assert len(held) == 3
    found = policies(run)
    assert states(run) == {name: "left out" if name == "other" else "audited" for name in found}
    assert found == {
        "global_step_10/actor/huggingface": identity(saved / "checkpoint-1"),
        "broadcasts/step_11": identity(saved / "checkpoint-2"),
        "adapters/weights/step-12": identify_model(model).sha256[:16],
        "final": identity(saved / "checkpoint-1"),
        "other": None,
    }
    assert [line[:19] for line in told] == [f"Audit after step {step}" for step in (10, 11, 12)]


def test_an_adapter_is_played_on_its_base_as_that_lies(tmp_path: Path) -> None:
    base = save_tiny_qwen3(tmp_path / "base")  # in bfloat16, as most are
    model = new_adapter(load_policy(base).model, rank=2, alpha=4.0, targets="all-linear")
    moved(model, 3)
    model.save_pretrained(tmp_path / "run" / "checkpoint-3")
    assert [line[:18] for line in watched(tmp_path / "run")] == ["Audit after step 3"]


def test_a_mark_is_of_weights_and_config(tmp_path: Path) -> None:
    """Interventions: the checkpoint elsewhere; another config; other weights; rounded."""
    run = trained(tmp_path, 1)
    watched(run)
    marks, good = run / "watch", tmp_path / "elsewhere"
    shutil.copytree(run / "checkpoint-1", good)
    assert promotable(good, marks)
    assert not promotable(tmp_path / "base", marks) and not promotable(tmp_path, marks)
    config = (good / "config.json").read_text()
    (good / "config.json").write_text(config.replace("10000.0", "10001.0"))
    assert config != (good / "config.json").read_text() and not promotable(good, marks)
    (good / "config.json").write_text(config)
    assert promotable(good, marks)
    weights = load_file(good / "model.safetensors")
    save_file({n: w.bfloat16().float() for n, w in weights.items()}, good / "model.safetensors")
    assert not promotable(good, marks)


@dataclass
class Beside:
    """Hooks of our trainer that run a watch whenever something is saved, as another
    process would.
    """

    base: Path
    told: list[str] = field(default_factory=list)

    def on_save(self, view: Any, folder: Path) -> None:
        sampling = SamplingSettings(**stated_sampling(view.folder, ()).values)
        how = {"settings": SETTINGS, "sampling": sampling, "device": "cpu", "until": ONCE}
        with watch_of(view.folder, self.base, **how) as watcher:
            watcher.say = self.told.append
            watcher.watch()

    def on_start(self, view: Any) -> None: ...
    def on_step_end(self, view: Any, report: Any) -> None: ...
    def on_end(self, view: Any) -> None: ...


@pytest.mark.parametrize(
    "lora",
    [None, pytest.param(LoraSection(rank=2), marks=pytest.mark.slow)],
    ids=["whole", "adapter"],
)
def test_beside_our_own_trainer(tmp_path: Path, lora: LoraSection | None) -> None:
    """Its states and its checkpoint are watched, with what its folder says of world,
    sampling and seed; older states are gone by the next look.
    """
    run, tokenizer = tmp_path / "run", build_tokenizer()
    policy = policy_from(build_model(len(tokenizer), 0), tokenizer)
    save_checkpoint(tmp_path / "base", policy.model, tokenizer)
    recipe = coin_recipe(steps=2, save_every=1).model_copy(update={"lora": lora})
    beside = Beside(tmp_path / "base")
    hooks = [ForensicsCallback(SETTINGS), beside]
    grpo(policy, MiniRepo(**OPTIONS), recipe, 3, run, callbacks=hooks)
    live = answers(run / "audits")
    assert len(live) == 2 * (3 + 4) + 2 and answers(run / "watch" / "audits") == live
    assert without_times(run / "watch") == without_times(run)
    assert states(run) == dict.fromkeys(
        ("state/step-000001", "state/step-000002", "checkpoint"), "audited"
    )
    assert policies(run)["checkpoint"] == policies(run)["state/step-000002"]
    assert len(beside.told) == 3


def test_what_a_kill_leaves_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder as it lay at three moments: in the start, in an audit, before its report."""
    run, whole, replace, left = trained(tmp_path, 1), tmp_path / "whole", os.replace, []

    def noted(source: Any, place: Any, **more: Any) -> None:
        if moments and moments[0](str(place), len(runs_of(whole))):
            moments.pop(0)
            left.append(shutil.copytree(whole, tmp_path / f"left-{len(left)}"))
        replace(source, place, **more)

    moments: list[Callable[[str, int], bool]] = [
        lambda place, runs: runs == 1,
        lambda place, runs: runs == 5,
        lambda place, runs: place.endswith("audits.jsonl"),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", noted)
        watched(run, folder=whole)
    assert not moments
    for folder in left:
        had = runs_of(folder)
        watched(run, folder=folder)
        assert answers(folder) == answers(whole) and without_times(folder) == without_times(whole)
        assert read_marks(folder) == read_marks(whole) and runs_of(folder).items() >= had.items()


@pytest.mark.slow
def test_killed_at_random_moments_it_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """`kill -9`, each a while after where the one before left it."""
    trained(tmp_path)
    draw = random.Random(0)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    points = [*(draw.randrange(5, 25) for _ in range(10)), 0]
    done = subprocess.run(
        [sys.executable, "-m", "tests.killed", "watch", f"{whole}=0"]
        + [f"{killed}={number}" for number in points],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    codes = [int(line) for line in done.stdout.split("\n") if line.lstrip("-").isdigit()]
    assert codes[0] == codes[-1] == 0 and -signal.SIGKILL in codes[1:-1], done.stderr
    assert answers(killed) == answers(whole) and without_times(killed) == without_times(whole)
    assert read_marks(killed) == read_marks(whole)
    *_, last = (tmp_path / "killed.played").read_text().split("begun\n")
    played = (tmp_path / "killed.played").read_text().replace("begun\n", "").split()
    assert sorted(played) == sorted(set(played)) and len(last.split()) < 6  # none twice


def command(run: Path, *more: str) -> int:
    """The exit code of `forensics watch` on a run of `trained`."""
    given = ["--before", str(run.parent / "base"), "--env", "mini-repo", "--env-option", "turns=2"]
    how = ["--tasks", "6", "--max-turn-tokens", "6", "--max-tokens", "60", "--once"]
    return run_command(["watch", str(run), *given, *how, *more])


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    run = trained(tmp_path)
    (run / "pickled-14").mkdir()
    shutil.copy(tmp_path / "base" / "config.json", run / "pickled-14")
    (run / "pickled-14" / "pytorch_model.bin").touch()
    assert any("pickles are not opened" in line for line in watched(run))


def test_the_exit_code_is_a_gates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last checkpoint decides; `every` leaves out all but the last one."""
    run = trained(tmp_path)
    assert command(run, "--every", "5", "--ceiling", "1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["promotable"] and told["last"]["checkpoint"] == "checkpoint-2"
    assert [*states(run).values()] == ["left out", "audited"]
    assert command(run, "--ceiling", "1") == 0  # the others are due now
    assert [*states(run).values()] == ["audited"] * 2
    assert command(run) == 2  # another ceiling
    assert "margin and ceiling" in capsys.readouterr().err
    assert command(run, "--force") == 1 and "not promotable" in capsys.readouterr().out
    assert command(tmp_path / "nowhere") == 2
    (tmp_path / "empty").mkdir()
    assert command(tmp_path / "empty") == 1 and "None lies below" in capsys.readouterr().out
    shutil.copytree(run / "checkpoint-1", tmp_path / "other" / "best")
    assert command(tmp_path / "other") == 1
    assert "Its name ends in no number" in capsys.readouterr().out
    assert run_command(["gate", str(run / "watch")]) == 2
    assert f"such as one of {run / 'watch' / 'audits'}" in capsys.readouterr().err
    page = (run / "watch" / "watch.html").read_text()
    assert "checkpoint-2 is not promotable" in page and "Gain, genuine and phantom part" in page


@pytest.mark.parametrize("harm", ["cut off", "not finite"])
def test_an_earlier_checkpoint_does_not_speak_for_a_broken_last_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    run = trained(tmp_path)
    place = run / "checkpoint-2" / "model.safetensors"
    whole = place.read_bytes()
    if harm == "cut off":
        os.truncate(place, 100)
    else:
        save_file({name: one * nan for name, one in load_file(place).items()}, place)
    assert command(run, "--ceiling", "1") == 1
    assert "checkpoint-2 is not promotable" in capsys.readouterr().out
    assert states(run) == {"checkpoint-1": "audited", "checkpoint-2": "broken"}
    assert command(run, "--ceiling", "1") == 1  # nothing new
    place.write_bytes(whole)
    assert command(run, "--ceiling", "1") == 0 and not read_missed(run / "watch")


def test_ctrl_c_ends_it_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    run = trained(tmp_path, 1)
    with monkeypatch.context() as patched:
        patched.setattr("training.live.auditor.conclude", interrupted)
        assert command(run, "--ceiling", "1") == 130
    assert capsys.readouterr().err.endswith("Interrupted; the same command goes on.\n")
    assert command(run, "--ceiling", "1") == 0


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    run = trained(tmp_path)
    shutil.copytree(run / "checkpoint-2", run / "other" / "checkpoint-1")
    watched(run)
    marks = {one.checkpoint: one for one in read_marks(run / "watch")}
    assert marks["other/checkpoint-1"].state == "broken"
    assert "is of the same step and holds other weights" in marks["other/checkpoint-1"].reason
    assert marks["checkpoint-1"].policy == identity(run / "checkpoint-1")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_beside_trl(tmp_path: Path) -> None:
    """The evidence of TRL's own audits, from its checkpoints alone."""
    pytest.importorskip("trl")
    runs = import_module("tests.training.trl_runs")
    sampling_of = import_module("training.live.trl_callback").sampling_of
    example = runs.load_example()
    model, tokenizer = runs.parts_of(example)
    save_checkpoint(tmp_path / "base", model, tokenizer)
    run, how = tmp_path / "run", {"save_strategy": "steps", "save_steps": 1}
    trainer = runs.trainer_of(example, run, parts=(model, tokenizer), **how)
    live = runs.watched(example, tmp_path, out=tmp_path / "live")
    live.attach(trainer)
    trainer.train()
    trainer.save_model(str(run))
    questions = runs.questions(example, tmp_path)
    given = {"settings": runs.SMALL, "seed": trainer.args.seed, "until": ONCE}
    given["training"] = tmp_path / "live"  # what the trainer asked
    world = "prompts", {"file": questions}
    with watch_of(
        run, tmp_path / "base", *world, sampling=sampling_of(trainer.args), **given
    ) as watcher:
        watcher.watch()
    for step in (1, 2):
        told = [
            (place / "audits" / f"step-{step:06d}" / "evidence.jsonl").read_bytes()
            for place in (tmp_path / "live", run / "watch")
        ]
        assert told[0] == told[1]
    audits = without_times(tmp_path / "live"), without_times(run / "watch")
    assert audits[0] == audits[1] and len(audits[0]) == 2
    assert states(run) == dict.fromkeys(("checkpoint-1", "checkpoint-2", "."), "audited")


def test_weights_that_change_while_they_are_read_are_not_audited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, opened = trained(tmp_path), []
    shutil.move(run / "checkpoint-2", tmp_path / "other")

    def overwritten(folder: Any, *more: Any) -> Any:
        opened.append(folder.name)
        if len(opened) == 1:
            shutil.copy(tmp_path / "other" / "model.safetensors", folder.place)
        return load_model(folder, *more)

    monkeypatch.setattr("training.live.watcher.load_model", overwritten)
    watched(run, Until(step=1), [int, int, int])
    assert len(opened) == 2 and policies(run) == {"checkpoint-1": identity(tmp_path / "other")}
    assert [report.policy for report in read_reports(run / "watch")] == [*policies(run).values()]


def test_every_option_is_what_it_says() -> None:
    assert Audits().chosen() == AuditSettings(every=1) and Ends().until() == Until()
    audits = Audits(every=3, tasks=4, samples=5, instruments="score, kl", margin=0.1, ceiling=0.2)
    wanted = {"every": 3, "tasks": 4, "samples": 5, "margin": 0.1, "ceiling": 0.2}
    assert audits.chosen() == AuditSettings(**wanted, instruments=("score", "kl"))
    ends = Ends(once=True, until_step=7, idle_minutes=0.5, poll=2.0)
    assert ends.until() == Until(once=True, step=7, idle=30.0, poll=2.0)
