"""Three checkpoints or more at once (base, SFT, RL): at which stage a latent came.

A dictionary over all of them has one code and a decoder for each model
(`DictionaryConfig(models=3)`, trained on `harvest((base, sft, rl), ...)`). How much of a latent is
*there* in a model is latent scaling (2504.02922) against the last model's direction `d`:

    presence_m = sum_rows f <h_m - h_hat_m + f d_m, d> / sum_rows f^2 <d, d>

1 where model m writes it as the last one does, 0 where it does not have it, whatever its own
decoder claims. A latent *came* at the first stage from which on it is there (`HALF` or more) in
every model; *gone* where the last model has less than half of what an earlier one has. Source of
the question: 2604.25011; that presence is read against the last model and not from decoder norms
is ours, since norms alone nearly fail under BatchTopK.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from jaxtyping import Float

from crosscoders.activations.streams import Stream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoded_blocks import encoded_blocks
from forensics.errors import UserError

HALF: Final = 0.5
GONE: Final = "gone"


@torch.no_grad()
def presence(dictionary: Dictionary, stream: Stream) -> Float[np.ndarray, "latents models"]:
    """See the module; NaN for a latent that is never active. Raises `UserError` where the
    dictionary is not of as many models as the stream.
    """
    models = dictionary.config.models
    if models != stream.models or models < 2:
        raise UserError(
            f"the dictionary is of {models} models and the stream of {stream.models}; train one on"
            " all checkpoints together"
        )
    directions = dictionary.directions()
    strongest = directions.norm(dim=-1).argmax(1)
    last = directions[:, -1].clone()
    lost = last.norm(dim=1) < HALF * directions.norm(dim=-1).amax(1)
    last[lost] = directions[lost, strongest[lost]]
    sums = torch.zeros((len(last), models), dtype=torch.float64, device=last.device)
    weight = torch.zeros(len(last), dtype=torch.float64, device=last.device)
    for encoded in encoded_blocks(dictionary, stream):
        codes, left = encoded.codes, encoded.scaled - encoded.reconstructions
        along = last[codes.latent]
        for m in range(models):
            own = left[codes.row, m] + codes.value[:, None] * directions[codes.latent, m]
            told = codes.value * (own * along).sum(1)
            sums[:, m].index_add_(0, codes.latent, told.double())
        size = codes.value.square() * along.square().sum(1)
        weight.index_add_(0, codes.latent, size.double())
    found = sums / weight[:, None]
    found[weight == 0] = torch.nan
    told_all: np.ndarray = found.cpu().numpy()
    return told_all


def came(presences: Float[np.ndarray, "latents models"], names: Sequence[str]) -> np.ndarray:
    """By latent the name of the checkpoint at which it came, `gone`, or `unknown` (never active).
    `names`: of the checkpoints, in order.
    """
    if len(names) != presences.shape[1]:
        raise UserError(f"{presences.shape[1]} checkpoints need as many names, not {len(names)}")
    there = presences >= HALF * np.nanmax(np.nan_to_num(presences), axis=1, keepdims=True)
    there &= presences > 0
    found = np.full(len(presences), GONE, dtype=object)
    for first in range(len(names) - 1, -1, -1):
        found[there[:, first:].all(1)] = names[first]
    found[np.isnan(presences).any(1)] = "unknown"
    return found
