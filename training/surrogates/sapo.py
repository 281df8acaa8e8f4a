"""SAPO (2511.20347): a soft gate in place of the clip. The further a token's ratio is
from 1, the less gradient it has, and sooner where the advantage is negative.

The gate is `4 / t sigmoid(t (ratio - 1))` at temperature t. Its slope, the weight of
the token's gradient, is 1 at ratio 1 and falls to 0 on both sides.
"""

import torch
from pydantic import Field

from training.loss_section import Aggregation, LossSection, PolicyLoss, Tokens


class Sapo(LossSection):
    """`temperature_positive`, `temperature_negative`: of tokens whose advantage is
    positive, and of the others. The higher, the sooner the gate closes.
    """

    aggregation: Aggregation = "sequence-mean"
    temperature_positive: float = Field(1.0, gt=0)
    temperature_negative: float = Field(1.05, gt=0)


def surrogate(tokens: Tokens, config: Sapo) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss of each token before weights, and the slope of its gate (1: wide open)."""
    up, down = config.temperature_positive, config.temperature_negative
    temperature = torch.where(tokens.advantages > 0, up, down)
    gate = torch.sigmoid(temperature * (tokens.log_ratio.exp() - 1))
    slope = 4 * gate.detach() * (1 - gate.detach())
    return -4 / temperature * gate * tokens.advantages, {"gate": slope}


sapo = PolicyLoss(config=Sapo, surrogate=surrogate)
