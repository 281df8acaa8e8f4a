"""What is optimised: the `[objective]` of a recipe. The loss maths itself is in `training.losses`."""

from typing import Literal, Self

from pydantic import Field, model_validator

from training.sections import Section


class Objective(Section):
    """The policy loss and its extra terms; the defaults are the token-mean clipped surrogate without either.

    `aggregation`: over all tokens of the step (`token-mean`, DAPO, 2503.14476), over a constant number of tokens a
    row (`dr-grpo`, 2503.20783; the constant is `dr_grpo_tokens`, or the most tokens an episode may have), or over
    each row first and then over the rows (`sequence-mean`, GRPO as first published, 2402.03300).
    `clip_low`, `clip_high`: the ratio to the old policy is clipped to [1 - low, 1 + high]. `dual_clip`: where the
    advantage is negative, the ratio counts for at most this much (1912.09729).
    `kl`: estimator of the divergence from the reference policy; it enters the loss with `kl_weight` (0: it is only
    measured). `kl_correction`: times the ratio to the old policy, without which k3 pulls in the wrong direction
    (2512.02556). `entropy_weight`: bonus on the mean entropy of the step's tokens.
    `importance`: correction by old / sampler probability, cut off at `importance_cap` (`truncate`) or the token or
    row left out beyond it (`mask`), token by token or for whole rows (`importance_level`).
    `mask_truncated`: rows whose run was cut off get no weight. `overlong_buffer` (0: no penalty): from so many tokens
    before `overlong_tokens` on, the reward falls to -`overlong_penalty` there (2503.14476). What counts is what the
    policy drew in an episode, not its prompt or observations. `overlong_tokens` is at most `sampling.max_turn_tokens`
    where an episode is one answer, and stays below `sampling.max_tokens`, which counts everything, where it is not.
    """

    aggregation: Literal["token-mean", "dr-grpo", "sequence-mean"] = "token-mean"
    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.2, ge=0)
    dual_clip: float | None = Field(None, gt=1)
    kl: Literal["none", "k1", "k2", "k3"] = "none"
    kl_weight: float = Field(0.0, ge=0)
    kl_correction: bool = True
    entropy_weight: float = 0.0
    importance: Literal["none", "truncate", "mask"] = "none"
    importance_level: Literal["token", "sequence"] = "token"
    importance_cap: float = Field(2.0, gt=0)
    mask_truncated: bool = False
    overlong_buffer: int = Field(0, ge=0)
    overlong_tokens: int | None = Field(None, ge=1)
    overlong_penalty: float = Field(1.0, gt=0)
    dr_grpo_tokens: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.dual_clip is not None and self.dual_clip <= 1 + self.clip_high:
            raise ValueError(
                f"dual_clip {self.dual_clip:g} lies inside the ordinary clip; it must be above 1 + clip_high = "
                f"{1 + self.clip_high:g}"
            )
        if self.kl_weight and self.kl == "none":
            raise ValueError(f"kl_weight {self.kl_weight:g} has no effect while kl is \"none\"; choose k1, k2 or k3")
        if self.kl == "k1" and not self.kl_correction:
            raise ValueError("k1 without kl_correction has a gradient of mean zero; set kl_correction = true")
        if self.dr_grpo_tokens is not None and self.aggregation != "dr-grpo":
            raise ValueError(
                f"dr_grpo_tokens has no effect with aggregation \"{self.aggregation}\"; set aggregation = \"dr-grpo\""
            )
        self._refuse_idle({"importance_level", "importance_cap"}, self.importance == "none", "importance", "truncate")
        self._refuse_idle({"kl_correction"}, self.kl == "none", "kl", "k3")
        self._refuse_idle({"overlong_penalty", "overlong_tokens"}, not self.overlong_buffer, "overlong_buffer", "64")
        if self.overlong_buffer > (self.overlong_tokens or 0):
            raise ValueError(
                f"overlong_buffer {self.overlong_buffer} needs overlong_tokens of at least as much: the tokens that "
                "the policy may draw in an episode, for example max_turn_tokens where an episode is one answer"
            )
        return self

    def _refuse_idle(self, names: set[str], idle: bool, switch: str, example: str) -> None:
        """A key that was given but changes nothing is a mistake."""
        changed = [name for name in sorted(names) if getattr(self, name) != type(self).model_fields[name].default]
        if idle and changed:
            raise ValueError(f"{changed[0]} has no effect while {switch} is off; set {switch}, for example {example}")


def overlong_penalty(drawn: int, objective: Objective) -> float:
    """What an episode loses in which the policy drew so many tokens (soft overlong punishment, DAPO, 2503.14476).

    0 up to `overlong_tokens - overlong_buffer`, then falling in a straight line to `-overlong_penalty` at
    `overlong_tokens` and beyond.
    """
    if not objective.overlong_buffer or objective.overlong_tokens is None:
        return 0.0
    over = drawn - (objective.overlong_tokens - objective.overlong_buffer)
    return -objective.overlong_penalty * min(max(over / objective.overlong_buffer, 0.0), 1.0)
