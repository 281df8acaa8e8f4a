"""GMPO (2507.20673): the geometric mean of a row's ratios, each token clipped before."""

import torch
from pydantic import Field

from training import LossSection, PolicyLoss


class Gmpo(LossSection):
    nats: float = Field(0.4, gt=0)


def surrogate(tokens, config):
    sign = tokens.advantages.sign()
    held = tokens.log_ratio.clamp(-config.nats, config.nats)
    least = sign * torch.minimum(sign * tokens.log_ratio, sign * held)
    length = tokens.mask.sum(-1, keepdim=True).clamp(min=1)
    ratio = (least.sum(-1, keepdim=True) / length).exp()
    gap = (tokens.old - tokens.sampler).abs()
    return -tokens.advantages * ratio, {"held": held != tokens.log_ratio, "gap": gap}


loss = PolicyLoss(config=Gmpo, surrogate=surrogate)
