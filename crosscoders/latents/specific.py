"""Which latents are specific to one model: the one place where that is decided.

1. A dedicated dictionary: the latent lies in that model's own block (it cannot
   say anything of the other, by construction, so this alone means nothing)
   *and* latent scaling finds it missing in the other model.
2. A plain one: its decoder is much longer in that model *and* latent scaling
   finds it missing in the other. Norm bins alone nearly fail under BatchTopK
   (2504.02922).
3. Missing: the error target *and* the difference target are small (see
   `scaling` for why both), and the error target is not far below 0 either.
   There the other model moves the *opposite* way where the latent is active:
   what parts the models is noise that each has of its own (about -0.7), or a
   shared feature that turned (-1), no feature of one model.
4. It carries something: a least share of what parts the models. A dedicated
   latent with nothing to say fires now and then on noise, where it is of course
   missing in the other model too.

A latent whose scaling is undefined is not specific: nothing was seen that would
say so.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from crosscoders.dictionaries.partition import Partition
from crosscoders.latents.scaling import LatentScaling, Nu, Target
from forensics.errors import UserError


@dataclass(frozen=True, kw_only=True)
class SpecificConfig:
    """`error`, `difference`: what nu must stay below, by its estimate or its
    upper end (`by`). `opposite`: how far below 0 the error target's estimate
    may lie. `norm`: what the relative norm (towards the model) must reach in a
    dictionary without dedicated latents. `share`: least share of the variance
    of the models' difference (0: none is asked).
    """

    error: float = 0.2
    difference: float = 0.5
    opposite: float = 0.4
    norm: float = 0.8
    share: float = 0.002
    by: Literal["estimate", "high"] = "estimate"

    def __post_init__(self) -> None:
        if not 0.5 <= self.norm <= 1:
            raise UserError(
                f"the relative norm of a specific latent is from 0.5 to 1, not {self.norm}"
            )

    def missing(self, nus: dict[Target, Nu]) -> np.ndarray:
        """`[latents]`: latent scaling finds the latent missing in the other model."""
        with np.errstate(invalid="ignore"):
            found: np.ndarray = (getattr(nus["error"], self.by) < self.error) & (
                getattr(nus["difference"], self.by) < self.difference
            )
            found &= nus["error"].estimate > -self.opposite
        return found


def specific(
    partition: Partition,
    relative_norm: np.ndarray,
    scaling: LatentScaling,
    config: SpecificConfig | None = None,
) -> np.ndarray:
    """`[latents]`: `after`, `before` or `none`."""
    config = config or SpecificConfig()
    place = np.arange(partition.latents)
    if partition.before_only or partition.after_only:
        after, before = place >= partition.shared.stop, place < partition.before_only
    else:
        with np.errstate(invalid="ignore"):
            after, before = relative_norm >= config.norm, relative_norm <= 1 - config.norm
    with np.errstate(invalid="ignore"):
        carries = (scaling.share >= config.share) | (config.share == 0)
    after, before = after & carries, before & carries
    found = np.full(partition.latents, "none", dtype=object)
    found[after & config.missing(scaling.after)] = "after"
    found[before & config.missing(scaling.before)] = "before"
    return found
