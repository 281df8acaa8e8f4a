"""GSPO (2507.18071): the ratio of a whole row is clipped, not that of each token.

1. The ratio of a row is the geometric mean of its tokens' ratios to the old policy.
2. It is clipped as in PPO, within much closer bounds, and stands at each token of
   the row; a row counts as one (`sequence-mean`).
3. GSPO-token gives it to each token with that token's own gradient. Loss and gradient
   are the same where all tokens of a row have one advantage and one importance.

Departure: the KL term is corrected by the ratio of the token, not of the row.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from training.loss_section import Aggregation, Objective, PolicyLoss, Tokens
from training.losses import clipped_surrogate


class Gspo(Objective):
    """The keys of the clipped surrogate, with the paper's bounds. `level`: `sequence`,
    or `token` for GSPO-token.
    """

    aggregation: Aggregation = "sequence-mean"
    clip_low: float = Field(3e-4, ge=0, le=1)
    clip_high: float = Field(4e-4, ge=0)
    level: Literal["sequence", "token"] = "sequence"


def surrogate(tokens: Tokens, config: Gspo) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss of each token before weights, and where each clip took the gradient away."""
    length = tokens.mask.sum(-1, keepdim=True).clamp(min=1)
    ratio = (tokens.log_ratio.sum(-1, keepdim=True) / length).expand_as(tokens.log_ratio)
    if config.level == "token":
        ratio = ratio.detach() + tokens.logprobs - tokens.logprobs.detach()
    return clipped_surrogate(replace(tokens, log_ratio=ratio), config)


gspo = PolicyLoss(config=Gspo, surrogate=surrogate)
