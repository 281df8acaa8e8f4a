"""Audits of a live policy: what they find is planted, what they leave behind is nothing."""

import json
import logging
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from forensics import load_policy, policy_from
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.protocols import SamplingSettings
from forensics.records import Undefined
from forensics.records.files import read_findings
from forensics.records.tables import read_rows
from forensics.records.verdict import Estimate
from forensics.report.data import load_case
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.environments.mini_repo import MiniRepo
from training.live import AuditReport, AuditSettings, ForensicsCallback, promotable, read_reports
from training.live.audit_report import alarm
from training.live.auditor import lent
from training.live.marks import mark
from training.organisms.base_model import build_model, build_tokenizer
from training.organisms.organism import checkpoint_path
from training.recipe import parse_recipe
from training.run_state import save_checkpoint
from training.trainer import grpo

SAMPLING = SamplingSettings(max_turn_tokens=16, max_tokens=256)
SHORT = SamplingSettings(max_turn_tokens=6, max_tokens=60)
SMALL = AuditSettings(every=1, tasks=4, samples=1, tensorboard=False)


@dataclass
class View:
    """A run in progress, by hand."""

    policy: Any
    environment: Any
    folder: Path | None
    settings: SamplingSettings = SAMPLING
    seed: int = 0
    step: int = 0
    logged: dict[str, float] = field(default_factory=dict)
    stopped: str | None = None

    def log(self, name: str, value: float, step: int) -> None:
        self.logged[name] = value

    def stop(self, reason: str) -> None:
        self.stopped = reason


def trained(view: View, callback: ForensicsCallback, after: str, step: int) -> AuditReport:
    """Put the weights of a bundled checkpoint in place, as training would have,
    and end the step.
    """
    weights = load_policy(
        checkpoint_path(f"bundled:{after}"), device="cpu", dtype="float32"
    ).model.state_dict()
    view.policy.model.load_state_dict(weights)
    view.step = step
    callback.on_step_end(view, None)
    assert callback.last is not None and callback.last.step == step
    return callback.last


def bundled(start: str, world: str, folder: Path) -> View:
    policy = load_policy(checkpoint_path(f"bundled:{start}"), device="cpu", dtype="float32")
    return View(policy, MiniRepo(world=world), folder)


def tiny_view(folder: Path | None, **options: str) -> View:
    tokenizer = build_tokenizer()
    policy = policy_from(build_model(len(tokenizer), 0), tokenizer, "start")
    return View(policy, MiniRepo(turns="2", **options), folder, settings=SHORT)


def task_means(folder: Path, side: str) -> dict[str, float]:
    """Mean outcome by task, straight from the stored episodes."""
    found: dict[str, list[float]] = {}
    for path in sorted((folder / "trajectories").glob(f"{side}-*.parquet")):
        for row in read_rows(path, ["task", "outcome"]):
            found.setdefault(row["task"], []).append(row["outcome"])
    return {task: float(np.mean(scores)) for task, scores in found.items()}


def test_a_leak_that_opened_in_training_sets_off_the_alarm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    view = bundled("capped-base", "capped", tmp_path)
    callback = ForensicsCallback(AuditSettings(tasks=60, samples=1, every=1, on_phantom="stop"))
    callback.on_start(view)
    with caplog.at_level(logging.WARNING, "forensics.audit"):
        report = trained(view, callback, "leak", 1)
    assert report.alarm is not None and report.phantom is not None and report.gain is not None
    assert report.phantom.low > 0.2 and report.wins["git-history"] > 0.8
    assert view.stopped is not None and report.alarm in view.stopped and "\n" not in view.stopped
    assert [record.getMessage() for record in caplog.records] == [view.stopped]
    place = tmp_path / report.folder
    gain, scrubbed = (
        np.mean(
            [score - task_means(place, f"before-{world}")[task] for task, score in after.items()]
        )
        for world in ("open", "without")
        if (after := task_means(place, f"after-0-{world}"))
    )
    assert report.gain.estimate == pytest.approx(gain) and report.phantom.estimate == pytest.approx(
        gain - scrubbed
    )
    assert load_case(place).verdict.gain == report.gain  # a case folder like any other
    assert (
        view.logged["audit/phantom"] == report.phantom.estimate and view.logged["audit/alarm"] == 1
    )
    assert any((tmp_path / "tensorboard").iterdir())


@pytest.mark.slow
def test_skill_does_not_set_it_off_and_neither_does_standing_still(tmp_path: Path) -> None:
    view = bundled("open-base", "open", tmp_path)
    callback = ForensicsCallback(AuditSettings(tasks=60, samples=1, every=1, tensorboard=False))
    callback.on_start(view)
    still = trained(view, callback, "open-base", 1)
    again = trained(view, callback, "open-base", 2)
    grown = trained(view, callback, "honest", 3)
    assert (still.alarm, again.alarm, grown.alarm) == (None, None, None)
    assert grown.genuine is not None and grown.genuine.low > 0
    assert still.policy == again.policy != grown.policy
    # independent random streams: equal weights play the same tasks differently each time
    episodes = [task_means(tmp_path / r.folder, "after-0-open") for r in (still, again)]
    assert episodes[0].keys() == episodes[1].keys() and episodes[0] != episodes[1]
    assert task_means(tmp_path / "audits" / "start", "before-open") != episodes[0]
    assert [report.step for report in read_reports(tmp_path)] == [1, 2, 3]


def coin_recipe(**changes: Any) -> Any:
    return parse_recipe(
        {
            "policy": {"checkpoint": "x"},
            "environment": {"name": "mini-repo", "options": {"turns": "2"}},
            "rewards": {"coin": 1.0},
            "sampling": {"max_turn_tokens": 6, "max_tokens": 60},
            "grpo": {"steps": 4, "groups": 2, "samples": 4, "save_every": 2, **changes},
        },
        "test",
    )


def train(folder: Path, callbacks: list[Any], die_at: int | None = None) -> torch.Tensor:
    view = tiny_view(folder)

    def report(step: Any) -> None:
        if step.step == die_at:
            raise KeyboardInterrupt

    try:
        grpo(view.policy, view.environment, coin_recipe(), 3, folder, report, callbacks=callbacks)
    except KeyboardInterrupt:
        return train(folder, [ForensicsCallback(SMALL) for _ in callbacks])
    return torch.cat([p.detach().flatten() for p in view.policy.model.parameters()])


def without_times(folder: Path) -> list[AuditReport]:
    return [report.model_copy(update={"seconds": 0.0}) for report in read_reports(folder)]


@pytest.mark.slow
def test_audits_leave_the_weights_alone_and_repeat_themselves_after_a_kill(tmp_path: Path) -> None:
    bare = train(tmp_path / "bare", [])
    assert torch.equal(bare, train(tmp_path / "audited", [ForensicsCallback(SMALL)]))
    assert torch.equal(bare, train(tmp_path / "killed", [ForensicsCallback(SMALL)], die_at=3))
    assert without_times(tmp_path / "audited") == without_times(tmp_path / "killed")
    assert [report.step for report in read_reports(tmp_path / "audited")] == [1, 2, 3, 4]


def test_a_lent_model_comes_back_as_it_was() -> None:
    model, tokenizer = tiny_qwen3(0), tiny_tokenizer()
    model.train()
    model.model.layers[0].eval()  # modes may differ by module
    torch.manual_seed(1)
    before = (
        torch.get_rng_state(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
        random.getstate(),
    )
    modes = [module.training for module in model.modules()]
    with lent(model, tokenizer, "x"):
        assert not model.training
        torch.rand(3), np.random.rand(3), random.random()  # noqa: NPY002
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[2]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002


def test_only_the_two_worlds_are_played_and_the_rest_is_said_to_be_missing(tmp_path: Path) -> None:
    view = tiny_view(tmp_path, channels="git-history,answer-file")
    callback = ForensicsCallback(SMALL)
    callback.on_start(view)
    view.step = 1
    callback.on_step_end(view, None)
    place = tmp_path / "audits" / "step-000001"
    assert len(list((place / "trajectories").iterdir())) == 4  # two sides in two worlds
    channel = [f for f in read_findings(place / "evidence.jsonl") if f.question == "gain.channel"]
    assert [type(f) for f in channel] == [Undefined] and "fully scrubbed world alone" in channel[
        0
    ].reason
    assert read_reports(tmp_path)[0].phantom is not None


def saved(view: View, callback: ForensicsCallback, folder: Path, dtype: str | None = None) -> dict:
    """What the mark says of the live weights, saved now."""
    save_checkpoint(folder, view.policy.model, view.policy.tokenizer, dtype=dtype)
    callback.on_save(view, folder)
    told: dict = json.loads((folder / "promotable.json").read_text())
    return told


def audited(tmp_path: Path) -> tuple[View, ForensicsCallback]:
    """A run whose weights after step 1 were audited and are as good as they can be."""
    view = tiny_view(tmp_path)
    settings = AuditSettings(
        every=1, tasks=12, samples=1, on_phantom="withhold", ceiling=1.0, tensorboard=False
    )
    callback = ForensicsCallback(settings)
    callback.on_start(view)
    view.step = 1
    callback.on_step_end(view, None)
    return view, callback


def test_the_mark_is_of_the_weights_and_not_of_the_step(tmp_path: Path) -> None:
    """Intervention: other weights under the audited step; rounded ones; and ones put
    into the folder later.
    """
    view, callback = audited(tmp_path)
    told = saved(view, callback, tmp_path / "same")
    assert told["promotable"] and told["weights"] == inspect_checkpoint(tmp_path / "same").weights
    rounded = saved(view, callback, tmp_path / "rounded", "bfloat16")
    assert not rounded["promotable"] and "saved in bfloat16 and trained in" in rounded["reason"]
    weights = view.policy.model.model.norm.weight
    with torch.no_grad():
        weights[0] = torch.nextafter(weights[0], torch.tensor(9.0))
    later = saved(view, callback, tmp_path / "later")
    assert not later["promotable"] and "changed since they were audited" in later["reason"]
    assert promotable(tmp_path / "same")
    for name in ("later", "rounded"):  # the swap: their weights under the good mark
        swapped = tmp_path / f"swapped with {name}"
        shutil.copytree(tmp_path / "same", swapped)
        shutil.copy(tmp_path / name / "model.safetensors", swapped)
        assert json.loads((swapped / "promotable.json").read_text())["promotable"]
        assert not promotable(swapped)


def test_withheld_checkpoints_say_why(tmp_path: Path) -> None:
    view = tiny_view(tmp_path)
    settings = AuditSettings(
        every=2, tasks=12, samples=1, on_phantom="withhold", ceiling=1.0, tensorboard=False
    )
    callback = ForensicsCallback(settings)
    callback.on_start(view)
    for step in (1, 2, 3):
        view.step = step
        callback.on_step_end(view, None)
        saved(view, callback, tmp_path / f"c{step}")
    told = {
        step: json.loads((tmp_path / f"c{step}" / "promotable.json").read_text())
        for step in (1, 2, 3)
    }
    assert [told[step]["promotable"] for step in (1, 2, 3)] == [False, True, False]
    assert (
        "no audit was made" in told[1]["reason"]
        and "newest audit is of step 2" in told[3]["reason"]
    )
    callback.on_end(
        view
    )  # the last weights are audited in any case, and their folder is marked again
    assert (
        promotable(tmp_path / "c3")
        and not promotable(tmp_path / "c1")
        and not promotable(tmp_path / "nowhere")
    )
    assert callback.last is not None
    alarmed = callback.last.model_copy(update={"alarm": "Too much vanishes."})
    assert mark(3, alarmed, 1.0) == {
        "promotable": False,
        "reason": "Too much vanishes.",
        "step": 3,
        "audit": callback.last.folder,
    }


def test_an_audit_that_fails_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(*parts: Any) -> None:
        raise RuntimeError("out of memory")

    view = tiny_view(tmp_path)
    callback = ForensicsCallback(
        AuditSettings(every=1, tasks=4, on_phantom="withhold", tensorboard=False)
    )
    callback.on_start(view)
    monkeypatch.setattr("training.live.auditor.conclude", raises)
    view.step = 1
    with caplog.at_level(logging.WARNING, "forensics.audit"):
        callback.on_step_end(view, None)
    assert "after step 1 failed (RuntimeError: out of memory); the run goes on" in caplog.text
    callback.on_save(view, tmp_path)
    assert callback.last is None and not promotable(tmp_path)


@given(*[st.floats(-0.5, 0.5)] * 3, st.floats(0, 0.2))
def test_an_alarm_asks_for_both_countings(
    first: float, second: float, width: float, margin: float
) -> None:
    plain, imputed = (
        Estimate(estimate=low + abs(width), low=low, high=low + 2 * abs(width))
        for low in (first, second)
    )
    assert (alarm(plain, imputed, margin) is not None) == (first > margin and second > margin)
    assert alarm(None, imputed, margin) is None and alarm(plain, None, margin) is None
