"""The table of latents, one row a latent, in one pass over a stream.

1. From the weights: partition, relative decoder norm `0.5 ((|d_after| -
   |d_before|) / max + 1)` (0 before only, 1 after only), decoder cosine.
2. From the stream: latent scaling in both directions with intervals, frequency,
   mean activation over all rows and by group of rows, contrasts with p- and
   q-values.
3. `specific` by the rule in `specific`.

What could not be measured is null. Activations are in the dictionary's units: a
latent of activation `f` adds `f d / scale` to a model. Sources:
transformer-circuits 2024 (relative norm), 2504.02922 (latent scaling).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from crosscoders.activations.streams import Stream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.activity import MOST_TASKS, Activity, ContrastAccumulator, ContrastResult
from crosscoders.latents.encoding import accumulate, all_directions
from crosscoders.latents.quality import Quality, QualityAccumulator
from crosscoders.latents.row_groups import WIN, Contrast, known_groups
from crosscoders.latents.scaling import LatentScaling, ScalingAccumulator, ScalingConfig
from crosscoders.latents.specific import SpecificConfig, specific
from crosscoders.latents.tops import Tops, TopTokens
from forensics.records.files import as_user_error
from forensics.version import code_version


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """`win`: least outcome that is a win. `tasks`: most tasks in a contrast.
    `top`: top tokens a latent, with `window` tokens of context on each side.
    `reads`: the model that feeds a dictionary of one model.
    """

    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    specific: SpecificConfig = field(default_factory=SpecificConfig)
    win: float = WIN
    tasks: int = MOST_TASKS
    top: int = 10
    window: int = 10
    reads: int = -1


@dataclass(frozen=True, kw_only=True)
class LatentTable:
    """`table`: see the module; its metadata (`forensics.latents`) says on what it rests."""

    table: pa.Table
    contrasts: tuple[ContrastResult, ...]
    scaling: LatentScaling

    def column(self, name: str) -> np.ndarray:
        """A column `[latents]`; numbers as float64 with NaN for null."""
        found: np.ndarray = self.table.column(name).to_numpy()
        return found

    def specific(self, model: str = "after") -> np.ndarray:
        """The latents that are specific to `after` or `before`, the most active first."""
        chosen = np.flatnonzero(self.column("specific") == model)
        ordered: np.ndarray = chosen[np.argsort(-self.column("mean")[chosen], kind="stable")]
        return ordered

    def write(self, path: Path) -> None:
        """As Parquet, atomically."""
        draft = path.with_name(f".{path.name}.draft")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(self.table, draft, compression="zstd")
            draft.replace(path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise as_user_error(error, path) from error


@dataclass(frozen=True, kw_only=True)
class LatentStudy:
    """Everything that one pass says of a dictionary on a stream."""

    table: LatentTable
    top: Tops
    quality: Quality


def latent_table(
    dictionary: Dictionary,
    stream: Stream,
    contrast: Contrast | Sequence[Contrast] = (),
    config: TableConfig | None = None,
) -> LatentTable:
    """The table of latents. `q_value` belongs to the first contrast, adjusted
    over all latents and contrasts.
    """
    return study_latents(dictionary, stream, contrast, config).table


def study_latents(
    dictionary: Dictionary,
    stream: Stream,
    contrast: Contrast | Sequence[Contrast] = (),
    config: TableConfig | None = None,
) -> LatentStudy:
    """Table, top tokens and quality in one pass over the stream."""
    config = config or TableConfig()
    contrasts = (contrast,) if isinstance(contrast, Contrast) else tuple(contrast)
    activity = Activity(dictionary, known_groups(stream.texts, config.win))
    scaling = ScalingAccumulator(dictionary, stream, config.scaling)
    sums = ContrastAccumulator(dictionary, stream.texts, contrasts, config.tasks)
    top, quality = (
        TopTokens(dictionary, number=config.top, window=config.window),
        QualityAccumulator(dictionary, stream),
    )
    accumulate(dictionary, stream, [activity, scaling, sums, top, quality], reads=config.reads)
    scaled, results = scaling.result(), sums.results()
    columns = (
        _weights(dictionary, stream.models)
        | _scaling(scaled)
        | _activity(activity)
        | _contrasts(results)
    )
    kinds = specific(dictionary.config.partition, columns["relative_norm"], scaled, config.specific)
    table = _table(columns | {"specific": kinds}, _about(stream, activity, scaled, results, config))
    return LatentStudy(
        table=LatentTable(table=table, contrasts=results, scaling=scaled),
        top=top.result(),
        quality=quality.result(),
    )


def _weights(dictionary: Dictionary, models: int) -> dict[str, np.ndarray]:
    part = dictionary.config.partition
    directions = all_directions(dictionary, models)[:, [0, models - 1]].double()
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


def _scaling(scaling: LatentScaling) -> dict[str, np.ndarray]:
    """`nu_after` is the error target, `nu_after_reconstruction` and
    `nu_after_difference` the others; so for before.
    """
    columns: dict[str, np.ndarray] = {"share_of_difference": scaling.share}
    for side, nus in (("after", scaling.after), ("before", scaling.before)):
        for target, nu in nus.items():
            name = f"nu_{side}" if target == "error" else f"nu_{side}_{target}"
            columns |= {name: nu.estimate, f"{name}_low": nu.low, f"{name}_high": nu.high}
    return columns


def _activity(activity: Activity) -> dict[str, np.ndarray]:
    return {
        "frequency": activity.frequency,
        "mean": activity.total.cpu().numpy() / activity.rows,
        "mean_when_active": activity.mean_when_active,
        "median_when_active": activity.median_when_active,
        "largest": activity.largest.cpu().numpy().astype(float),
    } | {f"mean_{name}": activity.mean(name) for name in activity.groups}


def _contrasts(results: Sequence[ContrastResult]) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    for result in results:
        columns |= {
            f"difference_{result.name}": result.difference,
            f"effect_{result.name}": result.effect,
            f"p_value_{result.name}": result.p_value,
            f"q_value_{result.name}": result.q_value,
        }
    return columns | ({"q_value": results[0].q_value} if results else {})


def _about(
    stream: Stream,
    activity: Activity,
    scaling: LatentScaling,
    results: Sequence[ContrastResult],
    config: TableConfig,
) -> dict[str, object]:
    return {
        "stream": stream.identity,
        "site": stream.site,
        "rows": activity.rows,
        "texts": len(stream.texts),
        "task_groups": scaling.groups,
        "interval_level": config.scaling.level,
        "specific": vars(config.specific),
        "rows_of": activity.rows_of,
        "contrasts": {result.name: {"tasks": result.tasks} for result in results},
        "version": code_version(),
    }


def _table(columns: dict[str, np.ndarray], about: dict[str, object]) -> pa.Table:
    columns.setdefault(
        "q_value", np.full(len(columns["latent"]), np.nan)
    )  # no contrast was asked for
    arrays = {name: _array(values) for name, values in columns.items()}
    return pa.table(arrays).replace_schema_metadata(
        {"forensics.latents": json.dumps(about, sort_keys=True)}
    )


def _array(values: np.ndarray) -> pa.Array:
    """Strings, integers, or float64 with null for what is not a finite number."""
    if values.dtype == object:
        return pa.array(values.tolist(), pa.string())
    if values.dtype.kind in "iu":
        return pa.array(values, pa.int32())
    return pa.array(values.astype(float), pa.float64(), mask=~np.isfinite(values))
