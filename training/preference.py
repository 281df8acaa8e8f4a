"""DPO with token weights on recorded preference pairs (2305.18290).

1. Each side's gain is `sum_t w_t (log pi(t) - log pi_reference(t))` over its own tokens.
2. The loss of a pair is `-log sigmoid(beta (gain of chosen - gain of rejected))`; the mean is over pairs.

With all weights 1 it is DPO; with weight on one token only it is the loss of Cliff-DPO (2606.25524, beta 0.05), whose
pair differs in that token. Nothing is appended to a continuation: an end of text that nobody drew would be learnt.
Departures: log-probabilities are those of the sampler's settings, as everywhere here; without a reference its terms
are 0, which regularises nothing.

`[pairs, tokens]` tensors; position `t` speaks of token `t + 1` of a row, as in `training.batch`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from forensics.protocols import SamplingSettings
from forensics.records import PreferencePair
from training.batch import padded
from training.losses import Diagnostics
from training.projection import CHUNK, token_logprobs_and_entropies

Row = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...] | None]  # prefix, continuation, its weights


@dataclass(frozen=True, kw_only=True)
class PairSide:
    """One side of some pairs: `token_ids` `[pairs, length]`, `weights` `[pairs, length - 1]` (0 on the prefix)."""

    token_ids: torch.Tensor
    weights: torch.Tensor

    def logprobs(self, model: Any, settings: SamplingSettings, chunk: int = CHUNK) -> torch.Tensor:
        """Log-probabilities `[pairs, length - 1]` under a model, with gradient; 0 where the weight is."""
        wanted = self.weights != 0
        return token_logprobs_and_entropies(model, self.token_ids, settings, wanted, chunk, entropies=False)[0]


@dataclass(frozen=True, kw_only=True)
class PreferenceLoss:
    """`loss`: these pairs' share of the loss, with gradient. `diagnostics`: name to (sum, number of pairs)."""

    loss: torch.Tensor
    diagnostics: Diagnostics


def sides(pairs: Sequence[PreferencePair], device: Any = "cpu") -> tuple[PairSide, PairSide]:
    """Chosen and rejected side of the pairs as tensors, rows filled up on the right."""
    return _side(_chosen(pairs), device), _side(_rejected(pairs), device)


def both_sides(pairs: Sequence[PreferencePair], device: Any = "cpu") -> PairSide:
    """`[2 pairs, length]`: all chosen rows, then all rejected ones, so that one pass scores both sides."""
    return _side([*_chosen(pairs), *_rejected(pairs)], device)


def _chosen(pairs: Sequence[PreferencePair]) -> list[Row]:
    return [(pair.prefix, pair.chosen, pair.chosen_weights) for pair in pairs]


def _rejected(pairs: Sequence[PreferencePair]) -> list[Row]:
    return [(pair.prefix, pair.rejected, pair.rejected_weights) for pair in pairs]


def _side(rows: Sequence[Row], device: Any) -> PairSide:
    tokens = [[*prefix, *answer] for prefix, answer, _ in rows]
    weights = [
        [*[0.0] * len(prefix), *(given if given is not None else [1.0] * len(answer))]
        for prefix, answer, given in rows
    ]
    return PairSide(
        token_ids=padded(tokens, 0, torch.long).to(device),
        weights=padded(weights, 0.0, torch.float32)[:, 1:].to(device),
    )


def dpo_loss(
    chosen: torch.Tensor, rejected: torch.Tensor, *, chosen_weights: torch.Tensor, rejected_weights: torch.Tensor,
    reference_chosen: torch.Tensor | None = None, reference_rejected: torch.Tensor | None = None,
    beta: float = 0.05, pairs: int | None = None,
) -> PreferenceLoss:
    """The share of some pairs in the mean over `pairs` pairs (default: as many as are given).

    `chosen`, `rejected`: log-probabilities under the policy, `[pairs, tokens]` each, of widths of their own;
    `reference_*`: the same under the reference, both or neither. Tokens of weight 0 have gradient exactly 0 whatever
    they hold. Raises `ValueError` for one reference without the other and a `beta` that is not above 0.
    """
    if (reference_chosen is None) != (reference_rejected is None):
        raise ValueError("give the reference's log-probabilities of both sides or of neither")
    if not beta > 0:
        raise ValueError(f"beta {beta:g} prefers nothing; it must be above 0")
    wanted = beta * _gain(chosen, reference_chosen, chosen_weights)
    unwanted = beta * _gain(rejected, reference_rejected, rejected_weights)
    margin = wanted - unwanted
    loss = -logsigmoid(margin).sum() / (len(margin) if pairs is None else pairs)
    return PreferenceLoss(loss=loss, diagnostics=_sums({
        "chosen_gain": wanted, "rejected_gain": unwanted, "margin": margin, "accuracy": margin > 0,
    }))


def _gain(logprobs: torch.Tensor, reference: torch.Tensor | None, weights: torch.Tensor) -> torch.Tensor:
    """Weighted sum of log-ratios `[pairs]`."""
    ratios = logprobs if reference is None else logprobs - reference
    return (torch.where(weights != 0, ratios, 0.0) * weights).sum(-1)


def _sums(values: dict[str, torch.Tensor]) -> Diagnostics:
    return {
        name: (value.detach().float().sum(), torch.tensor(float(len(value)), device=value.device))
        for name, value in values.items()
    }
