"""The table of latents, one row a latent, in one pass over a stream.

1. From the weights: partition, relative decoder norm `0.5 ((|d_after| -
   |d_before|) / max + 1)` (0 before only, 1 after only), decoder cosine.
2. From the stream: latent scaling in both directions with intervals, frequency,
   mean activation over all rows and by group of rows, contrasts with p- and
   q-values.
3. `specific`: which latents are one model's own (`specific_latents`).

What could not be measured is null. Activations are in the dictionary's units: a
latent of activation `f` adds `f d / scale` to a model. Sources:
transformer-circuits 2024 (relative norm), 2504.02922 (latent scaling).

The tokens that activate each latent most are a bounded list, filled in the same pass
(`TopTokens`). Of each block only values that would enter a latent's list are looked at, and
merged with what the list holds. Equal values are ordered by text and position,
so the order and the size of blocks do not matter.

Latent scaling: how much of what a latent writes in one model the other model
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

Three checkpoints or more at once (base, SFT, RL): at which stage a latent came.

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

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float
from torch import Tensor

from crosscoders.activations.streams import Stream
from crosscoders.dictionaries import sparse
from crosscoders.dictionaries.dictionary import Codes, Dictionary
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.encoded_blocks import (
    EncodedBlock,
    Quality,
    QualityAccumulator,
    accumulate,
    encoded_blocks,
    must_fit,
)
from crosscoders.latents.row_groups import (
    Activity,
    Contrast,
    ContrastAccumulator,
    ContrastResult,
    known_groups,
    task_groups,
)
from forensics.errors import UserError
from forensics.records import whole_file
from forensics.version import code_version

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


NUMBER = 10  # of tokens a latent


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


def specific_latents(
    partition: Partition,
    relative_norm: np.ndarray,
    scaling: LatentScaling,
    config: SpecificConfig | None = None,
) -> np.ndarray:
    """Which latents are specific to one model `[latents]`: `after`, `before` or
    `none`. The one place where that is decided:

    1. A dedicated dictionary: the latent lies in that model's own block (it cannot
       say anything of the other, by construction, so this alone means nothing)
       *and* latent scaling finds it missing in the other model.
    2. A plain one: its decoder is much longer in that model *and* latent scaling
       finds it missing in the other. Norm bins alone nearly fail under BatchTopK
       (2504.02922).
    3. Missing: the error target *and* the difference target are small (see
       the module for why both), and the error target is not far below 0 either.
       There the other model moves the *opposite* way where the latent is active:
       what parts the models is noise that each has of its own (about -0.7), or a
       shared feature that turned (-1), no feature of one model.
    4. It carries something: a least share of what parts the models. A dedicated
       latent with nothing to say fires now and then on noise, where it is of course
       missing in the other model too.

    A latent whose scaling is undefined is not specific: nothing was seen that would
    say so.
    """
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


def specific_to_after(dictionary: Dictionary, stream: Stream) -> list[int]:
    """The latents that are specific to the after model, from a pass over the stream that tells
    nothing else.
    """
    scaling = ScalingAccumulator(dictionary, stream)
    accumulate(dictionary, stream, [scaling])
    norms = _weights(dictionary, stream.models)["relative_norm"]
    kinds = specific_latents(dictionary.config.partition, norms, scaling.result())
    return [int(one) for one in np.flatnonzero(kinds == "after")]


@dataclass(frozen=True, kw_only=True)
class LatentTable:
    """`table`: see the module; its metadata (`forensics.latents`) says on what it rests."""

    table: pa.Table
    contrasts: tuple[ContrastResult, ...]
    scaling: LatentScaling

    def __repr__(self) -> str:
        return f"LatentTable({self.table.num_rows} x {', '.join(self.table.column_names)})"

    def column(self, name: str) -> np.ndarray:
        """A column `[latents]`; numbers as float64 with NaN for null."""
        found: np.ndarray = self.table.column(name).to_numpy()
        return found

    def specific(self, model: str = "after") -> np.ndarray:
        """The latents that are specific to `after` or `before`, the most active first."""
        chosen = np.flatnonzero(self.column("specific") == model)
        ordered: np.ndarray = chosen[np.argsort(-self.column("mean")[chosen], kind="stable")]
        return ordered

    def with_column(self, name: str, values: np.ndarray) -> "LatentTable":
        """The table with a column more `[latents]`; NaN becomes null."""
        return replace(self, table=self.table.append_column(name, _array(values)))

    def write(self, path: Path) -> None:
        """As Parquet, atomically."""
        with whole_file(path, self.table.schema) as writer:
            writer.write_table(self.table)


class TopToken(NamedTuple):
    """A token on which a latent is active; `text`: its index in the stream's."""

    text: int
    position: int
    value: float


class TopTokens:
    """Accumulator of each latent's list.

    `values`, `text` (index), `position` `[latents, number]`, largest first;
    minus infinity and -1 where a list is not full.
    """

    def __init__(self, dictionary: Dictionary, number: int = NUMBER) -> None:
        shape = dictionary.config.partition.latents, number
        self.values = np.full(shape, -np.inf, np.float32)
        self.text, self.position = np.full((2, *shape), -1, np.int32)

    def add(self, encoded: EncodedBlock) -> None:
        codes, rows = encoded.codes, encoded.rows
        row, latent = codes.row.cpu().numpy(), codes.latent.cpu().numpy()
        value = codes.value.float().cpu().numpy()
        some = value >= self.values[latent, -1]
        row, latent, value = row[some], latent[some], value[some]
        touched = np.unique(latent)
        old = np.isfinite(self.values[touched])
        latent = np.concatenate([touched.repeat(old.sum(1)), latent])
        value = np.concatenate([self.values[touched][old], value])
        text = np.concatenate([self.text[touched][old], rows.text[row]])
        position = np.concatenate([self.position[touched][old], rows.position[row]])
        order = np.lexsort((position, text, -value, latent))
        rank = np.arange(len(order)) - np.searchsorted(latent[order], latent[order])
        kept = rank < self.values.shape[1]
        best, place = order[kept], (latent[order[kept]], rank[kept])
        self.values[place], self.text[place] = value[best], text[best]
        self.position[place] = position[best]

    def of(self, latent: int) -> list[TopToken]:
        """The list of one latent."""
        lists = (self.text[latent], self.position[latent], self.values[latent])
        entries = map(TopToken, *(one.tolist() for one in lists))
        return [entry for entry in entries if entry.value > -np.inf]


@dataclass(frozen=True, kw_only=True)
class LatentStudy:
    """Everything that one pass says of a dictionary on a stream."""

    table: LatentTable
    top: TopTokens
    quality: Quality


def latent_table(
    dictionary: Dictionary,
    stream: Stream,
    contrast: Contrast | Sequence[Contrast] = (),
    specific: SpecificConfig | None = None,
) -> LatentTable:
    """The table of latents. `q_value` belongs to the first contrast, adjusted
    over all latents and contrasts.
    """
    return study_latents(dictionary, stream, contrast, specific).table


def study_latents(
    dictionary: Dictionary,
    stream: Stream,
    contrast: Contrast | Sequence[Contrast] = (),
    specific: SpecificConfig | None = None,
) -> LatentStudy:
    """Table, top tokens and quality in one pass over the stream."""
    specific = specific or SpecificConfig()
    contrasts = (contrast,) if isinstance(contrast, Contrast) else tuple(contrast)
    activity = Activity(dictionary, known_groups(stream.texts))
    scaling = ScalingAccumulator(dictionary, stream)
    sums = ContrastAccumulator(dictionary, stream.texts, contrasts)
    top, quality = TopTokens(dictionary), QualityAccumulator(dictionary, stream)
    accumulate(dictionary, stream, [activity, scaling, sums, top, quality])
    scaled, results = scaling.result(), sums.results()
    columns = _weights(dictionary, stream.models) | scaled.columns() | activity.columns()
    for result in results:
        columns |= result.columns()
    columns["q_value"] = results[0].q_value if results else np.full(len(dictionary.bias), np.nan)
    columns["specific"] = specific_latents(
        dictionary.config.partition, columns["relative_norm"], scaled, specific
    )
    about = {
        "stream": stream.identity,
        "site": stream.site,
        "rows": activity.rows,
        "texts": len(stream.texts),
        "task_groups": scaled.groups,
        "interval_level": LEVEL,
        "specific": vars(specific),
        "rows_of": activity.rows_of,
        "contrasts": {result.name: {"tasks": result.tasks} for result in results},
        "version": code_version(),
    }
    table = pa.table({name: _array(values) for name, values in columns.items()})
    table = table.replace_schema_metadata({"forensics.latents": json.dumps(about, sort_keys=True)})
    return LatentStudy(
        table=LatentTable(table=table, contrasts=results, scaling=scaled),
        top=top,
        quality=quality.result(),
    )


def _weights(dictionary: Dictionary, models: int) -> dict[str, np.ndarray]:
    part = dictionary.config.partition
    directions = dictionary.directions(models)[:, [0, models - 1]].double()
    norms = directions.norm(dim=-1).cpu().numpy()
    cosine = torch.einsum("lw,lw->l", directions[:, 0], directions[:, 1]).cpu().numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = 0.5 * ((norms[:, 1] - norms[:, 0]) / norms.max(1) + 1)
        cosine = cosine / norms.prod(1)
    return {
        "latent": np.arange(part.latents),
        "partition": np.array([part.name(i) for i in range(part.latents)], object),
        "relative_norm": relative,
        "decoder_cosine": cosine,
        "norm_before": norms[:, 0],
        "norm_after": norms[:, 1],
    }


def _array(values: np.ndarray) -> pa.Array:
    """Strings, integers, or float64 with null for what is not a finite number."""
    if values.dtype == object:
        return pa.array(values.tolist(), pa.string())
    if values.dtype.kind in "iu":
        return pa.array(values, pa.int32())
    return pa.array(values.astype(float), pa.float64(), mask=~np.isfinite(values))


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
