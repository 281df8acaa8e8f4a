"""CISPO (2506.13585): the clipped ratio weighs the log-probability and carries no
gradient, so that a clipped token still has one.
"""

import torch
from pydantic import Field

from training.loss_section import LossSection, PolicyLoss, Tokens


class Cispo(LossSection):
    """`clip_low`, `clip_high`: the ratio to the old policy is clipped to [1 - low, 1 +
    high]. By default there is no lower end, as in the paper, and the upper one is 5
    (2510.13786).
    """

    clip_low: float = Field(1.0, ge=0, le=1)
    clip_high: float = Field(4.0, ge=0)


def surrogate(tokens: Tokens, config: Cispo) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss of each token before weights, and where its weight was clipped."""
    ratio = tokens.log_ratio.detach().exp()
    low, high = 1 - config.clip_low, 1 + config.clip_high
    loss = -ratio.clamp(low, high) * tokens.advantages * tokens.logprobs
    return loss, {"clip_low": ratio < low, "clip_high": ratio > high}


cispo = PolicyLoss(config=Cispo, surrogate=surrogate)
