"""CISPO (2506.13585): the clipped ratio weighs the log-probability and carries no gradient."""

from pydantic import Field

from training import LossSection, PolicyLoss


class Cispo(LossSection):
    weight_cap: float = Field(5.0, gt=0)


def surrogate(tokens, config):
    weight = tokens.log_ratio.exp().detach()
    loss = -weight.clamp(max=config.weight_cap) * tokens.advantages * tokens.logprobs
    return loss, {"capped": weight >= config.weight_cap}


loss = PolicyLoss(config=Cispo, surrogate=surrogate)
