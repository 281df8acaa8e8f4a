"""The policy loss, in one place.

1. A surrogate gives each token its loss: by default the ratio of its
   probability now to that before the update, clipped (PPO, 1707.06347; ends
   apart as in DAPO, 2503.14476; dual clip, 1912.09729). Others come by the entry
   point `forensics.losses` and are chosen by name.
2. Where engine and trainer disagree on the old policy, the token is corrected
   by old / sampler probability, truncated or masked; the correction carries no
   gradient.
3. KL to a reference policy (`training.divergences`) and an entropy bonus may be
   added.
4. Tokens are summed with weights that were fixed for the whole step beforehand,
   so that any split into micro-batches adds up to the same loss and gradient.
5. Log-ratios are held within 20 nats before they are exponentiated, where a float
   would overflow and infinity times 0 is no number. Beyond, a ratio has no gradient.

Departure: entropy is averaged over the step's tokens whatever the aggregation,
as in TRL, but over the whole step and not over each micro-batch.

Tensors are `[rows, tokens]` and float32 unless said otherwise; logarithms are
natural.

What is optimised, the `[objective]` of a recipe, stands first.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator

from forensics.plugins import load_plugin
from training.divergences import KL_ESTIMATORS, k3, kl_term, within
from training.sections import Section, later


class LossSection(Section):
    """What every policy loss has; a loss of one's own adds its keys in a class
    below this one.

    `loss`: the surrogate, by name.
    `aggregation`: over all tokens of the step (`token-mean`, DAPO, 2503.14476),
    over a constant number of tokens an episode (`dr-grpo`, 2503.20783), or over
    each row first and then over the rows that are trained on (`sequence-mean`,
    GRPO as first published, 2402.03300).
    `dr_grpo_tokens`: that constant, the most tokens that the policy may draw in an
    episode, without its prompt and observations. Without it
    `sampling.max_turn_tokens`, which is right where an episode is one answer. The
    episodes are all that the step played and rewarded, also those of dead groups,
    as in the paper.
    `kl`: estimator of the divergence from the reference policy; it enters the
    loss with `kl_weight` (0: it is only measured). `kl_correction`: times the
    ratio to the old policy, without which k3 pulls in the wrong direction
    (2512.02556). `entropy_weight`: bonus on the mean entropy of the step's
    tokens.
    `importance`: correction by old / sampler probability, held between
    `importance_floor` and `importance_cap` (`truncate`) or the token or row left
    out beyond them (`mask`), token by token or for whole rows
    (`importance_level`). Without `importance_floor` it is 0 for `truncate` and 1 /
    `importance_cap` for `mask`.
    `mask_truncated`: rows whose run was cut off get no weight.
    `overlong_buffer` (0: no penalty): from so many tokens before
    `overlong_tokens` on, the reward falls to -`overlong_penalty` there
    (2503.14476). What counts is what the policy drew in an episode, not its
    prompt or observations. `overlong_tokens` is at most
    `sampling.max_turn_tokens` where an episode is one answer, and stays below
    `sampling.max_tokens`, which counts everything, where it is not.
    """

    loss: str = later("clipped")
    aggregation: Literal["token-mean", "dr-grpo", "sequence-mean"] = "token-mean"
    kl: Literal["none", "k1", "k2", "k3"] = "none"
    kl_weight: float = Field(0.0, ge=0)
    kl_correction: bool = True
    entropy_weight: float = 0.0
    importance: Literal["none", "truncate", "mask"] = "none"
    importance_level: Literal["token", "sequence"] = "token"
    importance_cap: float = Field(2.0, gt=0)
    importance_floor: float | None = later(None, ge=0)
    mask_truncated: bool = False
    overlong_buffer: int = Field(0, ge=0)
    overlong_tokens: int | None = Field(None, ge=1)
    overlong_penalty: float = Field(1.0, gt=0)
    dr_grpo_tokens: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.loss != "clipped" or type(self) is not Objective:
            wanted = policy_loss_named(self.loss).config
            if type(self) is not wanted:
                raise ValueError(
                    f"the loss '{self.loss}' has keys of its own; give a {wanted.__name__}, not a"
                    f" {type(self).__name__}"
                )
        if self.kl_weight and self.kl == "none":
            raise ValueError(
                f'kl_weight {self.kl_weight:g} has no effect while kl is "none"; choose k1, k2'
                " or k3"
            )
        if self.kl == "k1" and not self.kl_correction:
            raise ValueError(
                "k1 without kl_correction has a gradient of mean zero; set kl_correction = true"
            )
        if self.dr_grpo_tokens is not None and self.aggregation != "dr-grpo":
            raise ValueError(
                f'dr_grpo_tokens has no effect with aggregation "{self.aggregation}"; set'
                ' aggregation = "dr-grpo"'
            )
        self._refuse_idle(
            {"importance_level", "importance_cap", "importance_floor"},
            self.importance == "none",
            "importance",
            "truncate",
        )
        if self.importance != "none" and self.lowest_importance >= self.importance_cap:
            raise ValueError(
                f"importance_cap {self.importance_cap:g} is not above the lower end,"
                f" {self.lowest_importance:g}, so nothing is left; raise it, or set a lower"
                " importance_floor"
            )
        self._refuse_idle({"kl_correction"}, self.kl == "none", "kl", "k3")
        self._refuse_idle(
            {"overlong_penalty", "overlong_tokens"},
            not self.overlong_buffer,
            "overlong_buffer",
            "64",
        )
        if self.overlong_buffer > (self.overlong_tokens or 0):
            raise ValueError(
                f"overlong_buffer {self.overlong_buffer} needs overlong_tokens of at least as much:"
                " the tokens that the policy may draw in an episode, for example max_turn_tokens"
                " where an episode is one answer"
            )
        return self

    @property
    def lowest_importance(self) -> float:
        """The lower end of the correction, 0 where there is none."""
        if self.importance_floor is not None:
            return self.importance_floor
        return 1 / self.importance_cap if self.importance == "mask" else 0.0

    def _refuse_idle(self, names: set[str], idle: bool, switch: str, example: str) -> None:
        """A key that was given but changes nothing is a mistake."""
        changed = [
            name
            for name in sorted(names)
            if getattr(self, name) != type(self).model_fields[name].default
        ]
        if idle and changed:
            raise ValueError(
                f"{changed[0]} has no effect while {switch} is off; set {switch}, for example"
                f" {example}"
            )


class Objective(LossSection):
    """The clipped surrogate, `loss = "clipped"`.

    `clip_low`, `clip_high`: the ratio to the old policy is clipped to [1 - low,
    1 + high]. `dual_clip`: where the advantage is negative, the ratio counts
    for at most this much (1912.09729).
    """

    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.2, ge=0)
    dual_clip: float | None = Field(None, gt=1)

    @model_validator(mode="after")
    def _clips_fit(self) -> Self:
        if self.dual_clip is not None and self.dual_clip <= 1 + self.clip_high:
            raise ValueError(
                f"dual_clip {self.dual_clip:g} lies inside the ordinary clip; it must be above 1 +"
                f" clip_high = {1 + self.clip_high:g}"
            )
        return self


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What a surrogate sees, all `[rows, tokens]`, 0 where a token does not
    count. `logprobs`: of the policy now, with gradient. `log_ratio`: to those
    before the update, with gradient, held within 20 nats.
    """

    logprobs: torch.Tensor
    log_ratio: torch.Tensor
    advantages: torch.Tensor


Surrogate = Callable[[Tokens, Any], tuple[torch.Tensor, dict[str, torch.Tensor]]]


@dataclass(frozen=True, kw_only=True)
class PolicyLoss:
    """A loss, named by an entry point of `forensics.losses`.

    `config`: its keys under `[objective]`. `surrogate`: from the tokens and such
    a config, the loss of each token before weights `[rows, tokens]`, and what is
    reported of it as a mean over tokens, by name.
    """

    config: type[LossSection]
    surrogate: Surrogate


@cache
def policy_loss_named(name: str) -> PolicyLoss:
    """The installed loss of this name. Raises `UserError` with the known ones."""
    found: PolicyLoss = load_plugin("forensics.losses", name)
    return found


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
    now, old, sampler = (
        _only(active, values) for values in (logprobs, old_logprobs, sampler_logprobs)
    )
    gains = _only(
        active, advantages[:, None].expand_as(token_weight) if advantages.dim() == 1 else advantages
    )
    correction, left_out = importance_weight(old, sampler, objective)
    tokens = Tokens(logprobs=now, log_ratio=within(now - old), advantages=gains)
    per_token, clips = policy_loss_named(objective.loss).surrogate(tokens, objective)
    values = {
        **clips,
        "kl_old": k3(old, now),  # of the old policy, which drew, from the one now
        "importance": correction,
        "importance_masked": left_out,
    }
    per_token = per_token * correction
    if objective.kl != "none":
        reference = _only(active, _needed(reference_logprobs, "reference_logprobs"))
        term = kl_term(now, old, reference, objective.kl, objective.kl_correction)
        per_token = per_token + objective.kl_weight * term
        values["kl_reference"] = KL_ESTIMATORS[objective.kl](now.detach(), reference)
    loss = (per_token * _token_scale(token_weight, objective, normaliser)).sum()
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


def _token_scale(
    token_weight: torch.Tensor, objective: LossSection, normaliser: Normaliser
) -> torch.Tensor:
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
