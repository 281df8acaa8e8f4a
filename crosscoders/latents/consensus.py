"""One dictionary of the latents that several seeds agree on.

1. A latent of the first seed is agreed on if at least `AGREED` of the others have it too
   (`stability`: decoders and activations, by assignment). One that changed its block is another.
2. What is averaged means the same in every seed: activations are not negative, so that no sign is
   free; decoders are brought to norm one over the models together, encoders and biases to what
   then gives the same reconstruction in the first seed's units.
3. Decoders, encoders, biases and thresholds are the means over the seeds that have the latent;
   decoders then have norm one again. Centres are the means over all seeds.
4. `k` and `own_k` shrink as the activity does that is left, so that what is left out is not made
   up for by latents that are active more often.

What is merged so reads and writes what the seeds have in common; the other latents' share of each
row is missing in it, so it is trained on for a little (`TrainingJob.start`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.latents.stability import Stability

AGREED: Final = 0.5  # of the other seeds


def agreed(found: Stability) -> np.ndarray:
    """The latents of the first seed that enough of the others have, rising."""
    return np.flatnonzero(found.share >= AGREED)  # NaN, of a silent one, is not


@torch.no_grad()
def merged(
    dictionaries: Sequence[Dictionary], found: Stability, activity: Float[np.ndarray, " latents"]
) -> Dictionary | None:
    """The consensus of the first dictionary with the others, which `found` matched to it; its
    latents are those of `agreed`, in their order. `activity`: how often each latent of the first
    is active, as a share of rows. `None` where none is agreed on.
    """
    first, chosen = dictionaries[0], agreed(found)
    if not len(chosen):
        return None
    known = np.concatenate([np.arange(len(first.bias))[None], found.partners])[:, chosen]
    aligned = [_aligned(one, first) for one in dictionaries]
    directions, encoders, bias, threshold = (
        _mean([one[part] for one in aligned], known) for part in range(4)
    )
    one = Dictionary(_config(first.config, chosen, activity)).to(first.bias.device)
    for m, read in enumerate(one.read):
        one.encoders[m].copy_(encoders[read, m])
        one.decoders[m].copy_(directions[one.own(m), m])
    if one.tied_decoder is not None:
        one.tied_decoder.copy_(directions[one.config.partition.shared, 0])
    one.unit_decoders_()
    one.bias.copy_(bias)
    one.threshold.copy_(threshold)
    one.scale.copy_(first.scale)
    centres = [each.centres.to(bias.device) * (first.scale / each.scale) for each in dictionaries]
    one.centres.copy_(torch.stack(centres).mean(0))
    return one


def _aligned(one: Dictionary, first: Dictionary) -> tuple[Tensor, ...]:
    """Decoders of norm one and encoders `[latents, models, width]`, bias and threshold
    `[latents]`, in the units of `first`.
    """
    directions = one.directions()
    encoders = torch.zeros_like(directions)
    for m, read in enumerate(one.read):
        encoders[read, m] = one.encoders[m]
    norm = directions.flatten(1).norm(dim=1).clamp(min=1e-12)
    ratio = norm * (first.scale / one.scale).to(norm)
    parts = (
        directions / norm[:, None, None],
        encoders * norm[:, None, None],
        one.bias * ratio,
        one.threshold * ratio,
    )
    return tuple(part.to(first.bias.device) for part in parts)


def _mean(parts: Sequence[Tensor], known: np.ndarray) -> Tensor:
    """Over the seeds that have a latent. `known [seeds, chosen]`: as which, -1 as none."""
    total, number = torch.zeros_like(parts[0][: known.shape[1]]), 0
    for part, which in zip(parts, torch.from_numpy(known).to(total.device), strict=True):
        has = (which >= 0).reshape(-1, *[1] * (part.ndim - 1))
        total = total + torch.where(has, part[which.clamp(min=0)], 0)
        number = number + has
    return total / number


def _config(config: DictionaryConfig, chosen: np.ndarray, activity: np.ndarray) -> DictionaryConfig:
    part = config.partition
    place = np.arange(part.latents)
    shared = (place >= part.shared.start) & (place < part.shared.stop)
    before, after = (chosen < part.before_only).sum(), (chosen >= part.shared.stop).sum()
    partition = replace(part, latents=len(chosen), before_only=int(before), after_only=int(after))

    def left(block: np.ndarray) -> float:
        return float(activity[chosen][block[chosen]].sum() / max(activity[block].sum(), 1e-12))

    among = shared if config.own_k is not None else np.ones_like(shared)
    k = min(max(1, round(config.k * left(among))), len(chosen))
    own, dedicated = None, int(before + after)
    if config.own_k is not None and dedicated:
        own = min(max(config.own_k * left(~shared), 1e-3), dedicated)
    return replace(config, partition=partition, k=k, own_k=own)
