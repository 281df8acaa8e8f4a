"""One step's rows as tensors (`Batch`) and through the loss: passes, optimizer steps,
micro-batches, and what is noted for the record.

The loss is divided by one normaliser for all rows of an optimizer step, on all
processes, so neither the micro-batch size nor the number of processes changes
it.

Rows are filled up on the right, which causal attention never sees from the left.
Position `t` of every `[rows, length - 1]` tensor speaks of token `t + 1`, the one
that position `t` predicts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial, reduce
from itertools import chain
from operator import add
from typing import Any, TypeVar

import numpy as np
import torch

from forensics.policies import computed_tokens, gap_by_depth, held_tokens
from forensics.records import Trajectory
from training.distributed import Process
from training.losses import LossParts, LossSection, Normaliser, normaliser, policy_loss
from training.recipe import GrpoSection, Recipe
from training.trained_model import Machine

MOST_ROWS = 128  # at once, where neither the recipe nor memory says less
Plan = list[list[torch.Tensor]]  # indices of rows: by process, its parts


@dataclass(frozen=True, kw_only=True)
class Batch:
    """`token_ids` `[rows, length]`; all others `[rows, length - 1]`, 0 where
    `weights` is 0.

    `weights`: token weights, 0 for tokens that the policy did not draw.
    `sampler_logprobs`: of the engine that sampled; `old_logprobs`: of the
    trainer before its update (the sampler's own, unless recomputed);
    `reference_logprobs`: of the reference policy, where there is one.
    `entropies`: under the weights before the update, where it asked for them.
    `lengths` `[rows]`: tokens of each row.
    """

    token_ids: torch.Tensor
    weights: torch.Tensor
    sampler_logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    lengths: torch.Tensor
    reference_logprobs: torch.Tensor | None = None
    entropies: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def cost(self) -> int:
        """Tokens that go through the decoder."""
        return computed_tokens(self.token_ids, self.weights != 0)

    @property
    def held(self) -> float:
        """Tokens whose activations wait for the backward pass."""
        return held_tokens(self.token_ids, self.weights != 0)

    def changed(self, change: Callable[[str, torch.Tensor], torch.Tensor]) -> "Batch":
        """Each tensor that there is, by name, as `change` gives it."""
        given = ((item.name, getattr(self, item.name)) for item in fields(self))
        return replace(self, **{n: change(n, value) for n, value in given if value is not None})

    def rows(self, chosen: torch.Tensor) -> "Batch":
        """The rows `chosen`, cut to the longest of them."""
        length = int(self.lengths[chosen].max()) if len(chosen) else 2

        def cut(name: str, value: torch.Tensor) -> torch.Tensor:
            part = value[chosen]
            return part if part.dim() == 1 else part[:, : length - (name != "token_ids")]

        return self.changed(cut)

    def micro(self, rows: int) -> list[torch.Tensor]:
        """Indices of micro-batches of at most `rows` rows, similar lengths
        together, longest first.
        """
        order = torch.argsort(self.lengths, descending=True, stable=True)
        return list(order.split(rows))

    def to(self, device: Any) -> "Batch":
        return self.changed(lambda _, value: value.to(device))


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
    flags = [[s for step in t.steps for s in step.sampled or ()] for t in trajectories]
    sampler = placed(
        [[x for step in t.steps for x in step.logprobs or ()] for t in trajectories], flags
    )
    weights = padded(flags, 0, torch.float32)[:, 1:]
    return Batch(
        token_ids=padded(tokens, 0, torch.long),
        weights=weights * torch.tensor(list(scales))[:, None],
        sampler_logprobs=sampler,
        old_logprobs=sampler,
        advantages=torch.tensor(list(advantages), dtype=torch.float32)[:, None] * weights,
        lengths=torch.tensor([len(row) for row in tokens]),
    )


def placed(values: Sequence[Sequence[float]], sampled: Sequence[Sequence[bool]]) -> torch.Tensor:
    """Numbers of drawn tokens at the positions of these tokens, `[rows, length
    - 1]`, 0 elsewhere.
    """
    rows = []
    for numbers, flags in zip(values, sampled, strict=True):
        drawn = iter(numbers)
        rows.append([next(drawn) if flag else 0.0 for flag in flags])
    return padded(rows, 0.0, torch.float32)[:, 1:]


def padded(rows: Sequence[Sequence[float]], fill: float, kind: torch.dtype) -> torch.Tensor:
    """Rows of different length as one tensor, filled up on the right."""
    width = max((len(row) for row in rows), default=0)
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=kind)


def micro_batches(
    batch: Batch,
    process: Process,
    *,
    rows: int | None,
    group: int,
    most_tokens: float = math.inf,
    most_rows: float = math.inf,
    shares: bool = True,
) -> list[torch.Tensor]:
    """Rows of this process; as many parts on every process (some may be empty).

    At most `rows` at once; where that is not said, as many as hold `most_tokens` at
    most, in whole groups of `group` as far as possible; never more than `most_rows`. All
    processes see the whole batch and decide alike.
    """
    few = range(min(len(batch), MOST_ROWS) - 1, 0, -1)  # all, whole groups, single rows
    sizes = [MOST_ROWS, *(size for size in few if size < group or size % group == 0)]
    sizes = sizes if rows is None else [rows]
    sizes = [size for size in sizes if size <= most_rows] or [int(most_rows)]
    for size in sizes:
        plan = _plan(batch, process.size, size, shares)
        held = max((batch.rows(part).held for mine in plan for part in mine), default=0.0)
        if held <= most_tokens:
            break
    mine = plan[process.rank]
    return mine + [torch.arange(0)] * (max(map(len, plan)) - len(mine))


def _plan(batch: Batch, processes: int, rows: int, shares: bool) -> Plan:
    """Similar lengths together, or groups together, whichever leaves fewer tokens
    to compute (without `shares` the former).
    """
    by_length = torch.argsort(batch.lengths, descending=True, stable=True).cpu()
    strided = [by_length[rank::processes] for rank in range(processes)]
    grouped = list(torch.arange(len(batch)).tensor_split(processes))
    plans = [
        [list(mine.split(rows)) if len(mine) else [] for mine in each]
        for each in ((strided, grouped) if shares else (strided,))
    ]
    return min(plans, key=lambda plan: sum(batch.rows(part).cost for each in plan for part in each))


Notes = dict[str, list[tuple[float, ...] | None]]
Tensors = dict[str, torch.Tensor]
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class UpdateReport:
    """What the optimizer steps of one training step did; `loss` and
    `gradient_norm` are `None` where there was none.

    `loss`: of the first pass over the rows, each minibatch's divided as the
    whole pass would be (by all its tokens or rows), so that it is what `replay`
    computes, but for what the weights moved between minibatches; `None` also
    where one of them was not finite.
    `gradient_norm`: mean over all optimizer steps, before any clipping.
    `optimizer_steps`: those that were taken; `skipped`: those left out because
    loss or gradient was not finite, which nothing else here tells of.
    `diagnostics`: means over the tokens of all passes and processes. `notes`:
    by the record's name, numbers of each row's drawn tokens as the update saw
    them (`None` for a row where one is not finite); `entropies` are under the
    weights before the update where it made a pass of its own (`recompute_old`),
    else under those that the row's minibatch met in the first pass.
    """

    loss: float | None = None
    gradient_norm: float | None = None
    optimizer_steps: int = 0
    skipped: int = 0
    diagnostics: dict[str, float] = field(default_factory=dict)
    notes: Notes = field(default_factory=dict)


def update(
    machine: Machine,
    batch: Batch | None,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    seed: tuple[int, ...],
    played: int | None = None,
) -> UpdateReport:
    """Train on a step's rows. No rows, or none with weight, in the step or in a
    minibatch of it: no optimizer step (momentum alone would move the weights).

    `played`: how many episodes the step counts (`losses.normaliser`).
    """
    if batch is None or not batch.weights.any():
        return UpdateReport()
    config, objective, process = recipe.grpo, recipe.objective, machine.process
    fresh = config.recompute_old and config.epochs == config.minibatches == 1
    own = config.recompute_old and not fresh
    batch = _scored(machine, batch.to(machine.model.device), recipe, own)
    counted, drawn = len(batch) if played is None else played, recipe.sampling.max_turn_tokens
    whole = normaliser(batch.weights, objective, drawn, counted)
    seen = {name: torch.zeros_like(batch.weights) for name in ("old_logprobs", "entropies")}
    sums: Tensors = {}
    losses: list[float] = []
    norms: list[float | None] = []
    for epoch in range(config.epochs):
        for rows in _minibatches(len(batch), config.minibatches, [*seed, epoch]):
            part = batch.rows(rows)
            if not part.weights.any():
                continue
            share = counted * len(rows) / len(batch)
            divisor = normaliser(part.weights, objective, drawn, share)
            run = partial(_gradient, machine, optimizer, part, objective, divisor, sums, fresh)
            loss, added, found = in_parts(machine, part, config, run)
            norms.append(machine.step(optimizer, config.gradient_norm, loss))
            if norms[-1] is not None:
                sums = added
            if epoch == 0:
                losses.append(loss * float(divisor.loss / whole.loss))
                for name, values in found.items():
                    seen[name][rows, : values.shape[1]] = values
    # what the first pass saw and no pass before it had told, from all processes
    wanted = {"old_logprobs": fresh, "entropies": batch.entropies is None}
    told = {
        name: reduce(add, process.all(seen[name].cpu())).to(batch.weights.device)
        for name, lacks in wanted.items()
        if lacks
    }
    batch = replace(batch, **told)
    finite = [norm for norm in norms if norm is not None]
    return UpdateReport(
        loss=sum(losses) if np.isfinite(losses).all() else None,
        gradient_norm=float(np.mean(finite)) if finite else None,
        optimizer_steps=sum(norm > 0 for norm in finite),
        skipped=len(norms) - len(finite),
        diagnostics=token_means(process.all({n: value.cpu() for n, value in sums.items()}))
        | (sampler_gap(batch) if recipe.server else {}),
        notes=_notes(batch, config.recompute_old),
    )


def sampler_gap(batch: Batch) -> dict[str, float]:
    """By how much sampler and trainer differ about a step's rows (`served_sampler`); a
    depth at which nothing was drawn has no numbers.
    """
    drawn = batch.weights != 0
    gap = (batch.old_logprobs - batch.sampler_logprobs)[drawn].double()
    depth = torch.arange(1, drawn.shape[1] + 1, device=drawn.device).expand_as(drawn)[drawn]
    return gap_by_depth(gap, depth)


def _minibatches(rows: int, number: int, seed: Sequence[int]) -> list[torch.Tensor]:
    """Which rows each optimizer step of an epoch is on; of one step, all in their order."""
    if number == 1:
        return [torch.arange(rows)]
    order = np.random.default_rng(seed).permutation(rows)
    parts = np.array_split(order, number)
    return [torch.from_numpy(np.sort(part)) for part in parts if len(part)]


def in_parts(
    machine: Machine,
    batch: Batch,
    config: GrpoSection,
    run: Callable[[list[torch.Tensor]], Result],
) -> Result:
    """What `run` makes of the rows in parts, each of which goes through at once; in
    smaller parts from here on where memory does not suffice.
    """
    while True:
        parts = micro_batches(
            batch,
            machine.process,
            rows=config.rows,
            group=config.samples,
            most_tokens=machine.most_tokens,
            most_rows=machine.most_rows,
            shares=machine.scorer.shares,
        )
        try:
            return run(parts)
        except torch.OutOfMemoryError as error:
            machine.halve(max(map(len, parts)), error)
        machine.release()  # behind the `except`, so that no frame of the failed pass is held


def _gradient(
    machine: Machine,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    objective: LossSection,
    divisor: Normaliser,
    sums: Tensors,
    fresh: bool,
    micro: Sequence[torch.Tensor],
) -> tuple[float, Tensors, Tensors]:
    """The gradient of all parts added up; their loss, `sums` with what they add, and what
    the passes saw of the rows of this process, `[rows, tokens]` each, 0 elsewhere.

    `fresh`: no weight has moved since before the update, so the old
    log-probabilities are those of this very pass, and the ratio is exactly 1.
    """
    optimizer.zero_grad()
    total = torch.zeros((), device=machine.model.device)
    seen = {name: torch.zeros_like(batch.weights) for name in ("old_logprobs", "entropies")}
    added = dict(sums)
    for number, chosen in enumerate(micro):
        with machine.accumulating(last=number + 1 == len(micro)):
            part = batch.rows(chosen) if len(chosen) else _nothing(batch)
            logprobs, entropies = machine.score(part.token_ids, part.weights != 0)
            if fresh:
                part = replace(part, old_logprobs=logprobs.detach())
            found = batch_loss(part, logprobs, entropies, objective, divisor)
            (found.loss * machine.process.size).backward()  # processes average their gradients
        total += found.loss.detach()
        add_diagnostics(added, found)
        if len(chosen):
            for name, values in (("old_logprobs", logprobs), ("entropies", entropies)):
                seen[name][chosen, : values.shape[1]] = values.detach().float()
    return sum(machine.process.all(total.item())), added, seen


def batch_loss(
    part: Batch,
    logprobs: torch.Tensor,
    entropies: torch.Tensor,
    objective: LossSection,
    divisor: Normaliser,
) -> LossParts:
    """The share of these rows, scored, in their step's loss."""
    return policy_loss(
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


def _nothing(batch: Batch) -> Batch:
    """A row without weight: keeps a process in step with the others."""
    row = batch.rows(torch.zeros(1, dtype=torch.long))
    return replace(row, weights=torch.zeros_like(row.weights))


def _scored(machine: Machine, batch: Batch, recipe: Recipe, own: bool) -> Batch:
    """The batch with what is wanted of a pass before the update: the trainer's
    `own` log-probabilities and entropies, and the reference's log-probabilities.

    A process without rows left runs one without weight, to stay in step with
    the others.
    """
    reference = recipe.objective.kl != "none"
    if not own and not reference:
        return batch

    def read(chosen: torch.Tensor) -> tuple[torch.Tensor, Tensors]:
        part = batch.rows(chosen) if len(chosen) else _nothing(batch)
        mask, found = part.weights != 0, Tensors()
        if own:
            found["old_logprobs"], found["entropies"] = machine.old(part.token_ids, mask)
        if reference:
            found["reference_logprobs"] = machine.reference(part.token_ids, mask)
        return chosen, {name: value.float().cpu() for name, value in found.items()}

    mine = in_parts(machine, batch, recipe.grpo, lambda parts: list(map(read, parts)))
    whole: Tensors = {}
    for chosen, found in chain(*machine.process.all(mine)):
        for name, values in found.items():
            target = whole.setdefault(name, torch.zeros_like(batch.weights))
            if len(chosen):
                target[chosen, : values.shape[1]] = values.to(target.device)
    return replace(batch, **whole)


def _notes(batch: Batch, recomputed: bool) -> Notes:
    """What the record holds of each row's drawn tokens, where it is finite."""
    values = {
        "old_logprobs": batch.old_logprobs if recomputed else None,
        "reference_logprobs": batch.reference_logprobs,
        "entropies": batch.entropies,
    }
    masks = (batch.weights != 0).cpu()
    return {
        name: [
            tuple(row[keep].tolist()) if row[keep].isfinite().all() else None
            for row, keep in zip(found.cpu(), masks, strict=True)
        ]
        for name, found in values.items()
        if found is not None
    }


def add_diagnostics(sums: Tensors, found: LossParts) -> None:
    """Add a part's diagnostics to `sums`: by name (sum over tokens, number of tokens)."""
    for name, parts in found.diagnostics.items():
        sums[name] = sums.get(name, 0) + torch.stack(parts)


def token_means(parts: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, float]:
    """Means from every process's (sum, number of tokens)."""
    totals = {name: np.sum([part[name].tolist() for part in parts], axis=0) for name in parts[0]}
    return {name: float(value / weight) for name, (value, weight) in totals.items() if weight}
