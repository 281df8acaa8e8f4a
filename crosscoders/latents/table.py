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
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from crosscoders.activations.streams import Stream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.encoded_blocks import EncodedBlock, accumulate
from crosscoders.latents.latent_scale import (
    LEVEL,
    LatentScaling,
    Nu,
    ScalingAccumulator,
    Target,
)
from crosscoders.latents.reconstruction import Quality, QualityAccumulator
from crosscoders.latents.row_groups import (
    Activity,
    Contrast,
    ContrastAccumulator,
    ContrastResult,
    known_groups,
)
from forensics.errors import UserError
from forensics.records import whole_file
from forensics.version import code_version

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
       `latent_scale` for why both), and the error target is not far below 0 either.
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
