"""What a run is: its weights, its rewards, its start. Another one is refused in
one sentence that names the cure.
"""

from pathlib import Path

import pytest

from forensics import load_policy, policy_from
from forensics.errors import UserError
from forensics.protocols import Policy
from forensics.records.train_tables import TrainingRecord
from training.environments.mini_repo import MiniRepo
from training.organisms.base_model import build_model, build_tokenizer
from training.recipe import Recipe, parse_recipe
from training.run_state import save_checkpoint
from training.trainer import grpo


def recipe(checkpoint: str = "x", steps: int = 1, **sections: object) -> Recipe:
    return parse_recipe(
        {
            "policy": {"checkpoint": checkpoint},
            "environment": {"name": "mini-repo", "options": {"turns": 2}},
            "rewards": {"coin": 1.0},
            "sampling": {"max_turn_tokens": 4, "max_tokens": 40},
            "grpo": {"steps": steps, "groups": 2, "samples": 4, "save_every": 1},
            **sections,
        },
        "test",
    )


def fresh(identity: str = "start") -> Policy:
    tokenizer = build_tokenizer()
    return policy_from(build_model(len(tokenizer), 0), tokenizer, identity)


def train(
    policy: Policy,
    folder: Path | None = None,
    plan: Recipe | None = None,
    **more: object,
) -> None:
    grpo(policy, MiniRepo(turns="2"), plan or recipe(), 0, folder, **more)


def chance(trajectory, generator) -> float:
    return generator.random()


def other(trajectory, generator) -> float:
    return generator.random()


def refused(match: str) -> object:
    return pytest.raises(UserError, match=match)


def test_half_precision_weights_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "start", build_model(len(build_tokenizer()), 0), build_tokenizer())
    with refused(r"weights are in bfloat16.*dtype=\"float32\""):
        train(load_policy(tmp_path / "start", device="cpu", dtype="bfloat16"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train(load_policy(tmp_path / "start", device="cpu", dtype="float32"))


@pytest.mark.parametrize("sections", [{}, {"lora": {"rank": 4}}])
def test_a_trained_policy_is_used_again_only_under_a_name_of_its_own(
    tmp_path: Path, sections: dict
) -> None:
    if sections:
        pytest.importorskip("peft")
    policy = fresh()
    train(policy, tmp_path / "one", recipe(**sections))
    with refused("an earlier grpo.. has changed the weights"):
        train(policy, tmp_path / "two", recipe(**sections))
    assert not (tmp_path / "two").exists()
    again = policy_from(policy.model, policy.tokenizer, "after one")
    if sections:
        with refused("already has an adapter.*merge_and_unload"):
            train(again, tmp_path / "two", recipe(**sections))
        again = policy_from(policy.model.merge_and_unload(), policy.tokenizer, "after one")
    train(again, tmp_path / "two", recipe(**sections))
    assert [TrainingRecord(tmp_path / name).run.start for name in ("one", "two")] == [
        "start",
        "after one",
    ]


def test_the_rewards_that_were_used_are_recorded_and_kept(tmp_path: Path) -> None:
    train(fresh(), tmp_path, rewards={"mine": (chance, 2.0)})
    run = TrainingRecord(tmp_path).run
    assert run.rewards == {"mine": {"weight": 2.0, "function": f"{__name__}:chance"}}
    assert run.recipe["rewards"] == {"mine": 2.0}
    for rewards, told in (
        (
            {"mine": (other, 2.0)},
            rf"rewards.mine.function = {__name__}:chance, not {__name__}:other",
        ),
        ({"mine": (chance, 1.0)}, "rewards.mine = 2.0, not 1.0"),
        ({"yours": (chance, 2.0)}, "rewards.mine = 2.0"),
        (None, "rewards.coin = nothing, not 1.0"),
    ):
        with refused(told):
            train(fresh(), tmp_path, recipe(steps=2), rewards=rewards)
    train(fresh(), tmp_path, recipe(steps=2), rewards={"mine": (chance, 2.0)})
    assert TrainingRecord(tmp_path).steps() == (0, 1)


def test_another_start_is_told_by_its_checkpoint(tmp_path: Path) -> None:
    train(fresh("hash-one"), tmp_path, recipe("models/mine"))
    with refused(
        r"other weights than policy.checkpoint = models/mine has now \(content hash hash-one, not"
        r" hash-two\)"
    ):
        train(fresh("hash-two"), tmp_path, recipe("models/mine", steps=2))
    with refused("policy.checkpoint = models/mine, not models/yours"):
        train(fresh("hash-two"), tmp_path, recipe("models/yours", steps=2))


def test_of_all_that_differs_the_cause_is_named(tmp_path: Path) -> None:
    """Another loss has other keys: the loss is told, not a key that one of them lacks."""
    train(fresh(), tmp_path, recipe(objective={"loss": "gspo"}))
    with refused("objective.loss = gspo, not sapo"):
        train(fresh(), tmp_path, recipe(objective={"loss": "sapo"}))
