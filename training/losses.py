"""The policy loss, in one place.

1. The ratio of a token's probability now to that before the update is clipped (PPO, 1707.06347; ends apart as in
   DAPO, 2503.14476; dual clip, 1912.09729).
2. Where engine and trainer disagree on the old policy, the token is corrected by old / sampler probability,
   truncated or masked; the correction carries no gradient.
3. KL to a reference policy and an entropy bonus may be added.
4. Tokens are summed with weights that were fixed for the whole step beforehand, so that any split into
   micro-batches adds up to the same loss and gradient.

The derivative of an estimator of the KL is not the gradient of the KL (2506.09477): that of k1 has mean 0, that of
k3 follows the other direction. Times the ratio to the old policy both are right (2512.02556, TRL's default), k2 is
right as it stands; see `kl_term`.

Departure: entropy is averaged over the step's tokens whatever the aggregation, as in TRL, but over the whole step
and not over each micro-batch.

Tensors are `[rows, tokens]` and float32 unless said otherwise; logarithms are natural.
"""

from dataclasses import dataclass, field

import torch

from training.objective import Objective

Diagnostics = dict[str, tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, kw_only=True)
class Normaliser:
    """Divisors of one optimizer step, on all its rows and processes: of the loss, and its number of tokens."""

    loss: torch.Tensor
    tokens: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class LossParts:
    """`loss`: this part's share of the step's loss, with gradient.

    `diagnostics`: name to (sum over tokens, number of tokens), both detached scalars on the device; parts add up.
    """

    loss: torch.Tensor
    diagnostics: Diagnostics = field(default_factory=dict)


def normaliser(
    token_weight: torch.Tensor, objective: Objective, most_tokens: int, rows: int | None = None
) -> Normaliser:
    """The divisors of a whole step from all its token weights, computed once before it is split.

    `most_tokens` is the constant of `dr-grpo` unless the objective sets one. `rows`: how many rows the step counts
    (default: all of `token_weight`, rows without any weight too, as in TRL).
    """
    tokens = token_weight.abs().sum()
    number = torch.full_like(tokens, len(token_weight) if rows is None else rows)
    constant = objective.dr_grpo_tokens or most_tokens
    divisors = {"token-mean": tokens, "dr-grpo": number * constant, "sequence-mean": number}
    return Normaliser(loss=_not_zero(divisors[objective.aggregation]), tokens=_not_zero(tokens))


def policy_loss(
    logprobs: torch.Tensor, *, old_logprobs: torch.Tensor, sampler_logprobs: torch.Tensor, advantages: torch.Tensor,
    token_weight: torch.Tensor, objective: Objective, normaliser: Normaliser,
    reference_logprobs: torch.Tensor | None = None, entropies: torch.Tensor | None = None,
) -> LossParts:
    """The share of some whole rows in the step's loss.

    `logprobs`: of the policy now, with gradient. `old_logprobs`: the trainer's own before the update.
    `sampler_logprobs`: of the engine that sampled. `advantages`: `[rows]` or `[rows, tokens]`. `token_weight`: 0 for
    tokens that the policy did not draw or that are masked; they have gradient exactly 0 whatever their inputs.
    Raises `ValueError` where the objective needs the reference or the entropies and they are missing.
    """
    active = token_weight != 0
    now, old, sampler = (_only(active, values) for values in (logprobs, old_logprobs, sampler_logprobs))
    gains = _only(active, advantages[:, None].expand_as(token_weight) if advantages.dim() == 1 else advantages)
    correction, left_out = importance_weight(old, sampler, objective)
    per_token, clips = clipped(now - old, gains, objective)
    values = {**clips, "kl_old": k3(now, old), "importance": correction, "importance_masked": left_out}
    per_token = per_token * correction
    if objective.kl != "none":
        reference = _only(active, _needed(reference_logprobs, "reference_logprobs"))
        per_token = per_token + objective.kl_weight * kl_term(now, old, reference, objective)
        values["kl_reference"] = KL_ESTIMATORS[objective.kl](now.detach(), reference)
    loss = (per_token * _token_scale(token_weight, objective, normaliser)).sum()
    if objective.entropy_weight:
        spread = _only(active, _needed(entropies, "entropies"))
        loss = loss - objective.entropy_weight * (spread * token_weight).sum() / normaliser.tokens
    if entropies is not None:
        values["entropy"] = _only(active, entropies)
    return LossParts(loss=loss, diagnostics=_sums(values, active))


def clipped(
    log_ratio: torch.Tensor, advantages: torch.Tensor, objective: Objective
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss of each token before weights, and where each clip took the gradient away (booleans)."""
    ratio = log_ratio.exp()
    low, high = 1 - objective.clip_low, 1 + objective.clip_high
    gain = torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
    stopped = {
        "clip_low": (ratio < low) & (advantages < 0),
        "clip_high": (ratio > high) & (advantages > 0),
    }
    if objective.dual_clip is not None:
        floor = objective.dual_clip * advantages
        stopped["clip_dual"] = (advantages < 0) & (ratio > objective.dual_clip)
        gain = torch.where(stopped["clip_dual"], floor, gain)
    return -gain, stopped


def importance_weight(
    old: torch.Tensor, sampler: torch.Tensor, objective: Objective
) -> tuple[torch.Tensor, torch.Tensor]:
    """Correction of each token without gradient, and which tokens it leaves out (booleans).

    Of whole rows, the ratio is that of the row's tokens together. Positions without weight must hold 0 in both.
    """
    if objective.importance == "none":
        return torch.ones_like(old), torch.zeros_like(old, dtype=torch.bool)
    difference = (old - sampler).detach()
    if objective.importance_level == "sequence":
        difference = difference.sum(-1, keepdim=True).expand_as(old)
    ratio = difference.exp()
    if objective.importance == "truncate":
        return ratio.clamp(max=objective.importance_cap), torch.zeros_like(old, dtype=torch.bool)
    beyond = ratio > objective.importance_cap
    return ratio.masked_fill(beyond, 0.0), beyond


def kl_term(
    now: torch.Tensor, old: torch.Tensor, reference: torch.Tensor, objective: Objective
) -> torch.Tensor:
    """What is added to each token's loss for the divergence KL(now || reference), draws being from the old policy.

    With `kl_correction`: k1 and k3 times now/old with its gradient, which makes value and gradient unbiased; k2 times
    now/old without, since its own derivative is the unbiased one. Without it: the bare estimator.
    """
    estimate = KL_ESTIMATORS[objective.kl](now, reference)
    if not objective.kl_correction:
        return estimate
    ratio = (now - old).exp()
    return estimate * (ratio.detach() if objective.kl == "k2" else ratio)


def k1(now: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """`log p - log q`: unbiased for KL(p || q) under draws from p."""
    return now - reference


def k2(now: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """`(log p - log q)^2 / 2`: biased, low variance; its derivative is an unbiased gradient of KL(p || q)."""
    return (now - reference).square() / 2


def k3(now: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """`q/p - 1 - log(q/p)`: unbiased and never negative; its derivative follows KL(q || p) instead."""
    return torch.expm1(reference - now) - (reference - now)


KL_ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}


def _token_scale(token_weight: torch.Tensor, objective: Objective, normaliser: Normaliser) -> torch.Tensor:
    if objective.aggregation == "sequence-mean":
        return token_weight / _not_zero(token_weight.abs().sum(-1, keepdim=True)) / normaliser.loss
    return token_weight / normaliser.loss


def _only(active: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Chosen, not multiplied: 0 times NaN is NaN, in the gradient too."""
    return torch.where(active, values, 0.0)


def _not_zero(divisor: torch.Tensor) -> torch.Tensor:
    return torch.where(divisor == 0, 1.0, divisor)


def _needed(values: torch.Tensor | None, name: str) -> torch.Tensor:
    if values is None:
        raise ValueError(f"this objective needs {name}, which were not given")
    return values


def _sums(values: dict[str, torch.Tensor], active: torch.Tensor) -> Diagnostics:
    number = active.sum().float()
    return {name: (_only(active, value.detach().float()).sum(), number) for name, value in values.items()}
