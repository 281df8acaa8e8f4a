"""What stands beside a change, moving every row exactly as far: one direction in its
place, or random ones; and principal components of the models' difference projected out.

1. `along`: a row moves along one direction by as much as the change moves it, in the same
   sense: what takes a feature away takes the direction away. For the mean of the difference and
   the first principal component, both pointing from before to after.
2. `Change.turned`: the change turned at random.
3. `projection`: `h' = h - s (h - m) B^T B`, B the first k principal components, m what the
   *other* model has there on average. With zero in place of m, as in ablating a direction
   (2406.11717), rows would go to where neither model ever is.
4. Components are those of the difference as it is, not centred (`equal_error_basis`
   likewise): a difference that is the same everywhere is one of them.
"""

from dataclasses import replace
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from crosscoders.steering.activation_edits import SIDES, Change, Mode, Side, other_side

SAME: Final = 1e-6  # of the largest: what rounding leaves


def along(change: Change, direction: Float[Tensor, " width"]) -> Change:
    """See step 1; a direction of any length."""
    unit = torch.nn.functional.normalize(direction, dim=0)

    def length(amounts: Tensor) -> Tensor:
        moves: Tensor = amounts.to(change.directions) @ change.directions
        norms: Tensor = torch.linalg.vector_norm(moves, dim=-1, keepdim=True)
        return norms

    return replace(
        change,
        directions=unit[None].to(change.directions),
        amounts=lambda own, other: length(change.amounts(own, other)),
        fixed=None if change.fixed is None else length(change.fixed[None])[0],
    )


def principal_directions(
    pairs: Float[Tensor, "rows models width"], most: int
) -> Float[Tensor, "directions width"]:
    """The first principal components of after less before, orthonormal, each pointing the
    way of the mean difference; fewer than `most` where there are no more.
    """
    difference = (pairs[:, 1] - pairs[:, 0]).double()
    _, lengths, basis = torch.linalg.svd(difference, full_matrices=False)
    basis = basis[:most][lengths[:most] > float(lengths[0]) * SAME]
    signs = (basis @ difference.mean(0)).sign()
    signs[signs == 0] = 1
    directions: Tensor = (basis * signs[:, None]).float()
    return directions


def projection(
    basis: Float[Tensor, "directions width"],
    pairs: Float[Tensor, "rows models width"],
    *,
    mode: Mode,
    acting: Side,
    strength: float,
) -> Change:
    """See step 3: `strength` 1 of `ablate`, or 0 of `scale`, is the whole projection."""
    mean = pairs[:, SIDES.index(other_side(acting))].float().mean(0)
    return Change(
        directions=basis,
        amounts=lambda own, other: (own - mean.to(own)) @ basis.to(own).T,
        mode=mode,
        strength=strength,
        needs_other=False,
    )
