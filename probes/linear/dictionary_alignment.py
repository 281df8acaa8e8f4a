"""How a probe lies to the directions of a dictionary that `forensics diff` saved:
what its latents write into the after model.

Only the files are read (`dictionary/cfg.json`,
`dictionary/sae_weights.safetensors`): a crosscoder of two models, whose latents
lie in the order before-only, shared, after-only. One scale holds for all
activations, so cosines need no units.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies import read_object
from probes.linear.probe_data import ProbeData
from probes.linear.probe_evaluation import null_directions
from probes.linear.probe_fit import (
    train_probe,
)

Floats = np.ndarray
FOLDER: Final = "dictionary"
CONFIG: Final = "cfg.json"
WEIGHTS: Final = "sae_weights.safetensors"
FORMAT: Final = "policy-forensics-dictionary"
VERSION: Final = 1
CURE: Final = "give the folder that `forensics diff` wrote for this pair"


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """`cosines [directions]`; `p_value` of the largest of them in size, `None`
    without null directions to hold it against.
    """

    cosines: Floats
    p_value: float | None


def alignment(direction: Floats, directions: Floats, nulls: Floats | None = None) -> Alignment:
    """Cosines of a probe's direction with others, such as the decoders of a
    dictionary.

    `direction [features]`, `directions [others, features]`. `nulls [shuffles,
    features]`: directions of probes fitted to shuffled labels on the same
    activations. They share the activations' uneven spread, so they are the
    null; a direction drawn evenly over the sphere would flatter every cosine. A
    cosine is not a cause: steer along it. Raises `UserError` where the widths
    differ.
    """
    wide = np.atleast_2d(np.asarray(directions, np.float64))
    if wide.shape[1] != len(direction):
        raise UserError(
            f"directions of width {wide.shape[1]} do not go with a probe of width {len(direction)};"
            " read both at the same site"
        )
    cosines = _cosines(np.atleast_2d(direction), wide)[0]
    if nulls is None:
        return Alignment(cosines=cosines, p_value=None)
    beaten = np.abs(_cosines(np.atleast_2d(nulls), wide)).max(1) >= np.abs(cosines).max()
    return Alignment(cosines=cosines, p_value=float((1 + beaten.sum()) / (1 + len(beaten))))


def _cosines(first: Floats, second: Floats) -> Floats:
    """`[first, second]`; 0 with a direction of length 0."""
    lengths = np.linalg.norm(first, axis=1)[:, None] * np.linalg.norm(second, axis=1)
    cosines: Floats = np.divide(
        first @ second.T, lengths, out=np.zeros_like(lengths), where=lengths > 0
    )
    return cosines


@dataclass(frozen=True, kw_only=True)
class Decoders:
    """`directions [latents, features]` of the after model at `site`; `first`:
    the number of the first latent.
    """

    site: str
    first: int
    directions: np.ndarray


@dataclass(frozen=True, kw_only=True)
class LatentAlignment:
    """How a probe lies to the decoders at `site`: the `nearest` latents with
    their cosines, the largest in size first.

    `p_value`: of the largest, against probes of shuffled labels.
    """

    site: str
    nearest: tuple[tuple[int, float], ...]
    p_value: float | None


def read_decoders(folder: Path, policy: str) -> Decoders:
    """`policy`: the content hash of the checkpoint after training. Raises
    `UserError` for a diff of another one.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    place = folder.expanduser() / FOLDER
    if not (place / CONFIG).is_file():
        raise UserError(f"{folder} holds no {FOLDER}/{CONFIG}; {CURE}")
    content = read_object(place / CONFIG)
    if (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise UserError(
            f"{place / CONFIG} is not that of a dictionary of ours in version {VERSION}; {CURE}"
        )
    about = content.get("metadata")
    if not isinstance(about, dict):
        raise UserError(f"{place / CONFIG} does not say which checkpoints it is of; {CURE}")
    if about.get("after") != policy:
        raise UserError(
            f"the diff in {folder} is of another checkpoint ({about.get('after')}) than the policy "
            f"({policy}); {CURE}"
        )
    try:
        tensors = load_file(place / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{place / WEIGHTS} cannot be read as safetensors ({error}); copy or save it again"
        ) from None
    try:
        first, directions = _directions(content["dictionary"], tensors)
        return Decoders(site=str(about["site"]), first=first, directions=directions)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{place} does not hold a dictionary of two models ({error}); {CURE}"
        ) from None


def _directions(config: dict[str, Any], tensors: dict[str, Any]) -> tuple[int, np.ndarray]:
    """The after model's own rows, behind the shared ones where these are tied.
    Raises `KeyError`, `ValueError`.
    """
    if config["models"] != 2:
        raise ValueError(f"it speaks of {config['models']} models")
    part = config["partition"]
    rows = [tensors["decoders.1"]]
    if part["tied"]:
        rows.insert(0, tensors["tied_decoder"])
    directions = np.concatenate(rows).astype(np.float64)
    if (
        directions.shape != (part["latents"] - part["before_only"], config["width"])
        or not np.isfinite(directions).all()
    ):
        raise ValueError("its decoders are not what its configuration says")
    return int(part["before_only"]), directions


def latent_alignment(
    readings: ProbeData, decoders: Decoders, *, shuffles: int, seed: int, most: int = 3
) -> LatentAlignment:
    """A probe of all rows at the decoders' site against them. Raises
    `UserError` where widths or labels do not fit.
    """
    probe = train_probe(readings.activations[decoders.site], readings.labels)
    nulls = null_directions(readings, decoders.site, shuffles, seed=seed) if shuffles else None
    lies: Alignment = alignment(probe.direction, decoders.directions, nulls)
    order = np.argsort(-np.abs(lies.cosines), kind="stable")[:most]
    return LatentAlignment(
        site=decoders.site,
        p_value=lies.p_value,
        nearest=tuple((decoders.first + int(i), float(lies.cosines[i])) for i in order),
    )
