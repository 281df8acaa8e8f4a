"""Two seeds of one training: which latents come back.

1. Latents are compared by the cosine of their decoders, over all models
   together, so that a latent that changed its block does not count as the same.
2. A pair counts where each is the other's best and the cosine is at least
   `least`.
3. Chance: the same against the second dictionary with its coordinates mixed up,
   which keeps norms and the relation of the models to each other and destroys
   the directions.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from crosscoders.dictionaries.dictionary import Dictionary
from forensics.errors import UserError

LATENTS_AT_ONCE = 2048


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """`share` of the first dictionary's latents that come back in the second;
    `chance`: the same against a second whose coordinates are mixed up. `partner
    [latents]`: index in the second, -1 for none. `cosine [latents]`: the best.
    """

    share: float
    chance: float
    partner: np.ndarray
    cosine: np.ndarray


def recurrence(
    first: Dictionary,
    second: Dictionary,
    *,
    least: float = 0.9,
    alive: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0,
) -> Recurrence:
    """Latents matched as each other's best by the cosine of their decoders over
    all models, at least `least`.

    `alive`: masks `[latents]` of the latents that count (for example those with
    a frequency above 0). Raises `UserError` for dictionaries of different
    width.
    """
    if (first.config.width, first.config.models) != (second.config.width, second.config.models):
        raise UserError(
            "the two dictionaries differ in width or models; train both on the same site of the"
            " same pair"
        )
    masks = alive or (np.ones(len(first.bias), bool), np.ones(len(second.bias), bool))
    if not masks[0].any() or not masks[1].any():
        raise UserError(
            "one of the dictionaries has no living latent to match; train it for longer"
        )
    ours, theirs = _unit(first, masks[0]), _unit(second, masks[1])
    order = torch.from_numpy(np.random.default_rng(seed).permutation(first.config.width)).to(
        theirs.device
    )
    mixed = theirs.view(len(theirs), first.config.models, -1)[..., order].flatten(1)
    place, cosine = _mutual(ours, theirs)
    by_chance, chance_cosine = _mutual(ours, mixed)
    partner, best = np.full(len(first.bias), -1), np.full(len(first.bias), np.nan)
    found = (place >= 0) & (cosine >= least)
    partner[masks[0]] = np.where(found, np.flatnonzero(masks[1])[place], -1)
    best[masks[0]] = cosine
    chance = float(((by_chance >= 0) & (chance_cosine >= least)).mean())
    return Recurrence(share=float(found.mean()), chance=chance, partner=partner, cosine=best)


def _unit(dictionary: Dictionary, alive: np.ndarray) -> Tensor:
    """Decoders of all models in one row, of length 1 `[living latents, models x width]`."""
    directions = dictionary.directions()
    return torch.nn.functional.normalize(
        directions[torch.from_numpy(alive).to(directions.device)].flatten(1).float()
    )


def _mutual(ours: Tensor, theirs: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Each row's best partner (-1 where that partner prefers another) and the cosine with it."""
    forth, cosine = _best(ours, theirs)
    back, _ = _best(theirs, ours)
    return np.where(back[forth] == np.arange(len(forth)), forth, -1), cosine


def _best(rows: Tensor, others: Tensor) -> tuple[np.ndarray, np.ndarray]:
    parts = [
        (rows[i : i + LATENTS_AT_ONCE] @ others.T).max(1)
        for i in range(0, len(rows), LATENTS_AT_ONCE)
    ]
    return (
        torch.cat([part.indices for part in parts]).cpu().numpy(),
        torch.cat([part.values for part in parts]).cpu().numpy(),
    )
