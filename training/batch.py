"""The rows of one optimizer step as tensors.

Rows are filled up on the right, which causal attention never sees from the left. Position `t` of every `[rows,
length - 1]` tensor speaks of token `t + 1`, the one that position `t` predicts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from forensics.records import Trajectory


@dataclass(frozen=True, kw_only=True)
class Batch:
    """`token_ids` `[rows, length]`; all others `[rows, length - 1]`, 0 where `weights` is 0.

    `weights`: token weights, 0 for tokens that the policy did not draw. `sampler_logprobs`: of the engine that
    sampled; `old_logprobs`: of the trainer before its update (the sampler's own, unless recomputed);
    `reference_logprobs`: of the reference policy, where there is one. `lengths` `[rows]`: tokens of each row.
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
                changed[item.name] = part if part.dim() == 1 else part[:, : length - (item.name != "token_ids")]
        return replace(self, **changed)

    def micro(self, rows: int) -> list[torch.Tensor]:
        """Indices of micro-batches of at most `rows` rows, similar lengths together, longest first."""
        order = torch.argsort(self.lengths, descending=True, stable=True)
        return list(order.split(rows))

    def to(self, device: Any) -> "Batch":
        changed = {item.name: getattr(self, item.name) for item in fields(self)}
        return replace(self, **{name: value.to(device) for name, value in changed.items() if value is not None})


def batch_of(
    trajectories: Sequence[Trajectory], advantages: Sequence[float], step_weights: Sequence[float] | None = None
) -> Batch:
    """Rows of a batch on the CPU. `step_weights` scales all of a row's token weights (0 masks the row)."""
    scales = step_weights if step_weights is not None else [1.0] * len(trajectories)
    tokens = [[i for step in t.steps for i in step.token_ids or ()] for t in trajectories]
    masks = [[float(s) for step in t.steps for s in step.sampled or ()] for t in trajectories]
    sampler = padded([_spread(t) for t in trajectories], 0.0, torch.float32)[:, 1:]
    weights = padded(masks, 0.0, torch.float32)[:, 1:]
    gains = torch.tensor(list(advantages), dtype=torch.float32)[:, None] * (weights != 0)
    return Batch(
        token_ids=padded(tokens, 0, torch.long), weights=weights * torch.tensor(list(scales))[:, None],
        sampler_logprobs=sampler, old_logprobs=sampler, advantages=gains,
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
