"""The loss and every gradient against TRL's own `GRPOTrainer` on the same rows,
in float32 on the CPU.

TRL makes its batch itself (`_generate_and_score_completions`): prescribed
episodes with tokens of an environment, unequal lengths and runs that were cut
off; then the weights are moved, so that the ratio clips, and TRL's
`_compute_loss` is called. Ours starts from the bare token ids and does
everything again, old and reference log-probabilities too, in micro-batches.
Only the advantages are handed over. Every case has its control: with our
objective left at its defaults the two sides are far apart.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from numpy.random import Generator, default_rng

from forensics.policies.scorer import token_logprobs_and_entropies
from forensics.protocols import SamplingSettings
from tests.tiny import save_tiny_qwen3, tiny_qwen3, tiny_tokenizer
from training.losses import LossSection, Objective, normaliser, policy_loss
from training.surrogates.cispo import Cispo
from training.surrogates.gspo import Gspo
from training.surrogates.sapo import Sapo

trl = pytest.importorskip("trl", reason="parity is with an installed TRL")
datasets = pytest.importorskip("datasets", reason="TRL needs it")

TOLERANCE = 1e-5
GROUP, GROUPS, MOST = 4, 3, 12
PLAIN = {"loss_type": "dapo"}
IMPORTANCE = {
    "vllm_importance_sampling_mode": "token_truncate",
    "vllm_importance_sampling_clip_max": 1.2,
}

CASES: dict[str, tuple[dict[str, Any], Objective]] = {
    "dapo": (PLAIN, Objective()),
    "dr_grpo": ({"loss_type": "dr_grpo"}, Objective(aggregation="dr-grpo")),
    "grpo": ({"loss_type": "grpo"}, Objective(aggregation="sequence-mean")),
}
NAMED: dict[str, tuple[dict[str, Any], LossSection]] = {
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.02},
        Gspo(loss="gspo", clip_low=0.02, clip_high=0.02),
    ),
    "cispo": ({"loss_type": "cispo", "epsilon_high": 1.1}, Cispo(loss="cispo", clip_high=0.1)),
    "sapo": ({"loss_type": "sapo"}, Sapo(loss="sapo")),
}
EXTRAS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "clip": ({"epsilon": 0.05, "epsilon_high": 0.1}, {"clip_low": 0.05, "clip_high": 0.1}),
    "dual clip": (
        {"epsilon": 0.05, "delta": 1.3},
        {"clip_low": 0.05, "clip_high": 0.05, "dual_clip": 1.3},
    ),
    "kl": ({"beta": 0.1}, {"kl": "k3", "kl_weight": 0.1}),
    "kl, bare": (
        {"beta": 0.1, "use_bias_correction_kl": False},
        {"kl": "k3", "kl_weight": 0.1, "kl_correction": False},
    ),
    "truncated": ({"mask_truncated_completions": True}, {"mask_truncated": True}),
    "entropy": ({"entropy_coef": 0.1}, {"entropy_weight": 0.1}),
    "temperature": ({"temperature": 0.7}, {}),
    "importance, token, truncate": (
        IMPORTANCE,
        {"importance": "truncate", "importance_cap": 1.2},
    ),
    "importance, token, mask": (
        IMPORTANCE | {"vllm_importance_sampling_mode": "token_mask"},
        {"importance": "mask", "importance_cap": 1.2, "importance_floor": 0.0},
    ),
    "importance, sequence, truncate": (
        IMPORTANCE | {"vllm_importance_sampling_mode": "sequence_truncate"},
        {"importance": "truncate", "importance_cap": 1.2, "importance_level": "sequence"},
    ),
    "importance, sequence, mask": (
        IMPORTANCE | {"vllm_importance_sampling_mode": "sequence_mask"},
        {
            "importance": "mask",
            "importance_cap": 1.2,
            "importance_level": "sequence",
            "importance_floor": 0.0,
        },
    ),
    "importance, both ends, truncate": (
        IMPORTANCE | {"vllm_importance_sampling_clip_min": 0.9},
        {"importance": "truncate", "importance_cap": 1.2, "importance_floor": 0.9},
    ),
    "importance, both ends, mask": (
        IMPORTANCE
        | {
            "vllm_importance_sampling_mode": "token_mask",
            "vllm_importance_sampling_clip_min": 0.9,
        },
        {"importance": "mask", "importance_cap": 1.2, "importance_floor": 0.9},
    ),
    "all": (
        {
            "epsilon": 0.05,
            "epsilon_high": 0.1,
            "delta": 1.3,
            "beta": 0.1,
            "mask_truncated_completions": True,
            "entropy_coef": 0.1,
            "temperature": 0.8,
            **IMPORTANCE,
        },
        {
            "clip_low": 0.05,
            "clip_high": 0.1,
            "dual_clip": 1.3,
            "kl": "k3",
            "kl_weight": 0.1,
            "mask_truncated": True,
            "entropy_weight": 0.1,
            "importance": "truncate",
            "importance_cap": 1.2,
        },
    ),
}


def episodes(generator: Generator) -> dict[str, list[list[Any]]]:
    """Twelve episodes of three prompts; every third run was cut off (its last
    token is not the end).
    """
    prompts = [
        generator.integers(3, 304, 3 + group).tolist()
        for group in range(GROUPS)
        for _ in range(GROUP)
    ]
    answers = [generator.integers(3, 304, generator.integers(5, MOST)).tolist() for _ in prompts]
    answers = [answer if row % 3 == 0 else [*answer, 2] for row, answer in enumerate(answers)]
    drawn = [[int(t not in (2, 3)) for t in range(len(answer))] for answer in answers]
    logprobs = [
        (-6.25 + 0.15 * generator.standard_normal(len(answer))).tolist() for answer in answers
    ]
    return {
        "prompt_ids": prompts,
        "completion_ids": answers,
        "env_mask": drawn,
        "logprobs": logprobs,
    }


def moved(model: Any, size: float, seed: int) -> None:
    """Every weight a little elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator) * parameter.std()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_tiny_qwen3(tmp_path_factory.mktemp("start"))
    sharp().save_pretrained(folder)  # float32
    return folder


def sharp() -> Any:
    """A tiny model whose log-probabilities differ by more than rounding from token to token."""
    model = tiny_qwen3(0)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(6)
    return model


def trl_trainer(
    start: Path,
    tmp_path: Path,
    options: dict[str, Any],
    rows: dict[str, list[list[Any]]],
    rewards: list[Any] | None = None,
) -> Any:
    """TRL's trainer around the start, whose episodes are prescribed."""
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=GROUP * GROUPS,
        num_generations=GROUP,
        use_cpu=True,
        max_completion_length=MOST,
        report_to=[],
        bf16=False,
        gradient_checkpointing=False,
        model_init_kwargs={"dtype": "float32"},
        gradient_accumulation_steps=1,
        **{"temperature": 1.0} | options,
    )
    data = datasets.Dataset.from_dict({"prompt": ["a"] * GROUPS})

    def reward(completions: list[Any], **more: Any) -> list[float]:
        return [float((3 * row) % 7) for row in range(len(completions))]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trl.GRPOTrainer(
            model=str(start),
            reward_funcs=rewards or reward,
            args=arguments,
            train_dataset=data,
            processing_class=tiny_tokenizer(),
            rollout_func=lambda prompts, trainer: dict(rows),
        )


def trl_batch(trainer: Any, importance: bool) -> dict[str, torch.Tensor]:
    """The batch as TRL makes it. Its importance correction exists only beside
    vLLM, which is told to be up to date.
    """
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    trainer.use_vllm, trainer._last_loaded_step = importance, trainer.state.global_step
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trainer._generate_and_score_completions([{"prompt": "a"}] * (GROUP * GROUPS))


def ours(
    model: Any,
    old: Any,
    reference: Any,
    rows: dict[str, list[list[Any]]],
    advantages: torch.Tensor,
    objective: LossSection,
    temperature: float,
    micro: int = 5,
) -> torch.Tensor:
    """Loss and gradients from the token ids alone, in micro-batches of five rows."""
    ids, drawn, sampler, cut = _tensors(rows)
    weight = drawn * (~cut)[:, None] if objective.mask_truncated else drawn
    settings, divisor, total = (
        SamplingSettings(temperature=temperature),
        normaliser(weight, objective, MOST),
        0.0,
    )

    def numbers(scored: Any, part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return token_logprobs_and_entropies(scored, ids[part], settings, weight[part] != 0, chunk=7)

    model.zero_grad()
    for part in torch.arange(len(ids)).split(micro):
        with torch.no_grad():
            before, far = numbers(old, part)[0], numbers(reference, part)[0]
        logprobs, entropies = numbers(model, part)
        found = policy_loss(
            logprobs,
            old_logprobs=before,
            sampler_logprobs=sampler[part],
            reference_logprobs=far,
            entropies=entropies,
            advantages=advantages[part],
            token_weight=weight[part],
            objective=objective,
            normaliser=divisor,
        )
        found.loss.backward()
        total += found.loss.detach()
    return total


def _tensors(rows: dict[str, list[list[Any]]]) -> tuple[torch.Tensor, ...]:
    """Token ids `[rows, length]`; drawn tokens and sampler log-probabilities
    `[rows, length - 1]`; cut off `[rows]`.
    """
    whole = [p + c for p, c in zip(rows["prompt_ids"], rows["completion_ids"], strict=True)]
    ids = torch.zeros(len(whole), max(map(len, whole)), dtype=torch.long)
    drawn, sampler = torch.zeros(ids.shape), torch.zeros(ids.shape)
    for row, tokens in enumerate(whole):
        first = len(rows["prompt_ids"][row])
        ids[row, : len(tokens)] = torch.tensor(tokens)
        drawn[row, first : len(tokens)] = torch.tensor(rows["env_mask"][row], dtype=torch.float32)
        sampler[row, first : len(tokens)] = torch.tensor(rows["logprobs"][row])
    cut = torch.tensor([answer[-1] != 2 for answer in rows["completion_ids"]])
    return ids, drawn[:, 1:], sampler[:, 1:], cut


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side's loss and gradients by parameter."""

    loss: float
    gradients: dict[str, torch.Tensor]


def both(
    start: Path, tmp_path: Path, options: dict[str, Any], objective: LossSection, splits: int = 1
) -> tuple[Side, Side, Any]:
    """TRL's side, ours, and TRL's trainer. `splits`: its gradient accumulation
    over the same rows.
    """
    rows = episodes(default_rng(0))
    trainer = trl_trainer(
        start, tmp_path, options | {"steps_per_generation": 1, "num_iterations": 2}, rows
    )
    reference, old, model = sharp(), sharp(), sharp()
    for each in (trainer.model, old, model):
        moved(each, 0.05, 1)
    batch = trl_batch(trainer, importance="vllm_importance_sampling_mode" in options)
    batch["advantages"] += 0.5  # centred ones would make the loss a small difference of large sums
    for each in (trainer.model, model):
        moved(each, 0.1, 2)
    theirs = trl_side(trainer, batch, splits)
    loss = ours(
        model, old, reference, rows, batch["advantages"], objective, options.get("temperature", 1.0)
    )
    return theirs, Side(loss=loss.item(), gradients=_gradients(model)), trainer


def trl_side(trainer: Any, batch: dict[str, torch.Tensor], splits: int) -> Side:
    """TRL's loss and gradients, as its training loop adds them up over accumulation steps."""
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = splits
    trainer.model.zero_grad()
    loss, size = 0.0, GROUP * GROUPS // splits
    for first in range(0, GROUP * GROUPS, size):
        part = {
            name: value[first : first + size] if value.dim() else value
            for name, value in batch.items()
        }
        found = trainer._compute_loss(trainer.model, part)
        found.backward()
        loss += found.item()
    return Side(loss=loss, gradients=_gradients(trainer.model))


def _gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.double() for name, parameter in model.named_parameters()}


def apart(one: Side, other: Side) -> float:
    """The largest relative difference: of the loss, and of each parameter's
    gradient (Euclidean).
    """
    assert one.gradients.keys() == other.gradients.keys() and len(one.gradients) > 20
    gaps = [
        float((other.gradients[name] - value).norm() / value.norm())
        for name, value in one.gradients.items()
    ]
    return max(abs(one.loss - other.loss) / abs(one.loss), *gaps)


def combined(kind: str, extra: str) -> tuple[dict[str, Any], LossSection]:
    """TRL's options and our objective for a loss type and an extra."""
    (options, objective), (more, changes) = (CASES | NAMED)[kind], EXTRAS[extra]
    keys = objective.model_dump(exclude_unset=True) | changes
    return options | more, type(objective)(**keys)


EACH = ("clip", "truncated", "all")  # a type of loss is how tokens are added up, all else is one
CROSSED = [
    pytest.param(kind, extra, marks=() if kind == "dapo" or extra in EACH else pytest.mark.slow)
    for kind in CASES
    for extra in EXTRAS
]


@pytest.mark.parametrize(("kind", "extra"), CROSSED)
def test_loss_and_every_gradient(kind: str, extra: str, start: Path, tmp_path: Path) -> None:
    options, objective = combined(kind, extra)
    theirs, mine, trainer = both(start, tmp_path, options, objective)
    assert apart(theirs, mine) < TOLERANCE
    if "epsilon" in options:
        for side in ("low", "high"):  # both ends of the clip were at work
            assert 0.02 < trainer._metrics["train"][f"clip_ratio/{side}_mean"][-1] < 0.9


@pytest.mark.parametrize(
    "extra", ["kl, bare", "truncated", "importance, token, truncate", "importance, sequence, mask"]
)
@pytest.mark.parametrize("kind", NAMED)
def test_losses_of_a_name(kind: str, extra: str, start: Path, tmp_path: Path) -> None:
    """Beside what stands around every loss (`test_trl_losses` has the rest)."""
    options, objective = combined(kind, extra)
    theirs, mine, _ = both(start, tmp_path, options, objective)
    assert apart(theirs, mine) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_accumulation_over_three_steps(kind: str, start: Path, tmp_path: Path) -> None:
    """Two of TRL's steps have other token counts than the third; ours has yet another split."""
    theirs, mine, _ = both(start, tmp_path, *combined(kind, "kl"), splits=3)
    assert apart(theirs, mine) < TOLERANCE
