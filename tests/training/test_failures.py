"""What breaks while training: rewards, environments, the disk. One sentence,
and nothing before it is lost.
"""

import logging
import queue
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from forensics import policy_from
from forensics.errors import UserError
from forensics.records.files import read_json
from forensics.records.train_tables import TrainingRecord
from training import trained_model
from training.environments.mini_repo import MiniRepo
from training.organisms.base_model import build_model, build_tokenizer
from training.recipe import parse_recipe
from training.recorder import StepReport
from training.trainer import grpo


def train(
    reward=None,
    world=None,
    folder: Path | None = None,
    steps: int = 3,
    **changes: object,
) -> list[StepReport]:
    tokenizer = build_tokenizer()
    policy = policy_from(build_model(len(tokenizer), 0), tokenizer, "start")
    recipe = parse_recipe(
        {
            "policy": {"checkpoint": "x"},
            "environment": {"name": "mini-repo", "options": {"turns": "2"}},
            "rewards": {"coin": 1.0},
            "sampling": {"max_turn_tokens": 4, "max_tokens": 40},
            "grpo": {"steps": steps, "groups": 3, "samples": 4, "rows": 12, "save_every": 1}
            | changes,
        },
        "test",
    )
    reports: list[StepReport] = []
    rewards = None if reward is None else {"mine": (reward, 1.0)}
    grpo(policy, world or MiniRepo(turns="2"), recipe, 0, folder, reports.append, rewards=rewards)
    return reports


def raising(trajectory, generator) -> float:
    raise KeyError("no such test")


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        (raising, "raised KeyError"),
        (lambda t, g: float("nan"), "nan"),
        (lambda t, g: [0.0, 1.0], "not one finite number"),
        (lambda t, g: "1", "not one finite number"),
    ],
)
def test_a_broken_reward_stops_the_run_or_counts_as_missing(reward, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        train(reward)
    assert "\n" not in str(caught.value) and "on_reward_error" in str(caught.value)
    reports = train(reward, on_reward_error="missing")
    assert [r.reward for r in reports] == [None] * 3 and all(
        r.optimizer_steps == 0 for r in reports
    )
    (reason,) = {reason for report in reports for reason in report.dropped}
    assert all(r.dropped == {reason: 3} for r in reports)
    assert reason.startswith("fewer than two rewards: the reward 'mine'") and said in reason


class Breaking(MiniRepo):
    """Raises, hangs or cannot start on some tasks."""

    how = "raise"
    stuck, over = Event(), Event()

    def spawn(self):
        other = super().spawn()
        other.__class__ = type(self)
        return other

    def reset(self, task: str, seed: int):
        self.bad = int(task.rsplit("-", 1)[1]) == 0
        if self.bad and self.how == "reset":
            raise RuntimeError("no container")
        return super().reset(task, seed)

    def step(self, action: str):
        if self.bad and self.how == "raise":
            raise RuntimeError("the sandbox died")
        if self.bad and self.how == "hang":
            self.stuck.set()
            self.over.wait()
        return super().step(action)


class Told(queue.Queue):
    """Answers of guarded steps: the time of one is up when it is stuck, and
    never because the machine is busy.
    """

    def get(self, block: bool = True, timeout: float | None = None):
        assert timeout == 0.1
        while True:
            try:
                return super().get(timeout=0.01)
            except queue.Empty:
                if Breaking.stuck.is_set():
                    Breaking.stuck.clear()
                    raise


@pytest.fixture
def stuck_steps(monkeypatch):
    monkeypatch.setattr("training.rollouts.queue", SimpleNamespace(Queue=Told, Empty=queue.Empty))
    monkeypatch.setattr(Breaking, "over", Event())
    yield
    Breaking.over.set()


@pytest.mark.usefixtures("stuck_steps")
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "the sandbox died"),
        ("reset", "no container"),
        ("hang", "longer than 0.1 s"),
    ],
)
def test_a_broken_environment_drops_the_episode_or_stops_the_run(
    monkeypatch, how: str, said: str
) -> None:
    monkeypatch.setattr(Breaking, "how", how)
    limits = {"step_seconds": 0.1} if how == "hang" else {}
    reports = train(world=Breaking(turns="2"), steps=1, **limits)
    (reason,) = [
        reason
        for reason in reports[0].dropped
        if reason.startswith("fewer than two rewards: errored")
    ]
    assert reports[0].errored == 4 and reports[0].dropped[reason] == 1 and said in reason
    with pytest.raises(UserError, match=said) as caught:
        train(world=Breaking(turns="2"), steps=1, on_environment_error="stop", **limits)
    assert "\n" not in str(caught.value)


def test_a_run_that_stops_keeps_its_record_and_goes_on(tmp_path: Path) -> None:
    seen: list[int] = []

    def later(trajectory, generator) -> float:
        seen.append(1)
        if len(seen) == 2 * 12 + 5:
            raise ValueError("the judge is down")
        return generator.random()

    with pytest.raises(UserError, match="the judge is down"):
        train(later, folder=tmp_path)
    assert list(TrainingRecord(tmp_path).steps()) == [0, 1]
    train(later, folder=tmp_path)
    assert list(TrainingRecord(tmp_path).steps()) == [0, 1, 2]


class Broken:
    """A trainer's pass whose numbers are not finite at some of its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls: set[int], what: str) -> None:
        self.calls, self.what, self.number = calls, what, -1
        self.real = trained_model.token_logprobs_and_entropies
        monkeypatch.setattr(trained_model, "token_logprobs_and_entropies", self)

    def __call__(self, *given: Any, **named: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.number += torch.is_grad_enabled()
        logprobs, entropies = self.real(*given, **named)
        if self.number not in self.calls:
            return logprobs, entropies
        if self.what == "loss":
            return logprobs * torch.nan, entropies
        logprobs.register_hook(lambda gradient: gradient * torch.inf)
        return logprobs, entropies


def states(folder: Path, step: int) -> dict[str, torch.Tensor]:
    place = folder / "state" / f"step-{step:06d}"
    return load_file(place / "weights.safetensors") | load_file(place / "optimizer.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    Broken(monkeypatch, {1, 2}, what)
    with caplog.at_level(logging.WARNING, "forensics"):
        reports = train(folder=tmp_path / "run", steps=4)
    told = [text for text in caplog.messages if f"{what} is not finite" in text.lower()]
    assert len(told) == 1 and "left out" in told[0]
    assert [(r.skipped, r.optimizer_steps) for r in reports] == [(0, 1), (1, 0), (1, 0), (0, 1)]
    broken = what == "loss"
    assert [r.loss is None for r in reports] == [False, broken, broken, False]
    assert [r.gradient_norm is None for r in reports] == [False, True, True, False]
    rows = list(TrainingRecord(tmp_path / "run").rows(1))
    assert any(row.advantage for row in rows)  # the record tells of these steps as of others


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_skipped_step_leaves_weights_and_moments_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    train(folder=tmp_path, steps=1)
    before = states(tmp_path, 1)
    Broken(monkeypatch, {0}, what)
    train(folder=tmp_path, steps=2)
    assert len(before) > 20 and same(before, states(tmp_path, 2))


def test_several_in_a_row_end_the_run_and_another_learning_rate_may_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        Broken(patch, {2, 3, 4, 5}, "gradient")
        with pytest.raises(UserError, match="not finite in 3 optimizer steps in a row") as caught:
            train(folder=tmp_path, steps=9, most_skipped=2)
    assert "\n" not in str(caught.value) and "lower learning_rate" in str(caught.value)
    assert read_json(tmp_path / "state" / "step-000004" / "state.json")["skipped"] == 2
    with caplog.at_level(logging.WARNING, "forensics"):
        reports = train(folder=tmp_path, steps=6, learning_rate=1e-5, most_skipped=2)
    assert "learning_rate = 1e-05 instead of 0.0003" in caplog.text
    assert [(r.step, r.learning_rate) for r in reports] == [(4, 1e-5), (5, 1e-5)]
    record = TrainingRecord(tmp_path)
    assert [record.report(step)["learning_rate"] for step in (0, 3, 4, 5)] == [3e-4] * 2 + [
        1e-5
    ] * 2
    assert "skipped" not in read_json(tmp_path / "state" / "step-000006" / "state.json")


def test_the_learning_rate_follows_its_schedule_also_where_a_run_is_gone_on_with(
    tmp_path: Path,
) -> None:
    told = {"learning_rate": 4e-3, "warmup_steps": 2, "schedule": "linear"}
    first = train(folder=tmp_path / "run", steps=4, **told)
    assert [report.learning_rate for report in first] == pytest.approx([2e-3, 4e-3, 4e-3, 2e-3])
    again = train(folder=tmp_path / "run", steps=6, **told)
    assert [report.learning_rate for report in again] == pytest.approx([2e-3, 1e-3])
    cosine = [
        train(steps=3, schedule="cosine", learning_rate=1e-3)[at].learning_rate for at in (0, 1)
    ]
    assert cosine == pytest.approx([1e-3, 7.5e-4])
    slow = train(folder=tmp_path / "slow", steps=1, learning_rate=1e-3, warmup_steps=10)
    same_rate = train(folder=tmp_path / "plain", steps=1, learning_rate=1e-4)
    assert slow[0].learning_rate == same_rate[0].learning_rate == pytest.approx(1e-4)
    assert same(states(tmp_path / "slow", 1), states(tmp_path / "plain", 1))
