"""What latents that do not come back span together.

Single latents of a block may be one seed's choice of axes in a plane that every seed finds
(2606.12138). Of the after-only latents of one dictionary without a partner in each other one, and
of those of the others that are nobody's partner, this asks for the space that they write in.

1. A latent writes its decoder in the after model, as strongly as it is active (root of the sum of
   squares over the rows read).
2. The space of the first: the fewest principal directions that hold `MOST` of what its latents
   write. Told is the share of what the other's write that lies in it, on average over others.
3. Chance: directions at random lie in it by the share of the dimensions that it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.stability import Stability
from forensics.phrases import percent, plural

MOST = 0.9  # of the squares


@dataclass(frozen=True, kw_only=True)
class Spanned:
    """`latents` of the first that do not come back, the `dimensions` that they write in; `share`
    of what the others' write there, `chance` of random directions.
    """

    latents: int
    dimensions: int
    share: float
    chance: float

    @property
    def sentence(self) -> str:
        """The same in words."""
        return (
            f"The {plural(self.latents, 'after-only latent')} not found from every other seed"
            f" write{'s' if self.latents == 1 else ''} in"
            f" {plural(self.dimensions, 'dimension')}, and {percent(self.share)} of what the other"
            f" seeds' write lies there (by chance {percent(self.chance)})."
        )


def spanned(found: Stability, first: Dictionary, others: Sequence[Dictionary]) -> Spanned | None:
    """`None` where every after-only latent comes back, or one of the others has none left."""
    own = _own(first)
    left = own & found.alive & ~(found.partners >= 0).all(0)
    if not left.any():
        return None
    written = _written(first, found.energies[0], left)
    _, strength, directions = torch.linalg.svd(written, full_matrices=False)
    held = (strength.square().cumsum(0) / strength.square().sum()).numpy()
    dimensions = int((held < MOST).sum()) + 1
    shares = []
    for other, energy, partners in zip(others, found.energies[1:], found.partners, strict=True):
        theirs = _own(other) & (energy > 0)
        theirs[partners[partners >= 0]] = False
        if theirs.any():
            rows = _written(other, energy, theirs)
            inside = (rows @ directions[:dimensions].T).square().sum()
            shares.append(float(inside / rows.square().sum()))
    if not shares:
        return None
    return Spanned(
        latents=int(left.sum()),
        dimensions=dimensions,
        share=float(np.mean(shares)),
        chance=dimensions / first.config.width,
    )


def _own(dictionary: Dictionary) -> np.ndarray:
    """The after-only latents, as a mask."""
    partition = dictionary.config.partition
    own: np.ndarray = np.arange(partition.latents) >= partition.shared.stop
    return own


def _written(dictionary: Dictionary, energy: np.ndarray, chosen: np.ndarray) -> Tensor:
    """`[chosen, width]` in the after model, in raw units, in double precision."""
    rows = torch.from_numpy(chosen)
    directions = dictionary.directions()[:, -1].double().cpu()[rows] / float(dictionary.scale)
    return directions * torch.from_numpy(energy[chosen]).sqrt()[:, None]
