"""What is optimised: the `[objective]` of a recipe, and what a policy loss is.

A loss is a class of keys below `LossSection` and a function from `Tokens` to the
loss of each token (`PolicyLoss`), found by its name under the entry points
`forensics.losses`. The clipped surrogate's keys, `Objective`, are those of a recipe
that names none. How the loss of a step is made of it stands in `training.losses`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator

from forensics.plugins import load_plugin
from training.sections import Section, later

Aggregation = Literal["token-mean", "dr-grpo", "sequence-mean"]


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
    `geometric_limit`: a whole row is left out where the geometric mean of old /
    sampler over its tokens lies beyond 1 / limit or the limit (verl's
    `seq_mean_k1`), beside any `importance`. `off_policy_limit`: a row with a
    negative advantage is left out where its tokens have, on average, lost more
    than so many nats since they were drawn (DeepSeek-V3.2, 2512.02556).
    `mask_truncated`: rows whose run was cut off get no weight.
    `overlong_buffer` (0: no penalty): from so many tokens before
    `overlong_tokens` on, the reward falls to -`overlong_penalty` there
    (2503.14476). What counts is what the policy drew in an episode, not its
    prompt or observations. `overlong_tokens` is at most
    `sampling.max_turn_tokens` where an episode is one answer, and stays below
    `sampling.max_tokens`, which counts everything, where it is not.
    """

    loss: str = later("clipped")
    aggregation: Aggregation = "token-mean"
    kl: Literal["none", "k1", "k2", "k3"] = "none"
    kl_weight: float = Field(0.0, ge=0)
    kl_correction: bool = True
    entropy_weight: float = 0.0
    importance: Literal["none", "truncate", "mask"] = "none"
    importance_level: Literal["token", "sequence"] = "token"
    importance_cap: float = Field(2.0, gt=0)
    importance_floor: float | None = later(None, ge=0)
    geometric_limit: float | None = later(None, gt=1)
    off_policy_limit: float | None = later(None, gt=0)
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
    def corrects_sampler(self) -> bool:
        """Whether it compares the trainer's old log-probabilities with the sampler's."""
        return self.importance != "none" or self.geometric_limit is not None

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
    count. Rows are whole episodes, so what is of a sequence can be formed here.

    `logprobs`: of the policy now, with gradient. `log_ratio`: to those before the
    update, with gradient, held within 20 nats. `mask`: which tokens count
    (booleans); a row may have none. `old`: log-probabilities before the update, and
    `sampler`: those of the engine that drew, both without gradient.
    """

    logprobs: torch.Tensor
    log_ratio: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor
    old: torch.Tensor
    sampler: torch.Tensor


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
