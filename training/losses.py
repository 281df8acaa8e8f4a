"""The policy loss, in one place.

1. A surrogate gives each token its loss: by default the ratio of its
   probability now to that before the update, clipped (PPO, 1707.06347; ends
   apart as in DAPO, 2503.14476; dual clip, 1912.09729). Others come by the entry
   point `forensics.losses` and are chosen by name.
2. Where engine and trainer disagree on the old policy, tokens or rows are
   corrected or left out (`rollout_correction`).
3. KL to a reference policy (`kl_term`) and an entropy bonus may be added.
4. Tokens are summed with weights that were fixed for the whole step beforehand,
   so that any split into micro-batches adds up to the same loss and gradient.
5. Log-ratios are held within 20 nats before they are exponentiated, where a float
   would overflow and infinity times 0 is no number. Beyond, a ratio has no gradient.

Departure: entropy is averaged over the step's tokens whatever the aggregation,
as in TRL, but over the whole step and not over each micro-batch.

Tensors are `[rows, tokens]` and float32 unless said otherwise; logarithms are
natural. The keys under `[objective]` stand in `training.loss_section`.

Where the engine that drew and the trainer disagree on the old policy, what
each token's loss is multiplied by, without gradient:

1. Importance: old / sampler probability, of a token or of a whole row, truncated,
   or left out beyond its bounds (TRL's `vllm_importance_sampling_mode`, verl's
   `rollout_is`).
2. A row is left out where the geometric mean of old / sampler over its tokens is
   off (verl's `rollout_rs = "seq_mean_k1"`), or where its advantage is negative and
   the policy now has moved too far from the one that drew (2512.02556, TRL's
   `off_policy_mask_threshold`).
3. What is left out still counts in the loss's divisor, as in TRL: it was fixed for
   the whole step beforehand. verl takes it out of its divisor as well.

The KL between two policies is estimated from the tokens that were drawn. The
derivative of an estimator of the KL is not the gradient of the KL (2506.09477):
that of k1 has mean 0, that of k3 follows the other direction. Times the ratio to
the old policy both are right (2512.02556, TRL's default), k2 is right as it
stands; see `kl_term`.
"""

import math
from dataclasses import dataclass, field

import torch

from training.loss_section import (
    LossSection as LossSection,
    Objective as Objective,
    PolicyLoss as PolicyLoss,
    Tokens as Tokens,
    policy_loss_named as policy_loss_named,
)

LARGEST_LOG_RATIO = 20.0  # nats; a ratio of half a billion


def kl_term(
    now: torch.Tensor, old: torch.Tensor, reference: torch.Tensor, kind: str, corrected: bool
) -> torch.Tensor:
    """What is added to each token's loss for the divergence KL(now ||
    reference), draws being from the old policy.

    `kind`: the estimator. `corrected`: k1 and k3 times now/old with its gradient, which makes
    value and gradient unbiased; k2 times now/old without, since its own
    derivative is the unbiased one. Else: the bare estimator.
    """
    estimate = KL_ESTIMATORS[kind](now, reference)
    if not corrected:
        return estimate
    ratio = within(now - old).exp()
    return estimate * (ratio.detach() if kind == "k2" else ratio)


def k1(now: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """`log p - log q`: unbiased for KL(p || q) under draws from p."""
    return now - reference


def k2(now: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """`(log p - log q)^2 / 2`: biased, low variance; its derivative is an
    unbiased gradient of KL(p || q).
    """
    return (now - reference).square() / 2


def k3(now: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """`q/p - 1 - log(q/p)`: unbiased and never negative; its derivative follows
    KL(q || p) instead.
    """
    most = LARGEST_LOG_RATIO
    return torch.expm1((reference - now).clamp(max=most)) - (reference - now).clamp(max=most)


def within(log_ratio: torch.Tensor) -> torch.Tensor:
    """The log-ratio where a ratio can be formed of it. A NaN stays one."""
    return log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


KL_ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}


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


Diagnostics = dict[str, tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, kw_only=True)
class Normaliser:
    """Divisors of one optimizer step, on all its rows and processes: of the
    loss, and its number of tokens.
    """

    loss: torch.Tensor
    tokens: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class LossParts:
    """`loss`: this part's share of the step's loss, with gradient.

    `diagnostics`: name to (sum over tokens, number of tokens), both detached
    scalars on the device; parts add up.
    """

    loss: torch.Tensor
    diagnostics: Diagnostics = field(default_factory=dict)


def normaliser(
    token_weight: torch.Tensor, objective: LossSection, most_tokens: int, rows: float | None = None
) -> Normaliser:
    """The divisors of a whole step from all its token weights, computed once
    before it is split.

    `most_tokens` is the constant of `dr-grpo` unless the objective sets one.
    `rows`: how many episodes `dr-grpo` counts: all that were played, also of dead
    groups, which are not among these rows (of a minibatch its share of them).
    Default: all of `token_weight`, rows without any weight too, as in TRL.
    """
    tokens = token_weight.abs().sum()
    number = torch.full_like(tokens, len(token_weight))
    played = number if rows is None else torch.full_like(tokens, rows)
    constant = objective.dr_grpo_tokens or most_tokens
    divisors = {"token-mean": tokens, "dr-grpo": played * constant, "sequence-mean": number}
    return Normaliser(loss=_not_zero(divisors[objective.aggregation]), tokens=_not_zero(tokens))


def policy_loss(
    logprobs: torch.Tensor,
    *,
    old_logprobs: torch.Tensor,
    sampler_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    token_weight: torch.Tensor,
    objective: LossSection,
    normaliser: Normaliser,
    reference_logprobs: torch.Tensor | None = None,
    entropies: torch.Tensor | None = None,
) -> LossParts:
    """The share of some whole rows in the step's loss.

    `logprobs`: of the policy now, with gradient. `old_logprobs`: the trainer's
    own before the update.
    `sampler_logprobs`: of the engine that sampled. `advantages`: `[rows]` or
    `[rows, tokens]`. `token_weight`: 0 for tokens that the policy did not draw
    or that are masked; they have gradient exactly 0 whatever their inputs.
    Raises `ValueError` where the objective needs the reference or the entropies
    and they are missing.
    """
    active = token_weight != 0
    tokens = _tokens(active, logprobs, old_logprobs, sampler_logprobs, advantages)
    now, old = tokens.logprobs, tokens.old
    correction, left_out = rollout_correction(tokens, objective)
    per_token, clips = policy_loss_named(objective.loss).surrogate(tokens, objective)
    values = {
        **clips,
        "kl_old": k3(old, now),  # of the old policy, which drew, from the one now
        "importance": correction,
        **left_out,
    }
    per_token = per_token * correction
    if objective.kl != "none":
        reference = _only(active, _needed(reference_logprobs, "reference_logprobs"))
        term = kl_term(now, old, reference, objective.kl, objective.kl_correction)
        per_token = per_token + objective.kl_weight * term
        values["kl_reference"] = KL_ESTIMATORS[objective.kl](now.detach(), reference)
    scale = token_weight
    if objective.aggregation == "sequence-mean":
        scale = token_weight / _not_zero(token_weight.abs().sum(-1, keepdim=True))
    loss = (per_token * (scale / normaliser.loss)).sum()
    if objective.entropy_weight:
        spread = _only(active, _needed(entropies, "entropies"))
        loss = loss - objective.entropy_weight * (spread * token_weight).sum() / normaliser.tokens
    if entropies is not None:
        values["entropy"] = _only(active, entropies)
    number = active.sum().float()
    sums = {
        name: (_only(active, value.detach().float()).sum(), number)
        for name, value in values.items()
    }
    return LossParts(loss=loss, diagnostics=sums)


def _tokens(
    active: torch.Tensor,
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    sampler_logprobs: torch.Tensor,
    advantages: torch.Tensor,
) -> Tokens:
    now, old = _only(active, logprobs), _only(active, old_logprobs)
    gains = advantages[:, None].expand_as(active) if advantages.dim() == 1 else advantages
    return Tokens(
        logprobs=now,
        log_ratio=within(now - old),
        advantages=_only(active, gains),
        mask=active,
        old=old,
        sampler=_only(active, sampler_logprobs),
    )


def clipped_surrogate(
    tokens: Tokens, objective: Objective
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss of each token before weights, and where each clip took the gradient away (booleans)."""
    ratio, advantages = tokens.log_ratio.exp(), tokens.advantages
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


clipped = PolicyLoss(config=Objective, surrogate=clipped_surrogate)


def _only(active: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Chosen, not multiplied: 0 times NaN is NaN, in the gradient too."""
    return torch.where(active, values, 0.0)


def _not_zero(divisor: torch.Tensor) -> torch.Tensor:
    return torch.where(divisor == 0, 1.0, divisor)


def _needed(values: torch.Tensor | None, name: str) -> torch.Tensor:
    if values is None:
        raise ValueError(f"this objective needs {name}, which were not given")
    return values
