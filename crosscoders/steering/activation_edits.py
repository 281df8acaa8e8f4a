"""What is done to an activation: features of a dictionary ablated, scaled or
added, and the controls of equal size.

Every change has the form `h' = h + sum_i c_i d_i`, in raw activation units:
directions `d_i`, amounts `a_i` that are read off the activations (a feature's
value f_i) or fixed, and a coefficient by mode and strength:

1. ablate: `c = -strength a` (1 removes what the feature writes, 2 turns it
   round);
2. scale: `c = (strength - 1) a`, which does nothing where the feature is
   silent;
3. add: `c = strength s`, `s` the feature's median active value, which installs
   it where it is silent (adding is not scaling). A difference subspace has no
   such value and is added as it stands.

A dictionary's own units differ from raw ones by its scale: `d_raw = d / scale`,
f is not touched. Which model's decoder `d` is: the acting model's where the
latent speaks of it, for `add` that of the model the feature comes from; a
latent that is silent on that side is written as it is on the other. `f` is
encoded from both models' activations on the same tokens (`Encoding` "both",
exact), from the acting model's part alone, the other at its centre ("own"). A
dictionary of one stream reads the models' difference ("both") or one model
("own").

What stands beside a change, moving every row exactly as far: one direction in its
place, or random ones; and principal components of the models' difference projected out.

1. `along`: a row moves along one direction by as much as the change moves it, in the same
   sense: what takes a feature away takes the direction away. For the mean of the difference and
   the first principal component, both pointing from before to after.
2. `Change.turned`: the change turned at random.
3. `projection`: `h' = h - s (h - m) B^T B`, B the first k principal components, m what the
   *other* model has there on average. With zero in place of m, as in ablating a direction
   (2406.11717), rows would go to where neither model ever is.
4. Components are those of the difference as it is, not centred: a difference that is the same
   everywhere is one of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from crosscoders.dictionaries.dictionary import Dictionary
from forensics.errors import UserError

Mode = Literal["ablate", "scale", "add"]
Encoding = Literal["both", "own"]
Side = Literal["before", "after"]
Amounts = Callable[[Tensor, Tensor | None], Tensor]
SIDES: tuple[Side, Side] = ("before", "after")


def other_side(side: Side) -> Side:
    """The other model."""
    return "after" if side == "before" else "before"


@dataclass(frozen=True, kw_only=True)
class Change:
    """`h + strength-weighted amounts @ directions`.

    `directions` in raw units. `amounts(own, other)` gives
    `[rows, directions]` of activations `[rows, width]`; `fixed [directions]` is
    what `add` takes in their place. `needs_other`: whether `amounts` reads the
    other model.
    """

    directions: Float[Tensor, "directions width"]
    amounts: Amounts
    mode: Mode
    strength: float
    needs_other: bool
    fixed: Tensor | None = None

    def apply(
        self, own: Float[Tensor, "rows width"], other: Float[Tensor, "rows width"] | None
    ) -> Float[Tensor, "rows width"]:
        """The changed activations, float32."""
        return torch.addmm(
            own, self.coefficients(own, other).to(own.dtype), self.directions.to(own.dtype)
        )

    def coefficients(self, own: Tensor, other: Tensor | None) -> Tensor:
        """`c [rows, directions]` of the module's text."""
        if self.mode == "add" and self.fixed is not None:
            amounts = self.fixed.expand(len(own), -1)
        else:
            amounts = self.amounts(own, other)
        factors = {"ablate": -self.strength, "scale": self.strength - 1, "add": self.strength}
        return amounts.mul(factors[self.mode])

    def turned(self, generator: torch.Generator) -> "Change":
        """The control of equal norm: random directions with the same lengths
        and angles among themselves, so that every row is moved exactly as far.
        """
        return replace(self, directions=random_directions(self.directions, generator))

    def to(self, device: torch.device | str) -> "Change":
        fixed = None if self.fixed is None else self.fixed.to(device)
        return replace(self, directions=self.directions.to(device), fixed=fixed)


def random_directions(like: Tensor, generator: torch.Generator) -> Tensor:
    """Directions `[directions, width]` with the Gram matrix of `like`, turned at random (Haar)."""
    _, triangle = torch.linalg.qr(like.T.double())  # [k, directions], k the smaller of the two
    drawn = torch.randn((like.shape[1], len(triangle)), generator=generator, dtype=torch.float64)
    frame, corner = torch.linalg.qr(drawn)
    frame = frame * corner.diagonal().sign()  # without it the frame is not uniform
    turned: Tensor = (frame.to(triangle.device) @ triangle).T.to(like.dtype)
    return turned


def feature_change(
    dictionary: Dictionary,
    features: Sequence[int],
    *,
    mode: Mode,
    acting: Side,
    strength: float,
    encoding: Encoding = "both",
    values: Tensor | None = None,
) -> Change:
    """Ablate, scale or add latents of a dictionary over (before, after), or of
    one over their difference or one model.

    `values [features]`: what `add` takes as s; added features come from the after
    model. Raises `UserError` for latents that are not there, and
    for `add` without values.
    """
    latents, models = dictionary.config.partition.latents, dictionary.config.models
    if not features:
        raise UserError("no feature is given; name latents, such as 12,17")
    for feature in features:
        if not 0 <= feature < latents:
            raise UserError(f"there is no latent {feature}; this dictionary has 0 to {latents - 1}")
    if mode == "add" and values is None:
        raise UserError("adding a feature needs its median active value; give values")
    if encoding == "own" and mode != "add" and models > 1:
        seen = dictionary.read[SIDES.index(acting)]
        silent = [feature for feature in features if not seen.start <= feature < seen.stop]
        if silent:
            raise UserError(
                f"latent {silent[0]} cannot be encoded from the {acting} model alone; encode from"
                " both models"
            )
    chosen = torch.tensor(list(features), device=dictionary.bias.device)
    return Change(
        directions=raw_directions(dictionary, chosen, "after" if mode == "add" else acting),
        amounts=lambda own, other: dictionary.values(
            stacked(dictionary, own, other, acting, encoding), chosen
        ),
        mode=mode,
        strength=strength,
        needs_other=mode != "add"
        and encoding == "both"
        and reads_other(dictionary, features, acting),
        fixed=None if values is None else values.to(dictionary.bias),
    )


def subspace_change(
    basis: Float[Tensor, "directions width"], *, mode: Mode, acting: Side, strength: float
) -> Change:
    """The models' difference (after less before) inside the span of orthonormal
    `basis`: taken out of the acting model, scaled, or put
    into it.
    """

    return Change(
        directions=basis,
        amounts=lambda own, other: _difference(own, other, acting) @ basis.T,
        mode=mode,
        strength=strength,
        needs_other=True,
    )


def raw_directions(
    dictionary: Dictionary, chosen: Int[Tensor, " features"], side: Side
) -> Float[Tensor, "features width"]:
    """Decoder rows of one side in raw units; of the other
    where a latent is silent on this one.
    """
    full = dictionary.directions()[chosen]
    if dictionary.config.models == 1:
        return full[:, 0] / dictionary.scale
    mine, theirs = (full[:, 0], full[:, -1]) if side == "before" else (full[:, -1], full[:, 0])
    silent = mine.abs().amax(-1, keepdim=True) == 0
    return torch.where(silent, theirs, mine) / dictionary.scale


def reads_other(dictionary: Dictionary, features: Sequence[int], acting: Side) -> bool:
    """Whether these latents' values depend on the model that does not act (where
    all latents compete, it does).
    """
    if dictionary.config.models == 1 or dictionary.function.by_rank == "always":
        return True  # a code of the difference; or all latents compete
    seen = dictionary.read[SIDES.index(other_side(acting))]
    return any(seen.start <= feature < seen.stop for feature in features)


def stacked(
    dictionary: Dictionary,
    own: Float[Tensor, "rows width"],
    other: Float[Tensor, "rows width"] | None,
    acting: Side,
    encoding: Encoding = "both",
) -> Float[Tensor, "rows models width"]:
    """Activations in the dictionary's units, in the order that it reads."""
    models = dictionary.config.models
    if models > 2:
        raise UserError(
            f"a dictionary over {models} models cannot be steered with; give one over two, or one"
        )
    if models == 1:
        return dictionary.scaled(
            (own if encoding == "own" else _difference(own, other, acting))[:, None]
        )
    mine = dictionary.scaled(own)
    if encoding == "own" or other is None:  # latents that do not read it need not be given it
        theirs = dictionary.centres[SIDES.index(other_side(acting))].expand_as(mine)
    else:
        theirs = dictionary.scaled(other)
    return torch.stack([mine, theirs] if acting == "before" else [theirs, mine], 1)


def _difference(own: Tensor, other: Tensor | None, acting: Side) -> Tensor:
    assert other is not None, "a difference needs both models"
    return own - other if acting == "after" else other - own


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
