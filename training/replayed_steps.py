"""A changed loss over recorded rollouts: what would this objective have made of
the steps of that run?

1. The rows of a step that were trained on are read back from the record and
   laid out as the trainer's batch.
2. They are scored under `policy` (any checkpoint of the model; the one before
   the step reproduces the step) and go through the one loss there is
   (`training.losses`), with one normaliser for the whole step.
3. Loss, gradient norm and the loss's diagnostics come back, step by step. No
   weight is changed, nothing is sampled.

Advantages and token weights are those that were recorded; a row that was masked
stays masked. A step that was trained on in several minibatches or epochs is
replayed as one pass over all of its rows; the loss that the run reported is of
its first pass too, and differs by what the weights moved between the
minibatches.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from forensics.errors import UserError
from forensics.protocols import Policy, SamplingSettings
from forensics.records import TrainingRecord, TrainingRow
from training.losses import LossSection, normaliser
from training.recipe import ComputeSection
from training.trained_model import Scorer
from training.update import Batch, add_diagnostics, batch_loss, padded, placed, token_means


@dataclass(frozen=True, kw_only=True)
class ReplayedStep:
    """One recorded step under an objective. `loss` and `gradient_norm` are
    `None` where no row was trained on.

    `recorded_loss`: what the run itself reported for the step, of its first
    pass. `diagnostics`: means over the step's tokens (shares of clipped tokens,
    divergences, entropy). `gradient_norm` is that of the whole step, before any
    clipping.
    """

    step: int
    recorded_loss: float | None
    rows: int = 0
    tokens: int = 0
    loss: float | None = None
    gradient_norm: float | None = None
    diagnostics: dict[str, float] = field(default_factory=dict)


def replay(
    folder: Path,
    steps: Iterable[int] | None,
    objective: LossSection,
    policy: Policy,
    rows: int = 128,
) -> Iterator[ReplayedStep]:
    """Each of `steps` (default: every complete one) under `objective` and the
    weights of `policy`.

    `rows`: how many go through the model at once; it does not change the
    result. Raises `UserError` for a step that is not complete, and where the
    record lacks what the objective needs.
    """
    record = TrainingRecord(folder)
    settings = recorded_settings(record)
    for step in record.steps() if steps is None else steps:
        record.verify(step)
        rows_of_step = list(record.rows(step))
        used = [row for row in rows_of_step if row.advantage is not None]
        told = record.report(step).get("loss")
        if not used:
            yield ReplayedStep(step=step, recorded_loss=told)
            continue
        _check(used, objective, policy)
        batch = rows_to_batch(used, objective).to(policy.model.device)
        played = _played(rows_of_step, record.run.recipe)
        yield _replayed(step, batch, objective, policy, settings, rows, told, played)


def _played(rows: Sequence[TrainingRow], recipe: Mapping[str, Any]) -> int:
    """How many episodes the step counted, as `trainer.counted_episodes` does."""
    scored, asked = sum(row.reward is not None for row in rows), recipe.get("grpo")
    if not isinstance(asked, dict) or not {"groups", "samples"} <= set(asked):
        return scored
    return min(scored, int(asked["groups"]) * int(asked["samples"]))


def recorded_settings(record: TrainingRecord) -> SamplingSettings:
    """The sampling settings of the run, under which log-probabilities are stated."""
    sampling = record.run.recipe.get("sampling")
    if not isinstance(sampling, dict):
        raise UserError(
            f"the recipe in {record.folder} states no sampling settings; only our trainer's runs"
            " replay"
        )
    return SamplingSettings(**sampling)


def rows_to_batch(rows: Sequence[TrainingRow], objective: LossSection | None = None) -> Batch:
    """Recorded rows as the trainer's batch, on the CPU. `objective`: masks
    truncated rows where it says so.

    Old log-probabilities that were not recomputed are the sampler's own, as in
    the trainer.
    """
    sampled = [row.sampled or () for row in rows]

    def column(*names: str, other: float = 0.0) -> torch.Tensor:
        """The first of these that a row has."""
        found = [next(filter(None, (getattr(row, name) for name in names)), None) for row in rows]
        numbers = [
            (other,) * (row.length or 0) if values is None else values
            for row, values in zip(rows, found, strict=True)
        ]
        return placed(numbers, sampled)

    cut = [bool(objective and objective.mask_truncated and row.end == "truncated") for row in rows]
    gains = [row.token_advantages or (row.advantage or 0.0,) * (row.length or 0) for row in rows]
    no_reference = all(row.reference_logprobs is None for row in rows)
    return Batch(
        token_ids=padded([row.token_ids or () for row in rows], 0, torch.long),
        weights=column("token_weights", other=1.0) * ~torch.tensor(cut)[:, None],
        sampler_logprobs=column("sampler_logprobs"),
        old_logprobs=column("old_logprobs", "sampler_logprobs"),
        reference_logprobs=None if no_reference else column("reference_logprobs"),
        advantages=placed(gains, sampled),
        lengths=torch.tensor([len(row.token_ids or ()) for row in rows]),
    )


def _replayed(
    step: int,
    batch: Batch,
    objective: LossSection,
    policy: Policy,
    settings: SamplingSettings,
    rows: int,
    told: float | None,
    played: int,
) -> ReplayedStep:
    scorer = Scorer(policy.model, settings, ComputeSection())
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    divisor = normaliser(batch.weights, objective, settings.max_turn_tokens, played)
    gradients = [torch.zeros_like(p) for p in parameters]
    total, sums = 0.0, dict[str, torch.Tensor]()
    for chosen in batch.micro(rows):
        part = batch.rows(chosen)
        logprobs, entropies = scorer(part.token_ids, part.weights != 0)
        found = batch_loss(part, logprobs, entropies, objective, divisor)
        if found.loss.requires_grad:
            parts = torch.autograd.grad(found.loss, parameters, allow_unused=True)
            gradients = [
                g if part is None else g + part for g, part in zip(gradients, parts, strict=True)
            ]
        total += float(found.loss.detach())
        add_diagnostics(sums, found)
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
    return ReplayedStep(
        step=step,
        rows=len(batch),
        tokens=int((batch.weights != 0).sum()),
        loss=total,
        gradient_norm=float(norm),
        recorded_loss=told,
        diagnostics=token_means([sums]),
    )


def _check(rows: Sequence[TrainingRow], objective: LossSection, policy: Policy) -> None:
    """Whether the record holds what the objective needs, for this model."""
    step = rows[0].step
    trained = [row for row in rows if row.token_weights is None or any(row.token_weights)]
    if any(row.token_ids is None or row.sampler_logprobs is None for row in rows):
        raise UserError(
            f"step {step} was recorded without tokens or log-probabilities, which a loss needs"
        )
    if objective.kl != "none" and any(row.reference_logprobs is None for row in trained):
        raise UserError(
            f"step {step} was recorded without reference log-probabilities; replay with kl ="
            ' "none", or record them with kl = "k3" and kl_weight = 0 under [objective]'
        )
    if objective.corrects_sampler and any(row.old_logprobs is None for row in trained):
        raise UserError(
            f"step {step} was recorded without the trainer's own log-probabilities; replay with"
            ' importance = "none" and without geometric_limit, or record them with recompute_old ='
            " true under [grpo]"
        )
    most, size = (
        max(max(row.token_ids or (0,)) for row in rows),
        policy.model.get_input_embeddings().num_embeddings,
    )
    if most >= size:
        raise UserError(
            f"step {step} holds token {most}, the model has {size}; give a checkpoint of the model"
            " that was trained"
        )
