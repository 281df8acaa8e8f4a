"""Every loss that both ship, against TRL's own `_compute_loss` on random rows: loss and
the gradient of each log-probability, 20 batches each. And the advantages that its
trainers make of prescribed rewards.

TRL's trainer is real; only what its model would say of the rows is prescribed.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny import tiny_tokenizer
from tests.training.test_trl_parity import (
    GROUP,
    GROUPS,
    MOST,
    TOLERANCE,
    datasets,
    episodes,
    start,
    trl,
    trl_batch,
    trl_trainer,
)
from tests.training.trajectories import trajectory
from training.advantages import estimate_advantages
from training.groups import Group
from training.losses import LossSection, Objective, normaliser, policy_loss, policy_loss_named
from training.recipe import GrpoSection

__all__ = ["start"]  # a fixture

ROWS = GROUP * GROUPS
BATCHES = range(20)
BARE_KL = {"beta": 0.1, "use_bias_correction_kl": False}
OUR_KL = {"kl": "k3", "kl_weight": 0.1, "kl_correction": False}
BY_ROW = {"loss_type": "grpo", "importance_sampling_level": "sequence"}

LOSSES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"loss_type": "grpo"}, {"aggregation": "sequence-mean"}),
    "bnpo": ({"loss_type": "bnpo"}, {}),
    "dr_grpo": ({"loss_type": "dr_grpo"}, {"aggregation": "dr-grpo"}),
    "dapo": ({"loss_type": "dapo", "epsilon_high": 0.28}, {"clip_high": 0.28}),
    "dapo, dual clip, kl": (
        {"loss_type": "dapo", "delta": 1.3, "beta": 0.1},
        {"dual_clip": 1.3, "kl": "k3", "kl_weight": 0.1},
    ),
    "dapo, off-policy mask": (
        {"loss_type": "dapo", "off_policy_mask_threshold": 0.02, **BARE_KL},
        {"off_policy_limit": 0.02, **OUR_KL},
    ),
    "gspo": (
        BY_ROW | {"epsilon": 0.05, "epsilon_high": 0.08},
        {"loss": "gspo", "clip_low": 0.05, "clip_high": 0.08},
    ),
    "gspo, the paper's ends": (
        BY_ROW | {"epsilon": 3e-4, "epsilon_high": 4e-4, **BARE_KL},
        {"loss": "gspo", **OUR_KL},
    ),
    "gspo, dual clip": (
        BY_ROW | {"epsilon": 0.05, "delta": 1.1},
        {"loss": "gspo", "clip_low": 0.05, "clip_high": 0.05, "dual_clip": 1.1},
    ),
    "gspo by tokens": (
        BY_ROW | {"epsilon": 0.05, "epsilon_high": 0.08},
        {"loss": "gspo", "clip_low": 0.05, "clip_high": 0.08, "level": "token"},
    ),
    "cispo": ({"loss_type": "cispo", "epsilon_high": 5.0}, {"loss": "cispo"}),
    "cispo, close, kl": (
        {"loss_type": "cispo", "epsilon_high": 1.2, "beta": 0.1},
        {"loss": "cispo", "clip_high": 0.2, "kl": "k3", "kl_weight": 0.1},
    ),
    "sapo": ({"loss_type": "sapo"}, {"loss": "sapo"}),
    "sapo, hot, off-policy mask": (
        {
            "loss_type": "sapo",
            "sapo_temperature_pos": 3.0,
            "sapo_temperature_neg": 0.7,
            "off_policy_mask_threshold": 0.02,
        },
        {
            "loss": "sapo",
            "temperature_positive": 3.0,
            "temperature_negative": 0.7,
            "off_policy_limit": 0.02,
        },
    ),
}


def objective(keys: dict[str, Any]) -> LossSection:
    return policy_loss_named(keys.get("loss", "clipped")).config(**keys)


def random_rows(seed: int) -> dict[str, torch.Tensor]:
    """Log-probabilities of four policies, which tokens count (each row has one), and
    an advantage a row.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(size: float) -> torch.Tensor:
        return size * torch.randn(ROWS, MOST, generator=generator)

    old = -noise(2.0).abs()
    mask = torch.rand(ROWS, MOST, generator=generator) > 0.3
    mask[:, 0] = True
    return {
        "now": (old + noise(0.3)).requires_grad_(),
        "old": old,
        "sampler": old + noise(0.1),
        "reference": old + noise(0.3),
        "mask": mask,
        "advantages": noise(1.0)[:, 0],
    }


def their_loss(trainer: Any, rows: dict[str, torch.Tensor]) -> torch.Tensor:
    """TRL's loss where its model says `now` of the rows."""
    now, mask = rows["now"], rows["mask"].long()

    def prescribed(*given: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor, None]:
        return now, torch.zeros_like(now), None

    trainer._get_per_token_logps_and_entropies = prescribed
    return trainer._compute_loss(
        trainer.model,
        {
            "prompt_ids": torch.ones(ROWS, 2, dtype=torch.long),
            "prompt_mask": torch.ones(ROWS, 2, dtype=torch.long),
            "completion_ids": torch.ones_like(mask),
            "completion_mask": torch.ones_like(mask),
            "tool_mask": mask,
            "advantages": rows["advantages"],
            "old_per_token_logps": rows["old"],
            "ref_per_token_logps": rows["reference"],
            "sampling_per_token_logps": rows["sampler"],
            "num_items_in_batch": mask.sum(),
        },
    )


def our_loss(rows: dict[str, torch.Tensor], chosen: LossSection) -> torch.Tensor:
    weight = rows["mask"].float()
    return policy_loss(
        rows["now"],
        old_logprobs=rows["old"],
        sampler_logprobs=rows["sampler"],
        reference_logprobs=rows["reference"],
        advantages=rows["advantages"],
        token_weight=weight,
        objective=chosen,
        normaliser=normaliser(weight, chosen, MOST),
    ).loss


def gap(one: torch.Tensor, other: torch.Tensor, now: torch.Tensor) -> float:
    """The larger difference of the two losses: in value, or relative in gradient."""
    (mine,), (theirs,) = (torch.autograd.grad(x, now, retain_graph=True) for x in (one, other))
    return max(abs(one.item() - other.item()), float((mine - theirs).norm() / theirs.norm()))


@pytest.mark.parametrize("kind", LOSSES)
def test_loss_and_gradient_on_twenty_batches(kind: str, start: Path, tmp_path: Path) -> None:
    options, keys = LOSSES[kind]
    trainer = trl_trainer(start, tmp_path, options, episodes(np.random.default_rng(0)))
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = 1
    for seed in BATCHES:
        rows = random_rows(seed)
        theirs = their_loss(trainer, rows)
        assert gap(our_loss(rows, objective(keys)), theirs, rows["now"]) < TOLERANCE
        if keys:
            assert gap(our_loss(rows, Objective()), theirs, rows["now"]) > 1e-3


WEIGHTS = {"right": 1.0, "short": 0.3, "style": 2.0}


def step_rewards(seed: int, missing: bool = True) -> np.ndarray:
    """Rewards `[rows, names]` of very different spread; one attempt has none."""
    rewards = np.random.default_rng(seed).normal(size=(ROWS, 3)) * (1.0, 50.0, 0.2)
    rewards[:, 0] = rewards[:, 0] > 0
    if missing:
        rewards[seed % ROWS] = np.nan
    return rewards


def groups_of(rewards: np.ndarray) -> list[Group]:
    """The same as our trainer has it."""
    parts = [
        {name: None if np.isnan(x) else float(x) for name, x in zip(WEIGHTS, row, strict=True)}
        for row in rewards
    ]
    totals = rewards @ list(WEIGHTS.values())
    groups = [slice(first, first + GROUP) for first in range(0, ROWS, GROUP)]
    return [
        Group(
            task="a",
            trajectories=(trajectory("a", 1.0),) * GROUP,
            components=tuple(parts[rows]),
            totals=tuple(None if np.isnan(x) else float(x) for x in totals[rows]),
            weights=WEIGHTS,
        )
        for rows in groups
    ]


def ours(name: str, rewards: np.ndarray) -> list[float]:
    """Our advantages, 0 where there is none, as TRL has it."""
    found = estimate_advantages(groups_of(rewards), GrpoSection(steps=1, advantages=name))
    return [value or 0.0 for one in found for value in one.values]


def reward_functions(given: list[np.ndarray]) -> list[Any]:
    """TRL's reward functions, which read the rewards of the step at hand."""

    def one(column: int) -> Any:
        def reward(completions: list[Any], **more: Any) -> list[float | None]:
            return [None if np.isnan(x) else float(x) for x in given[0][:, column]]

        return reward

    return [one(column) for column in range(3)]


@pytest.fixture
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_gdpo_is_trls_normalize_then_sum(start: Path, tmp_path: Path, quiet: None) -> None:
    options = {
        "multi_objective_aggregation": "normalize_then_sum",
        "reward_weights": list(WEIGHTS.values()),
    }
    given = [step_rewards(0)]
    trainer = trl_trainer(
        start, tmp_path, options, episodes(np.random.default_rng(0)), reward_functions(given)
    )
    for seed in BATCHES:
        given[0] = step_rewards(seed)
        theirs = trl_batch(trainer, importance=False)["advantages"].tolist()
        assert ours("gdpo", given[0]) == pytest.approx(theirs, abs=TOLERANCE)
        assert ours("group", given[0]) != pytest.approx(theirs, abs=0.1)


def test_rloo_is_that_of_trl(start: Path, tmp_path: Path, quiet: None) -> None:
    given = [step_rewards(0)]
    trainer = trl.RLOOTrainer(
        model=str(start),
        reward_funcs=reward_functions(given),
        args=trl.RLOOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=ROWS,
            num_generations=GROUP,
            reward_weights=list(WEIGHTS.values()),
            beta=0.0,
            max_completion_length=1,
            use_cpu=True,
            bf16=False,
            report_to=[],
        ),
        train_dataset=datasets.Dataset.from_dict({"prompt": ["a"] * GROUPS}),
        processing_class=tiny_tokenizer(),
    )
    for seed in BATCHES:
        given[0] = step_rewards(seed)
        theirs = trainer._generate_and_score_completions([{"prompt": "a"}] * ROWS)["advantages"]
        assert ours("rloo", given[0]) == pytest.approx(theirs.tolist(), rel=1e-5, abs=TOLERANCE)
