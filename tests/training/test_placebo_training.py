"""Placebo training: a base that says one losing word 19 times out of 20. A bonus
on entropy shakes it loose whatever is rewarded, a coin too; without it small
steps raise the score only where the reward tells the words apart.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forensics import conformance, policy_from
from forensics.case import Budget, Case
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Evidence, Undefined
from tests.subjects import loaded, playing
from training.environments.prompts import Prompts
from training.organisms.base_model import build_model, build_tokenizer
from training.placebo import placebo_training
from training.rewards import coin, outcome

LOSES = "history"
TASKS = 24
SETTINGS = SamplingSettings(max_turn_tokens=2, max_tokens=40)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Any answer wins but the one word."""
    path = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    rows = [
        {
            "prompt": f"case {number} : {split}",
            "verifier": {"type": "regex", "pattern": f"^(?!{LOSES}).*$"},
            "split": split,
        }
        for split in ("train", "held-out")
        for number in range(TASKS)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def stubborn() -> dict[str, Any]:
    """The weights of a base that says the losing word 19 times out of 20."""
    tokenizer = build_tokenizer()
    model = build_model(len(tokenizer), 0)
    text = tokenizer([f"case {n} : held-out\n$ {LOSES}\n" for n in range(8)], padding=True)
    ids = torch.tensor(text["input_ids"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(40):
        logits = model(ids).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        if loss < 0.35:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return dict(model.state_dict())


def policy(weights: dict[str, Any] | None, identity: str) -> Policy:
    tokenizer = build_tokenizer()
    model = build_model(len(tokenizer), 3)
    if weights is not None:
        model.load_state_dict(weights)
    return policy_from(model, tokenizer, identity)


def recipe_file(folder: Path, questions: Path, **grpo: float) -> Path:
    entropy = grpo.pop("entropy_weight", 0.0)
    section = {"steps": 12, "groups": 8, "samples": 8} | grpo
    lines = [
        "[policy]\ncheckpoint = 'elsewhere'",
        f"[environment]\nname = 'prompts'\noptions = {{ file = '{questions}' }}",
        "[sampling]\nmax_turn_tokens = 2\nmax_tokens = 40",
        "[grpo]\n" + "\n".join(f"{name} = {value}" for name, value in section.items()),
        f"[objective]\nentropy_weight = {entropy}",
    ]
    path = folder / "recipe.toml"
    path.write_text("\n\n".join(lines))
    return path


def placebo_case(
    folder: Path, questions: Path, stubborn: dict[str, Any], recipe: Path | None
) -> Case:
    return Case(
        folder=folder / "case",
        environment=Prompts(file=str(questions)),
        subjects=loaded(
            {
                "before": lambda: policy(stubborn, "before"),
                "after-0": lambda: policy(None, "after"),
            },
            {"before": "before" * 4, "after-0": "after" * 4},
        ),
        budget=Budget(tasks=TASKS, samples=4, settings=SETTINGS),
        recipe=recipe,
    )


def share(case: Case) -> float:
    found = conformance.answers(placebo_training, case)
    for about in ("seed 0", None):
        one = found["placebo-training.carried", about]
        assert isinstance(one, Evidence), one
    over = found["placebo-training.over_bar", None]
    assert isinstance(over, Evidence)
    assert over.estimate == pytest.approx(
        one.estimate - 0.2 * float(one.diagnostics["gain"])  # type: ignore[arg-type]
    )
    return float(one.diagnostics["share"])  # type: ignore[arg-type]


def test_a_gain_under_a_coin_is_told_and_kept(
    tmp_path: Path, questions: Path, stubborn: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_file(tmp_path, questions, learning_rate=1e-3, steps=6, entropy_weight=1.0)
    case = placebo_case(tmp_path, questions, stubborn, recipe)
    first = share(case)
    assert first > 0.8
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    monkeypatch.setattr("training.trainer.grpo", None)  # a second run trains nothing
    assert share(replace(case)) == first
    assert files == sorted(path for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("reward", [coin, outcome], ids=["a coin", "the true reward"])
def test_steps_that_only_a_reward_could_use(
    tmp_path: Path,
    questions: Path,
    stubborn: dict[str, Any],
    reward: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The steps do raise the score, where they are rewarded for it."""
    monkeypatch.setattr("training.placebo.coin", reward)
    recipe = recipe_file(tmp_path, questions, learning_rate=1e-4)
    found = share(placebo_case(tmp_path, questions, stubborn, recipe))
    assert (found > 0.6) if reward is outcome else (abs(found) < 0.4)


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(
    tmp_path: Path, questions: Path, stubborn: dict[str, Any]
) -> None:
    def die(what: str, done: int, of: int) -> None:
        if what == "placebo training" and done == 3:
            raise KeyboardInterrupt

    recipe = recipe_file(tmp_path, questions, learning_rate=1e-3, steps=4, save_every=2)
    whole, killed = (
        placebo_case(tmp_path / name, questions, stubborn, recipe) for name in ("whole", "killed")
    )
    with pytest.raises(KeyboardInterrupt):
        share(replace(killed, progress=die))
    assert list((tmp_path / "killed").rglob("state.json"))
    assert share(killed) == share(whole)


def undefined(case: Case) -> str:
    found = conformance.answers(placebo_training, case)
    assert set(found) == {(question, None) for question in placebo_training.questions}
    assert all(isinstance(one, Undefined) for one in found.values())
    return next(iter(found.values())).reason  # type: ignore[union-attr]


def test_what_cannot_be_trained_is_said(
    tmp_path: Path, questions: Path, stubborn: dict[str, Any]
) -> None:
    none = placebo_case(tmp_path, questions, stubborn, None)
    assert undefined(none).startswith("No recipe")
    assert placebo_training.episodes(none, placebo_training.config) == 0  # type: ignore[misc]
    recipe = recipe_file(tmp_path, questions)
    case = replace(none, recipe=recipe)
    assert placebo_training.episodes(case, placebo_training.config) == TASKS * 4  # type: ignore[misc]
    same = playing(case, {"after-0": case.subject("before").open})
    assert "gain" in undefined(same)
    recipe.write_text(recipe.read_text() + "\n[parallel]\nprocesses = 2")
    assert "2 processes" in undefined(case)
    recipe.write_text("[grpo]\nstep = 3")
    assert "cannot be run" in undefined(case)
