"""What a step's episodes are worth: those without a reward, those that were cut
off, and a world with few prompts.
"""

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics import policy_from
from forensics.records import TrainingRow
from forensics.records.train_tables import TrainingRecord
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.environments.mini_repo import MiniRepo
from training.environments.prompts import Prompts
from training.organisms.base_model import build_model, build_tokenizer
from training.recipe import parse_recipe
from training.recorder import StepReport
from training.rewards import load_rewards
from training.trainer import grpo


def questions(folder: Path, number: int) -> Prompts:
    path = folder / "questions.jsonl"
    rows = [
        {
            "prompt": f"What is {i} + 0?" + "?" * (i % 3),
            "verifier": {"type": "number", "value": i},
            "split": "train",
        }
        for i in range(number)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Prompts(file=str(path))


def train(
    world: Any, rewards: Any, folder: Path | None = None, **sections: dict[str, Any]
) -> list[StepReport]:
    """Random weights; `sections` of the recipe add to what stands here."""
    recipe: dict[str, Any] = {
        "policy": {"checkpoint": "x"},
        "environment": {"name": world.name},
        "sampling": {"max_turn_tokens": 6, "max_tokens": 80},
        "grpo": {"steps": 1, "groups": 3, "samples": 4},
    }
    for name, section in sections.items():
        recipe[name] = recipe.get(name, {}) | section
    if world.name == "prompts":
        policy = policy_from(tiny_qwen3(1), tiny_tokenizer(), "start")
    else:
        tokenizer = build_tokenizer()
        policy = policy_from(build_model(len(tokenizer), 0), tokenizer, "start")
    if callable(rewards):
        rewards = {"mine": (rewards, 1.0)}
    reports: list[StepReport] = []
    grpo(policy, world, parse_recipe(recipe, "test"), 0, folder, reports.append, rewards=rewards)
    return reports


def rows(folder: Path, step: int = 0) -> list[TrainingRow]:
    return list(TrainingRecord(folder).rows(step))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# -- episodes that the environment broke -----------------------------------------------


class Flaky(MiniRepo):
    """Breaks in the second turn of every third episode."""

    started = 0

    def spawn(self) -> "Flaky":
        other = super().spawn()
        other.__class__ = Flaky
        Flaky.started += 1
        other.bad = Flaky.started % 3 == 0  # type: ignore[attr-defined]
        return other  # type: ignore[return-value]

    def step(self, action: str) -> Any:
        result = super().step(action)
        if self.bad:  # type: ignore[attr-defined]
            raise RuntimeError("backend down")
        return result


@pytest.mark.parametrize(
    "name", ["brevity", "tested", "tests-run", "tie-breaker", "coin", "outcome"]
)
@pytest.mark.parametrize(
    "overlong", [{}, {"overlong_buffer": 6, "overlong_tokens": 6}], ids=["", "overlong"]
)
def test_an_episode_that_broke_has_no_reward_and_is_in_no_baseline(
    tmp_path: Path, name: str, overlong: dict[str, int]
) -> None:
    (report,) = train(
        Flaky(turns="3"),
        load_rewards({name: 1.0}),
        tmp_path,
        grpo={"groups": 4, "samples": 6},
        objective=overlong,
    )
    broken = [row for row in rows(tmp_path) if row.end == "errored"]
    assert report.errored == len(broken) == 8
    for row in broken:
        assert (row.reward, row.advantage, set(row.rewards.values())) == (None, None, {None})
        assert row.dropped == "errored: the environment raised RuntimeError: backend down"
    groups: dict[str, list[float]] = {}
    for row in rows(tmp_path):
        if row.advantage is not None:
            groups.setdefault(row.group, []).append(row.advantage)
    assert all(
        len(found) == 4 and sum(found) == pytest.approx(0, abs=1e-4) for found in groups.values()
    )
    assert groups or name not in (
        "coin",
        "tie-breaker",
    )  # all others are equal where weights are random
    assert report.reward == pytest.approx(
        np.mean([r.reward for r in rows(tmp_path) if r.reward is not None])
    )


def test_a_reward_is_not_asked_about_an_episode_that_broke(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = []
    train(
        Flaky(turns="3"),
        lambda t, g: seen.append(t.end) or g.random(),
        grpo={"groups": 4, "samples": 6, "steps": 2},
    )
    assert len(seen) == 2 * 16 and "errored" not in seen
    assert len([text for text in said(caplog) if "backend down" in text]) == 1  # once in a run


# -- answers that were cut off ---------------------------------------------------------


def test_an_answer_cut_by_the_turn_limit_is_truncated_and_masked(tmp_path: Path) -> None:
    """Stop tokens are rare among random draws, and there are some: both ends
    occur, told apart by the last token.
    """
    world = questions(tmp_path, 6)
    sections = {
        "grpo": {"groups": 6, "samples": 8},
        "sampling": {"max_turn_tokens": 40, "max_tokens": 200},
        "objective": {"mask_truncated": True},
    }
    (report,) = train(world, lambda t, g: g.random(), tmp_path / "run", **sections)
    stops = policy_from(tiny_qwen3(1), tiny_tokenizer(), "start").renderer.stops
    found = rows(tmp_path / "run")
    for row in found:
        assert row.token_ids is not None and row.sampled is not None
        drawn = [i for i, flag in zip(row.token_ids, row.sampled, strict=True) if flag]
        assert row.end == ("terminated" if drawn[-1] in stops else "truncated")
        assert (row.end_reason or "").startswith("last action cut off; ") == (
            row.end == "truncated"
        )
        masked = row.end == "truncated"
        assert row.token_weights == ((0.0,) * len(drawn) if masked else None)
        assert row.outcome is not None  # graded as it stands
    cut = sum(row.end == "truncated" for row in found)
    assert report.truncated == cut and 0 < cut < len(found)


def test_the_length_penalty_counts_what_the_policy_drew(tmp_path: Path) -> None:
    """Limit 6, buffer 4: one draw costs nothing, six cost 1; however long the prompt is."""
    world = questions(tmp_path, 6)
    train(
        world,
        lambda t, g: 0.0,
        tmp_path / "run",
        grpo={"groups": 6, "samples": 8},
        objective={"overlong_buffer": 4, "overlong_tokens": 6},
    )
    found = rows(tmp_path / "run")
    for row in found:
        assert row.rewards["overlong"] == pytest.approx(-max((row.length or 0) - 2, 0) / 4)
    assert len({len(row.token_ids or ()) - (row.length or 0) for row in found}) > 1


# -- runs that cannot learn ------------------------------------------------------------


# -- what counts as a number -----------------------------------------------------------


# -- small sets of prompts -------------------------------------------------------------


@pytest.mark.parametrize("curriculum", ["fresh", "prioritised"])
def test_refilled_groups_have_prompts_of_their_own(tmp_path: Path, curriculum: str) -> None:
    """No group lives, so all five rounds are used up, and with them all prompts that there are."""
    (report,) = train(
        questions(tmp_path, 10),
        lambda t, g: 0.0,
        tmp_path / "run",
        grpo={"groups": 4, "refill": 5, "curriculum": curriculum},
    )
    assert report.groups == 10
    assert set(Counter(row.task for row in rows(tmp_path / "run")).values()) == {4}
