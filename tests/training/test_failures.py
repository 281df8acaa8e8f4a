"""What breaks while training: rewards, environments, the disk. One sentence,
and nothing before it is lost.
"""

import queue
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from forensics import policy_from
from forensics.errors import UserError
from forensics.records.train_tables import TrainingRecord
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
            "grpo": {"steps": steps, "groups": 3, "samples": 4, "save_every": 1} | changes,
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"learning_rate": 1e-3}, "grpo.learning_rate = 0.0003, not 0.001"),
        ({"samples": 8}, "grpo.samples"),
    ],
)
def test_another_recipe_cannot_go_on_in_a_folder(tmp_path: Path, change: dict, said: str) -> None:
    train(folder=tmp_path, steps=1)
    with pytest.raises(UserError, match=said):
        train(folder=tmp_path, steps=3, **change)
    assert len(train(folder=tmp_path, steps=3)) == 2  # only how far it goes may change
