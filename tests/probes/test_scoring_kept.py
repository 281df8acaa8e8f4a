"""Scores that are kept, logs without token ids, adapters, and the bundled pair."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forensics import load_policy, policy_from
from forensics.case import Rollouts
from forensics.errors import UserError
from forensics.policies.checkpoints import inspect_checkpoint, read_environment_hint
from forensics.policies.sampled_tokens import TokenScores, sampler_agreement
from forensics.policies.score_columns import TokenPositions
from forensics.policies.score_store import PolicyRef, stored_scores
from forensics.policies.scored_log import score_log
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Trajectory
from forensics.records.tables import write_trajectories
from tests.tiny import save_tiny_qwen3, tiny_qwen3, tiny_tokenizer
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path
from training.run_state import save_checkpoint

PLAIN = SamplingSettings()


@pytest.fixture(scope="module")
def pair() -> tuple[Policy, Policy]:
    return load_policy(checkpoint_path("bundled:leak")), load_policy(
        checkpoint_path("bundled:capped-base")
    )


@pytest.fixture(scope="module")
def world() -> MiniRepo:
    hint = read_environment_hint(checkpoint_path("bundled:leak"))
    assert hint is not None
    return MiniRepo(**hint.options)


@pytest.fixture(scope="module")
def log(pair: Any, world: MiniRepo) -> list[Trajectory]:
    return list(pair[0].play(world, world.tasks("held-out", 8, 0), 3, PLAIN, seed=1))


def same(one: Sequence[TokenScores], other: Sequence[TokenScores], names: Sequence[str]) -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert mine.trajectory == theirs.trajectory and mine.unread == theirs.unread
        for name in names:
            np.testing.assert_array_equal(mine.columns[name], theirs.columns[name])
        for name in ("step", "place", "token"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))


def test_scorer_sampler_and_the_policies_own_logprobs_agree(
    pair: Any, log: list[Trajectory]
) -> None:
    scores = list(score_log(*pair, log))
    assert sampler_agreement(scores).largest == pytest.approx(0, abs=1e-4)
    assert sampler_agreement(scores).tokens == sum(run.sampled_tokens or 0 for run in log)
    for name, policy in zip(("policy", "reference"), pair, strict=True):
        ids = [[i for step in run.steps for i in step.token_ids or ()] for run in log]
        for row, text, scored in zip(policy.logprobs(ids, PLAIN), ids, scores, strict=True):
            drawn = np.flatnonzero(
                [own for step in scored.trajectory.steps for own in step.sampled or ()]
            )
            np.testing.assert_array_equal(np.array(text)[drawn], scored.token)
            np.testing.assert_allclose(scored.columns[name], row[drawn - 1], atol=1e-4)


# --- kept ---


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean log-probability of the policy, times `scale`."""

    scale: float = 1.0
    names = ("mean",)

    @property
    def identity(self) -> str:
        return f"mean {self.scale}"

    def __call__(self, policy: Any, reference: Any, at: TokenPositions) -> Any:
        return self.scale * policy.mean(-1)


class Counting:
    """How often a policy was loaded."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.times = policy, 0

    def __call__(self) -> Any:
        self.times += 1
        return self.policy


@pytest.fixture
def stored(tmp_path: Path, log: list[Trajectory]) -> Rollouts:
    paths = [tmp_path / f"log-{part}.parquet" for part in range(2)]
    for part, path in enumerate(paths):
        write_trajectories(path, log[part::2])
    return Rollouts(key="the log", paths=tuple(paths))


def test_a_second_reading_loads_no_model_and_gives_the_same_bits(
    pair: Any, stored: Rollouts, tmp_path: Path
) -> None:
    loads = [Counting(policy) for policy in pair]
    sides = [
        PolicyRef(identity=policy.identity, load=load)
        for policy, load in zip(pair, loads, strict=True)
    ]

    def read(**more: Any) -> list[TokenScores]:
        return list(
            stored_scores(tmp_path / "scores", stored, *sides, **{"settings": PLAIN, **more})
        )

    first, second = read(readouts=(Mean(),)), read(readouts=(Mean(),))
    assert [load.times for load in loads] == [1, 1]
    same(first, second, [*first[0].columns])
    for kept, one in zip(first, score_log(*pair, stored, readouts=(Mean(),)), strict=True):
        for name, column in one.columns.items():  # packed with others: equal up to rounding
            np.testing.assert_allclose(kept.columns[name], column, atol=2e-5)
    other = read(readouts=(Mean(scale=2.0),))
    assert [load.times for load in loads] == [2, 2]
    same(first, other, ["policy", "kl"])
    for one, two in zip(first, other, strict=True):
        np.testing.assert_allclose(2 * one.columns["mean"], two.columns["mean"])
    read(settings=SamplingSettings(temperature=0.5))
    assert [load.times for load in loads] == [3, 3]  # what the numbers rest on is in the address


def test_what_was_interrupted_goes_on(pair: Any, stored: Rollouts, tmp_path: Path) -> None:
    sides = [
        PolicyRef(identity=policy.identity, load=lambda policy=policy: policy) for policy in pair
    ]
    whole = list(stored_scores(tmp_path / "whole", stored, *sides, settings=PLAIN))
    scores = stored_scores(tmp_path / "scores", stored, *sides, settings=PLAIN)
    next(scores)
    scores.close()  # type: ignore[attr-defined]
    assert len(list((tmp_path / "scores").iterdir())) == 1
    same(
        whole,
        list(stored_scores(tmp_path / "scores", stored, *sides, settings=PLAIN)),
        [*whole[0].columns],
    )


# --- tokenised again ---


def without_ids(run: Trajectory) -> Trajectory:
    bare = [
        step.model_copy(update={"token_ids": None, "sampled": None, "logprobs": None})
        for step in run.steps
    ]
    return run.model_copy(update={"steps": tuple(bare)})


def test_a_log_without_token_ids_is_tokenised_again_and_says_so(
    pair: Any, log: list[Trajectory]
) -> None:
    """One token a word: there is one way to write each text, so the very ids come back."""
    told = list(score_log(*pair, log))
    again = list(score_log(*pair, map(without_ids, log)))
    assert all(scored.retokenised for scored in again) and not any(
        scored.retokenised for scored in told
    )
    plain = 0
    for one, other in zip(told, again, strict=True):
        if [i for step in one.trajectory.steps for i in step.token_ids or ()] == [
            i for step in other.trajectory.steps for i in step.token_ids or ()
        ]:
            plain += 1
            np.testing.assert_allclose(one.ratio, other.ratio, atol=2e-5)
            np.testing.assert_array_equal(one.step, other.step)
    assert plain == len(log)
    assert sampler_agreement(again).mean is None


def test_a_chat_template_is_heeded() -> None:
    policy = policy_from(tiny_qwen3(0), tiny_tokenizer(), "chat")
    ids = policy.renderer.prompt("What is 3?", "Be short.")
    action = [*tiny_tokenizer()("open 1")["input_ids"], 2]  # 2 ends a turn
    reply = policy.renderer.reply("kiwi", action)
    texts = [
        ("system", "Be short."),
        ("user", "What is 3?"),
        ("assistant", "open 1"),
        ("tool", "kiwi"),
        ("assistant", "submit"),
    ]
    run = Trajectory.model_validate(
        {
            "id": "a",
            "task": "t",
            "policy": "p",
            "environment": "e",
            "seed": 0,
            "outcome": 1.0,
            "end": "truncated",
            "end_reason": "token limit",
            "steps": [{"role": role, "text": text} for role, text in texts],
        }
    )
    (scored,) = score_log(policy, None, [run])
    found = [step.token_ids for step in scored.trajectory.steps]
    assert found[:4] == [(), tuple(ids), tuple(action), tuple(reply)]
    assert found[4] == tuple(tiny_tokenizer()("submit")["input_ids"])  # cut off: it did not end
    assert scored.step.tolist() == [2] * len(action) + [4] * len(found[4])


def test_tokens_that_mean_something_else(pair: Any, log: list[Trajectory]) -> None:
    other = policy_from(tiny_qwen3(0), tiny_tokenizer(), "other")
    with pytest.raises(UserError, match="different tokenizers"):
        next(score_log(pair[0], other, log))
    with pytest.raises(UserError, match="do not spell its texts"):
        list(score_log(other, None, log))


# --- adapters ---


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    from peft import LoraConfig, get_peft_model

    base, adapted = (tmp_path_factory.mktemp(name) for name in ("base", "adapter"))
    save_tiny_qwen3(base)
    torch.manual_seed(0)
    config = LoraConfig(r=4, init_lora_weights=False, target_modules="all-linear")
    model = get_peft_model(load_policy(base).model, config)
    model.save_pretrained(adapted)
    yield adapted, base


def test_an_adapter_is_switched_off_for_the_reference(
    adapter: tuple[Path, Path], tmp_path: Path
) -> None:
    from peft import PeftModel

    from forensics.policies.adapters import load_adapter

    policy, reference = load_adapter(*adapter)
    base = load_policy(adapter[1])
    merged = policy_from(
        PeftModel.from_pretrained(load_policy(adapter[1]).model, adapter[0]).merge_and_unload(),
        base.tokenizer,
        "merged",
    )
    run = Trajectory.model_validate(
        {
            "id": "a",
            "task": "t",
            "policy": "p",
            "environment": "e",
            "seed": 0,
            "outcome": 1.0,
            "end": "terminated",
            "steps": [
                {"role": "user", "text": "fail kiwi"},
                {"role": "assistant", "text": "open 1"},
            ],
        }
    )
    (found,), (wanted,) = score_log(policy, reference, [run]), score_log(merged, base, [run])
    for name in ("policy", "reference", "kl"):
        np.testing.assert_allclose(found.columns[name], wanted.columns[name], atol=1e-4)
    assert np.abs(found.ratio).max() > 0.01
    assert reference.identity == base.identity != policy.identity
    whole = PeftModel.from_pretrained(load_policy(adapter[1], dtype="bfloat16").model, adapter[0])
    save_checkpoint(tmp_path, whole, base.tokenizer)
    assert policy.identity == inspect_checkpoint(tmp_path).identity  # one policy, either way


def test_an_adapter_of_another_model(adapter: tuple[Path, Path], tmp_path: Path) -> None:
    from forensics.policies.adapters import load_adapter

    with pytest.raises(UserError, match="adapter_config"):
        load_adapter(tmp_path, adapter[1])
    with pytest.raises(UserError, match="does not fit"):
        load_adapter(adapter[0], checkpoint_path("bundled:leak"))
