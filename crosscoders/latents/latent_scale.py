"""Latent scaling: how much of what a latent writes in one model the other model
has too. All latents, both directions.

1. A direction speaks for one model: `v` is the latent's decoder in *after*
   (then `nu_after`) or in *before* (`nu_before`). For each model `m`, `beta_m =
   argmin_b sum_rows |target_m - b f v|^2 = sum f (v . target_m) / (sum f^2
   |v|^2)`. Only rows where the latent is active count, so only active (row,
   latent) pairs are touched.
2. `nu_after = beta_before / beta_after`: 0 where only the after model has it, 1
   where both have it alike; `nu_before` is the reverse. Swapping the models
   swaps the two.
3. Three targets. `error`: what the model's reconstruction lacks, with the
   latent's own part put back, `e_m + f d_m`. It finds *complete shrinkage*: the
   other model has the feature and its decoder does not say so.
   `reconstruction`: `h_hat_m - c_m`. It finds *latent decoupling*: other
   latents say it in the other model. `difference` (ours): `1 - (beta_after -
   beta_before) / beta_after,error`, the betas of the numerator with target `h_m
   - c_m`.
4. `error` is the default, as in the source: other latents that are active at
   the same time and not orthogonal to `v` are taken out of it, so it is sharp.
   It is blind to decoupling alone, and the reconstruction target that is not
   blind is blurred by those very latents. In `difference` what the latents
   write into both models alike cancels, so it sees both faults and stays sharp;
   in a pair of equal models with equal centres it is exactly 1. "Specific" asks
   for both (see `specific`).
5. Intervals: sums are kept by group of tasks (each task its own group up to
   `GROUPS` of them), groups are drawn again with replacement. Memory: `GROUPS x
   latents x 11` float64, whatever the batch and the width.

Source: 2504.02922. Departures: centres are taken off (a mean is nobody's
feature), both directions in one pass, intervals, and the third target. A
dictionary of one model is run on each model; its own part is then `f_m d`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from crosscoders.activations.streams import Stream
from crosscoders.dictionaries import sparse
from crosscoders.dictionaries.dictionary import Codes, Dictionary
from crosscoders.latents.encoded_blocks import EncodedBlock, must_fit
from crosscoders.latents.row_groups import task_groups
from forensics.errors import UserError

Target = Literal["error", "reconstruction", "difference"]
TARGETS: tuple[Target, ...] = ("error", "reconstruction", "difference")
LATENTS_AT_ONCE = 4096
GROUPS = 64  # most groups of tasks that sums are kept for
FEWEST = 8  # active groups, below which no interval is given
DRAWS, SEED = 400, 0  # of the bootstrap
LEVEL = 0.95  # of the interval
DEFINED = 0.99  # share of the draws in which a ratio must be defined for its interval to be


@dataclass(frozen=True, kw_only=True)
class Nu:
    """Estimates `[latents]`, NaN where undefined (silent latents, no decoder in
    that model); so are the ends where fewer than `FEWEST` groups of tasks were
    active.
    """

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, kw_only=True)
class LatentScaling:
    """`after` and `before`: by target. `beta [latents, directions, models]` of
    the error target; direction and model 0 are before, 1 after. `share
    [latents]`: of the variance of the models' difference, how much the latent
    writes (`sum f^2 |d_after - d_before|^2` of `sum |h_after - h_before|^2`
    about the mean; parts that overlap need not add up); NaN where the models do
    not differ. `groups`: independent groups of tasks.
    """

    after: dict[Target, Nu]
    before: dict[Target, Nu]
    beta: np.ndarray
    share: np.ndarray
    groups: int

    def columns(self) -> dict[str, np.ndarray]:
        """Of the table: `nu_after` is the error target, `nu_after_reconstruction`
        and `nu_after_difference` the others; so for before.
        """
        columns = {"share_of_difference": self.share}
        for side, nus in (("after", self.after), ("before", self.before)):
            for target, nu in nus.items():
                name = f"nu_{side}" if target == "error" else f"nu_{side}_{target}"
                columns |= {name: nu.estimate, f"{name}_low": nu.low, f"{name}_high": nu.high}
        return columns


class ScalingAccumulator:
    """Latent scaling of all latents in one pass. Before is the stream's first model, after
    its last. Raises `UserError` for a stream of one model.

    `squares [groups x latents]`: sums of `f^2`, and `own [groups x latents,
    models]` of `f f_m`, the same but where an SAE reads each model for itself.
    `errors`, `parts [groups x latents, directions, models]`: sums of `f (v .
    e_m)` and of `f (v . (h_hat_m - c_m))`.
    """

    def __init__(self, dictionary: Dictionary, stream: Stream) -> None:
        if stream.models < 2:
            raise UserError(
                "latent scaling compares two models and the stream has one; give both checkpoints"
            )
        must_fit(dictionary, stream)
        self.models = (0, stream.models - 1)
        self.group_of_text = task_groups(stream.texts, GROUPS)
        self.groups = int(self.group_of_text.max()) + 1
        self.directions = dictionary.directions(stream.models)[
            :, list(self.models)
        ].float()  # [latents, 2, width]
        latents, device = len(self.directions), self.directions.device
        # products of a direction with each model's own decoder, [latents, directions, models]
        self.overlaps = torch.einsum("ldw,lmw->ldm", self.directions, self.directions).double()
        self.squares = torch.zeros(self.groups * latents, dtype=torch.float64, device=device)
        self.own = torch.zeros(self.groups * latents, 2, dtype=torch.float64, device=device)
        self.errors = torch.zeros(self.groups * latents, 2, 2, dtype=torch.float64, device=device)
        self.parts = torch.zeros_like(self.errors)
        self.rows = 0
        # sums of the models' difference, and of its squares
        self.difference = self.squares.new_zeros(2, self.directions.shape[-1])

    def add(self, encoded: EncodedBlock) -> None:
        codes = encoded.codes
        group = torch.from_numpy(self.group_of_text[encoded.rows.text]).to(codes.row.device)
        cell = group[codes.row] * len(self.directions) + codes.latent
        value = codes.value.double()
        self.squares.index_add_(0, cell, value**2)
        written = encoded.reconstructions - encoded.dictionary.centres.detach()
        missing = encoded.scaled - encoded.reconstructions
        difference = encoded.scaled[:, self.models[1]] - encoded.scaled[:, self.models[0]]
        self.difference[0] += difference.double().sum(0)
        self.difference[1] += difference.double().square().sum(0)
        self.rows += len(difference)
        pattern = sparse.Pattern.of(codes.row, codes.latent, codes.rows, len(self.directions))
        for m, model in enumerate(self.models):
            own = matched(codes, encoded.codes_by_model[model], len(self.directions)).double()
            self.own[:, m].index_add_(0, cell, value * own)
            for d in range(2):
                for sums, rows in ((self.errors, missing), (self.parts, written)):
                    product = sparse.products_at(pattern, rows[:, model], self.directions[:, d])
                    sums[:, d, m].index_add_(0, cell, value * product.double())

    def result(self) -> LatentScaling:
        """Betas, nus and their intervals."""
        squares = self.squares.view(self.groups, -1).cpu().numpy()
        written = self.own.view(*squares.shape, 1, 2) * self.overlaps  # by the latent along v
        errors, parts = (sums.view(written.shape) for sums in (self.errors, self.parts))
        sums = {
            "error": (errors + written).cpu().numpy(),
            "part": parts.cpu().numpy(),
            "whole": (errors + parts).cpu().numpy(),  # h - c = e + (h_hat - c)
        }
        squared_norms = np.einsum("ldd->ld", self.overlaps.cpu().numpy())
        with np.errstate(divide="ignore", invalid="ignore"):
            beta = sums["error"].sum(0) / (squares.sum(0)[:, None] * squared_norms)[..., None]
        before, after = (
            _nus(squares, {name: values[:, :, d] for name, values in sums.items()}, d)
            for d in range(2)
        )
        total, of_squares = self.difference.cpu().numpy()
        variance = float((of_squares - total**2 / max(self.rows, 1)).sum())
        apart = (self.directions[:, 1] - self.directions[:, 0]).square().sum(-1).cpu().numpy()
        rounding = 1e-12 * float(of_squares.sum())
        return LatentScaling(
            before=before,
            after=after,
            beta=beta,
            share=apart * squares.sum(0) / (variance if variance > rounding else np.nan),
            groups=self.groups,
        )


def matched(codes: Codes, other: Codes, latents: int) -> Tensor:
    """The values `[active]` that `other` has at the pairs of `codes`; 0 where
    it is silent there.
    """
    if other is codes:
        return codes.value
    wanted, known = codes.row * latents + codes.latent, other.row * latents + other.latent
    if not len(known):
        return torch.zeros_like(codes.value)
    known, order = known.sort()
    place = torch.searchsorted(known, wanted).clamp(max=len(known) - 1)
    return torch.where(known[place] == wanted, other.value[order[place]], 0.0)


def _nus(squares: np.ndarray, sums: Mapping[str, np.ndarray], direction: int) -> dict[Target, Nu]:
    """Ratios of one direction with their intervals. `squares [groups, latents]`;
    `sums`: numerators along that direction `[groups, latents, models]`: of the
    error with the latent's own part, of the reconstruction (`part`), and of the
    whole activation.
    """
    groups, latents = squares.shape
    weights = np.random.default_rng(SEED).multinomial(
        groups, np.full(groups, 1 / groups), size=DRAWS
    )
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    found = {target: np.full((3, latents), np.nan) for target in TARGETS}
    for first in range(0, latents, LATENTS_AT_ONCE):
        some = slice(first, first + LATENTS_AT_ONCE)
        point, drawn = (
            _ratios(
                {
                    name: np.einsum("bg,glm->blm", each, values[:, some])
                    for name, values in sums.items()
                },
                direction,
            )
            for each in (np.ones((1, groups)), weights.astype(float))
        )
        enough = (squares[:, some] > 0).sum(0) >= FEWEST
        for target in TARGETS:
            ends = np.full((2, len(enough)), np.nan)
            usable = enough & (np.isfinite(drawn[target]).mean(0) >= DEFINED)
            if usable.any():
                ends[:, usable] = np.nanquantile(drawn[target][:, usable], tails, axis=0)
            found[target][:, some] = np.concatenate([point[target], ends])
    return {
        target: Nu(estimate=rows[0], low=rows[1], high=rows[2]) for target, rows in found.items()
    }


def _ratios(sums: Mapping[str, np.ndarray], direction: int) -> dict[Target, np.ndarray]:
    """Nu `[draws, latents]` of each target; NaN where undefined, also where the
    latent's own model lacks it.
    """
    mine, other = ({n: v[..., m] for n, v in sums.items()} for m in (direction, 1 - direction))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: dict[Target, np.ndarray] = {
            "error": other["error"] / mine["error"],
            "reconstruction": other["part"] / mine["part"],
            "difference": 1 - (mine["whole"] - other["whole"]) / mine["error"],
        }
    own = {"error": mine["error"], "reconstruction": mine["part"], "difference": mine["error"]}
    return {target: np.where(own[target] > 0, ratio, np.nan) for target, ratio in ratios.items()}
