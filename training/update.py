"""One step's rows through the loss: passes, optimizer steps, micro-batches, and
what is noted for the record.

The loss is divided by one normaliser for all rows of an optimizer step, on all
processes, so neither the micro-batch size nor the number of processes changes
it.

The rows of one optimizer step as tensors (`Batch`): they are filled up on the
right, which causal attention never sees from the left. Position `t` of every
`[rows, length - 1]` tensor speaks of token `t + 1`, the one that position `t`
predicts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any

import numpy as np
import torch

from forensics.errors import UserError
from forensics.records import Trajectory
from training.losses import LossParts, LossSection, Normaliser, normaliser, policy_loss
from training.recipe import GrpoSection
from training.token_logprobs import computed_tokens
from training.trained_model import Machine

Score = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """`token_ids` `[rows, length]`; all others `[rows, length - 1]`, 0 where
    `weights` is 0.

    `weights`: token weights, 0 for tokens that the policy did not draw.
    `sampler_logprobs`: of the engine that sampled; `old_logprobs`: of the
    trainer before its update (the sampler's own, unless recomputed);
    `reference_logprobs`: of the reference policy, where there is one. `lengths`
    `[rows]`: tokens of each row.
    """

    token_ids: torch.Tensor
    weights: torch.Tensor
    sampler_logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    lengths: torch.Tensor
    reference_logprobs: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

    def rows(self, chosen: torch.Tensor) -> "Batch":
        """The rows `chosen`, cut to the longest of them."""
        length = int(self.lengths[chosen].max()) if len(chosen) else 2
        changed = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None:
                part = value[chosen]
                changed[item.name] = (
                    part if part.dim() == 1 else part[:, : length - (item.name != "token_ids")]
                )
        return replace(self, **changed)

    def micro(self, rows: int) -> list[torch.Tensor]:
        """Indices of micro-batches of at most `rows` rows, similar lengths
        together, longest first.
        """
        order = torch.argsort(self.lengths, descending=True, stable=True)
        return list(order.split(rows))

    def to(self, device: Any) -> "Batch":
        changed = {item.name: getattr(self, item.name) for item in fields(self)}
        return replace(
            self, **{name: value.to(device) for name, value in changed.items() if value is not None}
        )


def batch_of(
    trajectories: Sequence[Trajectory],
    advantages: Sequence[float],
    step_weights: Sequence[float] | None = None,
) -> Batch:
    """Rows of a batch on the CPU. `step_weights` scales all of a row's token
    weights (0 masks the row).
    """
    scales = step_weights if step_weights is not None else [1.0] * len(trajectories)
    tokens = [[i for step in t.steps for i in step.token_ids or ()] for t in trajectories]
    masks = [[float(s) for step in t.steps for s in step.sampled or ()] for t in trajectories]
    sampler = padded([_spread(t) for t in trajectories], 0.0, torch.float32)[:, 1:]
    weights = padded(masks, 0.0, torch.float32)[:, 1:]
    gains = torch.tensor(list(advantages), dtype=torch.float32)[:, None] * (weights != 0)
    return Batch(
        token_ids=padded(tokens, 0, torch.long),
        weights=weights * torch.tensor(list(scales))[:, None],
        sampler_logprobs=sampler,
        old_logprobs=sampler,
        advantages=gains,
        lengths=torch.tensor([len(row) for row in tokens]),
    )


def _spread(trajectory: Trajectory) -> list[float]:
    """Sampler log-probabilities at the positions of their tokens, 0 elsewhere."""
    spread: list[float] = []
    for step in trajectory.steps:
        drawn = iter(step.logprobs or ())
        spread += [next(drawn) if sampled else 0.0 for sampled in step.sampled or ()]
    return spread


def padded(rows: Sequence[Sequence[float]], fill: float, kind: torch.dtype) -> torch.Tensor:
    """Rows of different length as one tensor, filled up on the right."""
    width = max((len(row) for row in rows), default=0)
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=kind)


def drawn(values: torch.Tensor, mask: torch.Tensor) -> list[list[float]]:
    """The values at drawn positions, row by row: what a record holds. `mask` `[rows, tokens]`."""
    found = values.detach().float().cpu()
    return [row[keep].tolist() for row, keep in zip(found, mask.cpu().bool(), strict=True)]


@dataclass(frozen=True, kw_only=True)
class RowNotes:
    """Numbers of each drawn token of a row, in order, as the update saw them."""

    old_logprobs: list[float] | None = None
    reference_logprobs: list[float] | None = None
    entropies: list[float] | None = None


@dataclass(kw_only=True)
class UpdateReport:
    """What the optimizer steps of one training step did; `loss` and
    `gradient_norm` are `None` where there was none.

    `loss`: of the first pass over the rows, each minibatch's divided as the
    whole pass would be (by all its tokens or rows), so that it is what `replay`
    computes, but for what the weights moved between minibatches.
    `gradient_norm`: mean over all optimizer steps, before any clipping.
    `diagnostics`: means over the tokens of all passes and processes. `rows`:
    their `entropies` are under the weights before the update where it made a
    pass of its own (`recompute_old`), else under those that the row's minibatch
    met in the first pass.
    """

    loss: float | None = None
    gradient_norm: float | None = None
    optimizer_steps: int = 0
    diagnostics: dict[str, float] = field(default_factory=dict)
    rows: list[RowNotes] = field(default_factory=list)


def update(
    machine: Machine,
    batch: Batch | None,
    optimizer: torch.optim.Optimizer,
    config: GrpoSection,
    objective: LossSection,
    seed: tuple[int, ...],
    most_tokens: int,
) -> UpdateReport:
    """Train on a step's rows. No rows, or none with weight: no optimizer step
    (momentum alone would move the weights).

    `most_tokens` is the constant of `dr-grpo`.
    """
    report = UpdateReport()
    if batch is None or not batch.weights.any():
        report.rows = [RowNotes() for _ in range(len(batch) if batch else 0)]
        return report
    batch, report.rows = _prepared(machine, batch.to(machine.model.device), config, objective)
    sums: dict[str, torch.Tensor] = {}
    whole = normaliser(batch.weights, objective, most_tokens)
    losses, norms = [], []
    with machine.training():
        for epoch in range(config.epochs):
            order = np.random.default_rng([*seed, epoch]).permutation(len(batch))
            parts = (
                [torch.arange(len(batch))]
                if config.minibatches == 1
                else [
                    torch.from_numpy(np.sort(part))
                    for part in np.array_split(order, config.minibatches)
                    if len(part)
                ]
            )
            for chosen in parts:
                notes = _FirstPass(rows=report.rows, chosen=chosen) if epoch == 0 else None
                part = batch.rows(chosen)
                loss, norm = _optimizer_step(
                    machine, part, optimizer, config, objective, most_tokens, sums, notes
                )
                norms.append(norm)
                if epoch == 0:
                    losses.append(
                        loss
                        * float(normaliser(part.weights, objective, most_tokens).loss / whole.loss)
                    )
    report.loss, report.gradient_norm, report.optimizer_steps = (
        sum(losses),
        float(np.mean(norms)),
        len(norms),
    )
    report.diagnostics = _means(
        machine.process.all({name: value.tolist() for name, value in sums.items()})
    )
    report.rows = [
        max(notes, key=lambda note: note.entropies is not None)
        for notes in zip(*machine.process.all(report.rows), strict=True)
    ]
    return report


def _optimizer_step(
    machine: Machine,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    config: GrpoSection,
    objective: LossSection,
    most_tokens: int,
    sums: dict[str, torch.Tensor],
    notes: "_FirstPass | None",
) -> tuple[float, float]:
    """One optimizer step over `batch`, in micro-batches; (loss, gradient norm)."""
    optimizer.zero_grad()
    divisor = normaliser(batch.weights, objective, most_tokens)
    micro = _micro_batches(machine, batch, config.rows)
    total = torch.zeros((), device=machine.model.device)
    for number, chosen in enumerate(micro):
        with machine.accumulating(last=number + 1 == len(micro)):
            part = batch.rows(chosen) if len(chosen) else _nothing(batch)
            found, entropies = batch_loss(machine.score, part, objective, divisor)
            (found.loss * machine.process.size).backward()  # processes average their gradients
        total += found.loss.detach()
        for name, (value, weight) in found.diagnostics.items():
            sums[name] = sums.get(name, 0) + torch.stack([value, weight])
        if notes is not None and len(chosen):
            notes.take(chosen, entropies, part.weights != 0)
    norm = torch.nn.utils.clip_grad_norm_(
        [p for p in machine.model.parameters() if p.requires_grad], config.gradient_norm
    )
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    if not torch.isfinite(norm):
        raise UserError("the gradient is not finite; lower the learning rate or check the rewards")
    optimizer.step()
    return sum(machine.process.all(total.item())), float(norm)


def batch_loss(
    score: Score, part: Batch, objective: LossSection, divisor: Normaliser
) -> tuple[LossParts, torch.Tensor]:
    """The share of these rows in their step's loss, and their entropies."""
    logprobs, entropies = score(part.token_ids, part.weights != 0)
    found = policy_loss(
        logprobs,
        old_logprobs=part.old_logprobs,
        sampler_logprobs=part.sampler_logprobs,
        reference_logprobs=part.reference_logprobs,
        entropies=entropies,
        advantages=part.advantages,
        token_weight=part.weights,
        objective=objective,
        normaliser=divisor,
    )
    return found, entropies


def _micro_batches(machine: Machine, batch: Batch, rows: int) -> list[torch.Tensor]:
    """Rows of this process; as many parts on every process (some may be empty).

    Similar lengths together, or groups together, whichever leaves fewer tokens
    to compute; all processes see the whole batch and decide alike.
    """
    process = machine.process
    by_length = torch.argsort(batch.lengths, descending=True, stable=True).cpu()
    strided = [by_length[rank :: process.size] for rank in range(process.size)]
    grouped = list(torch.arange(len(batch)).tensor_split(process.size))
    orders = (strided, grouped) if machine.scorer.shares else (strided,)
    plans = [[list(mine.split(rows)) if len(mine) else [] for mine in shares] for shares in orders]
    parts = min(
        plans, key=lambda plan: sum(_cost(batch.rows(part)) for mine in plan for part in mine)
    )[process.rank]
    number = math.ceil(math.ceil(len(batch) / process.size) / rows)
    return parts + [by_length[:0]] * (number - len(parts))


def _cost(part: Batch) -> int:
    """Tokens that go through the decoder."""
    return computed_tokens(part.token_ids, part.weights != 0)


def _nothing(batch: Batch) -> Batch:
    """A row without weight: keeps a process in step with the others."""
    row = batch.rows(torch.zeros(1, dtype=torch.long))
    return replace(row, weights=torch.zeros_like(row.weights))


def _prepared(
    machine: Machine, batch: Batch, config: GrpoSection, objective: LossSection
) -> tuple[Batch, list[RowNotes]]:
    """The batch with the trainer's own and the reference's log-probabilities
    where they are wanted; notes by row.
    """
    notes = [RowNotes() for _ in range(len(batch))]
    wants_reference = objective.kl != "none"
    if not config.recompute_old and not wants_reference:
        return batch, notes
    old, reference = batch.old_logprobs.clone(), torch.zeros_like(batch.old_logprobs)
    entropies = torch.zeros_like(old)
    mine = [
        _passes(machine, batch, chosen, config.recompute_old, wants_reference)
        for chosen in _micro_batches(machine, batch, config.rows)
    ]
    for chosen, (mine_old, spread, mine_reference) in chain(*machine.process.all(mine)):
        for whole, found in ((old, mine_old), (entropies, spread), (reference, mine_reference)):
            if found is not None:
                whole[chosen, : found.shape[1]] = found.to(whole.device)
    masks = batch.weights != 0
    notes = [
        RowNotes(
            old_logprobs=o if config.recompute_old else None,
            entropies=e if config.recompute_old else None,
            reference_logprobs=r if wants_reference else None,
        )
        for o, e, r in zip(
            drawn(old, masks), drawn(entropies, masks), drawn(reference, masks), strict=True
        )
    ]
    return replace(
        batch, old_logprobs=old, reference_logprobs=reference if wants_reference else None
    ), notes


def _passes(
    machine: Machine, batch: Batch, chosen: torch.Tensor, recompute_old: bool, wants_reference: bool
) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
    """The rows, and their own log-probabilities, entropies and the reference's
    log-probabilities, where wanted.

    A process without rows left runs one without weight, to stay in step with
    the others.
    """
    part = batch.rows(chosen) if len(chosen) else _nothing(batch)
    mask = part.weights != 0
    old, spread = machine.old(part.token_ids, mask) if recompute_old else (None, None)
    reference = machine.reference(part.token_ids, mask) if wants_reference else None
    if not len(chosen):
        return chosen, (None, None, None)
    return chosen, tuple(
        None if found is None else found.float().cpu() for found in (old, spread, reference)
    )


@dataclass(frozen=True, kw_only=True)
class _FirstPass:
    """Notes of all `rows`, and which of them a minibatch has `chosen`."""

    rows: list[RowNotes]
    chosen: torch.Tensor

    def take(self, micro: torch.Tensor, entropies: torch.Tensor, mask: torch.Tensor) -> None:
        """Entropies of a micro-batch, for rows that have none yet. `micro`:
        which of the minibatch's rows it is.
        """
        for row, values in zip(self.chosen[micro].tolist(), drawn(entropies, mask), strict=True):
            if self.rows[row].entropies is None:
                self.rows[row] = replace(self.rows[row], entropies=values)


def _means(parts: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Means from every process's (sum, number of tokens)."""
    totals = {name: np.sum([part[name] for part in parts], axis=0).tolist() for name in parts[0]}
    return {name: value / weight for name, (value, weight) in totals.items() if weight}
