"""Where the engine that drew and the trainer disagree on the old policy: what
each token's loss is multiplied by, without gradient.

1. Importance: old / sampler probability, of a token or of a whole row, truncated,
   or left out beyond its bounds (TRL's `vllm_importance_sampling_mode`, verl's
   `rollout_is`).
2. A row is left out where the geometric mean of old / sampler over its tokens is
   off (verl's `rollout_rs = "seq_mean_k1"`), or where its advantage is negative and
   the policy now has moved too far from the one that drew (2512.02556, TRL's
   `off_policy_mask_threshold`).
3. What is left out still counts in the loss's divisor, as in TRL: it was fixed for
   the whole step beforehand. verl takes it out of its divisor as well.

Tensors are `[rows, tokens]`, 0 where a token does not count.
"""

import math

import torch

from training.divergences import within
from training.loss_section import LossSection, Tokens


def rollout_correction(
    tokens: Tokens, objective: LossSection
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The weight of each token, and by name which tokens were left out (booleans)."""
    weight, masked = importance_weight(tokens.old, tokens.sampler, objective)
    left_out = {"importance_masked": masked}
    if objective.geometric_limit is not None:
        drift = _row_mean(within(tokens.old - tokens.sampler), tokens.mask)
        left_out["geometric_masked"] = drift.abs() > math.log(objective.geometric_limit)
    if objective.off_policy_limit is not None:
        lost = _row_mean(tokens.sampler - tokens.logprobs.detach(), tokens.mask)
        far = lost > objective.off_policy_limit
        left_out["off_policy_masked"] = far & (tokens.advantages < 0)
    for chosen in list(left_out.values())[1:]:
        weight = weight.masked_fill(chosen, 0.0)
    return weight, left_out


def importance_weight(
    old: torch.Tensor, sampler: torch.Tensor, objective: LossSection
) -> tuple[torch.Tensor, torch.Tensor]:
    """Correction of each token without gradient, and which tokens it leaves out
    (booleans).

    Of whole rows, the ratio is that of the row's tokens together. Positions
    without weight must hold 0 in both.
    """
    if objective.importance == "none":
        return torch.ones_like(old), torch.zeros_like(old, dtype=torch.bool)
    difference = (old - sampler).detach()
    if objective.importance_level == "sequence":
        difference = difference.sum(-1, keepdim=True).expand_as(old)
    low, high = objective.lowest_importance, objective.importance_cap
    ratio = within(difference).exp()
    if objective.importance == "truncate":
        return ratio.clamp(low, high), torch.zeros_like(old, dtype=torch.bool)
    beyond = (ratio < low) | (ratio > high)
    return ratio.masked_fill(beyond, 0.0), beyond


def _row_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean over the tokens of each row that count, at each of its tokens."""
    number = mask.sum(-1, keepdim=True).clamp(min=1)
    return (values.sum(-1, keepdim=True) / number).expand_as(values)
