"""A dictionary as plain dense tensors in the units of raw activations: what lies between our layout and others'.

`pre = x_1 E_1 + ... + b` with nothing subtracted first, `x_hat_m = f D_m + c_m`: scale and centres of ours are folded
into the weights on the way out, and a centre is taken out of the bias again on the way in. Blocks that a partition
forbids are zero here, since others know no partition.
"""

from dataclasses import dataclass

import torch

from crosscoders.dictionary import Activation, Dictionary, DictionaryConfig
from crosscoders.partition import Partition


@dataclass(frozen=True, kw_only=True)
class Parts:
    """`encoders [models, width, latents]`, `bias [latents]`, `decoders [models, latents, width]`, `centres [models,
    width]`, `threshold [latents]` (`None`: without one)."""

    encoders: torch.Tensor
    bias: torch.Tensor
    decoders: torch.Tensor
    centres: torch.Tensor
    threshold: torch.Tensor | None = None

    @property
    def latents(self) -> int:
        return len(self.bias)


@torch.no_grad()
def take_apart(dictionary: Dictionary) -> Parts:
    """The dense tensors of a dictionary, in float32 on the CPU."""
    config = dictionary.config
    encoders = torch.zeros(config.models, config.width, config.partition.latents)
    for model, read in enumerate(dictionary.read):
        encoders[model][:, read] = dictionary.encoders[model].detach().float().cpu().T
    scale, centres = dictionary.scale.float().cpu(), dictionary.centres.detach().float().cpu()
    bias = dictionary.bias.detach().float().cpu() - torch.einsum("mw,mwl->l", centres, encoders)
    known = config.activation in ("batchtopk", "jumprelu")
    return Parts(
        encoders=encoders * scale, bias=bias, decoders=dictionary.directions().float().cpu().transpose(0, 1) / scale,
        centres=centres / scale, threshold=dictionary.threshold.float().cpu().clone() if known else None,
    )


@torch.no_grad()
def put_together(parts: Parts, activation: Activation, k: int = 32) -> Dictionary:
    """A plain dictionary (no partition, scale 1) of dense tensors. Without a threshold it stays unknown."""
    models, width, latents = parts.encoders.shape
    dictionary = Dictionary(DictionaryConfig(
        width=width, partition=Partition(latents=latents), models=models, activation=activation, k=min(k, latents),
    ))
    for model in range(models):
        dictionary.encoders[model].copy_(parts.encoders[model].T)
        dictionary.decoders[model].copy_(parts.decoders[model])
    dictionary.centres.copy_(parts.centres)
    dictionary.bias.copy_(parts.bias + torch.einsum("mw,mwl->l", parts.centres, parts.encoders))
    if parts.threshold is not None:
        dictionary.threshold.copy_(parts.threshold)
    return dictionary
