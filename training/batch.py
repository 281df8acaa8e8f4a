"""The rows of one optimizer step as tensors (`Batch`), and which of them go
through the model at once.

Rows are filled up on the right, which causal attention never sees from the left.
Position `t` of every `[rows, length - 1]` tensor speaks of token `t + 1`, the one
that position `t` predicts.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from forensics.policies import computed_tokens, held_tokens
from forensics.records import Trajectory
from training.distributed import Process

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
    sizes = [rows] if rows is not None else list(_sizes(len(batch), group))
    sizes = [size for size in sizes if size <= most_rows] or [int(most_rows)]
    plans = (_plan(batch, process.size, size, shares) for size in sizes[:-1])
    fitting = (plan for plan in plans if _most_held(batch, plan) <= most_tokens)
    plan = next(fitting, None) or _plan(batch, process.size, sizes[-1], shares)
    mine = plan[process.rank]
    return mine + [torch.arange(0)] * (max(map(len, plan)) - len(mine))


def _sizes(rows: int, group: int) -> Iterator[int]:
    """How many rows may go at once, most first: all, whole groups, single rows."""
    yield MOST_ROWS
    for size in range(min(rows, MOST_ROWS) - 1, 0, -1):
        if size < group or size % group == 0:
            yield size


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


def _most_held(batch: Batch, plan: Plan) -> float:
    return max((batch.rows(part).held for mine in plan for part in mine), default=0.0)
