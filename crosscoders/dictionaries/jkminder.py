"""Crosscoders of dictionary_learning (jkminder's and science-of-finetuning's
fork) as dictionaries of ours.

Theirs, from the source of the fork: `encoder.weight [layers, width, latents]`,
`encoder.bias`, `decoder.weight [layers, latents, width]` (or
`decoder.layers.M.weight`), `decoder.bias [layers, width]`, `f = relu(sum_l x_l
W_l + b)`, and for the BatchTopK kind `f` counts where `f * norm > threshold`,
with one threshold and the decoder's norms by `code_normalization`. Newer ones
hold `activation_mean`, `activation_std` and `activation_global_scale`: `x` is
normalised first and the reconstruction back.

1. Their one threshold over scaled codes is ours for each latent, divided by
   that latent's norm.
2. Their normalisation is folded into the weights, so directions are those of
   raw activations. Theirs has a scale for each model: relative norms of ours
   are in the models' own units and differ from theirs.
3. A folder's safetensors file is read; `ae.pt` is a pickle and is refused.
"""

from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.saved import (
    CONFIG,
    DenseWeights,
    SavedDictionary,
    files_key,
    from_dense,
    read_object,
    read_tensors,
)
from forensics.errors import UserError

NORMALISATIONS: Final = {
    1: "CROSSCODER",
    2: "SAE",
    3: "MIXED",
    4: "NONE",
    5: "DECOUPLED",
}  # their enumeration
NEVER_SET: Final = 0.0  # their threshold is -1 until it is trained
SMALL: Final = 1e-8  # theirs, beside a scale that they divide by
Tensors = dict[str, Tensor]


def load_dictionary_learning(path: Path | str) -> Dictionary:
    """A `CrossCoder` or `BatchTopKCrossCoder` of dictionary_learning: a folder
    or a file of weights.

    Encodes and decodes as theirs does with its threshold (BatchTopK without a
    trained one stays without). Raises `UserError` for files that are not whole
    or not such a crosscoder, for a pickle, and for decoupled codes, which have another value
    for each model.
    """
    place = Path(path)
    tensors = {  # without what `torch.compile` puts before a name
        name.removeprefix("_orig_mod."): tensor for name, tensor in _read(place).items()
    }
    for name in ("encoder.weight", "encoder.bias", "decoder.bias"):
        if name not in tensors:
            raise UserError(f"{path} has no {name}, so it is no crosscoder of dictionary_learning")
    if tensors["encoder.weight"].dim() != 3:
        raise UserError(
            f"{path} has one encoder and no layers; it is a sparse autoencoder, not a crosscoder"
        )
    config = (place if place.is_dir() else place.parent) / "config.json"
    settings = read_object(config) if config.is_file() else {}
    if isinstance(settings.get("trainer"), dict):
        settings |= settings["trainer"]
    decoders = _decoders(tensors)
    encoders, indices = tensors["encoder.weight"].float(), settings.get("encoder_layers_indices")
    if indices is not None and len(encoders) != len(decoders):  # the other layers are not read
        read, encoders = encoders, encoders.new_zeros((len(decoders), *encoders.shape[1:]))
        encoders[indices] = read
    if "code_normalization_id" in tensors:
        kind = NORMALISATIONS.get(int(tensors["code_normalization_id"]), "unknown")
    else:
        kind = str(settings.get("code_normalization") or "CROSSCODER").upper()
    norms = code_norms(place, decoders, kind, settings)
    threshold = tensors.get("threshold")
    if threshold is not None:  # a latent without a decoder is never active
        known = float(threshold.min()) >= NEVER_SET
        threshold = torch.where(norms > 0, float(threshold) / norms, torch.inf) if known else None
    weights = in_raw_units(
        DenseWeights(
            encoders=encoders,
            bias=tensors["encoder.bias"].float(),
            decoders=decoders,
            centres=tensors["decoder.bias"].float(),
            threshold=threshold,
        ),
        tensors,
        settings,
    )
    if "threshold" not in tensors:
        return from_dense(weights, "relu")
    return from_dense(weights, "batchtopk", int(tensors["k"]))


def recognise(path: Path) -> SavedDictionary | None:
    """Weights without our configuration or that of SAELens."""
    files = [] if (path / CONFIG).is_file() else _weight_files(path)
    if not files:
        return None
    return SavedDictionary(
        path=path,
        kind="dictionary_learning",
        site=None,
        checkpoints=None,
        key=files_key(files[:1]),
        read=load,
    )


def load(saved: SavedDictionary, width: int) -> Dictionary:
    """A crosscoder of theirs; it has a width of its own."""
    return load_dictionary_learning(saved.path)


def _weight_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [*sorted(path.glob("*.safetensors")), *sorted(path.glob("*.pt"))]


def _read(path: Path) -> Tensors:
    """The tensors of a file, or of the one file of weights in a folder."""
    if path.is_dir():
        files = _weight_files(path)
        if not files:
            raise UserError(
                f"{path} holds no weights (*.safetensors or ae.pt); give the folder of a crosscoder"
            )
        path = files[0]
    if path.suffix != ".safetensors":
        raise UserError(f"{path} is a pickle; convert it to safetensors")
    return read_tensors(path)


def _decoders(tensors: Tensors) -> Tensor:
    """`[layers, latents, width]`, whichever way they were stored."""
    if "decoder.weight" in tensors:
        return tensors["decoder.weight"].float()
    layers = len(tensors["decoder.bias"])
    return torch.stack(
        [tensors[f"decoder.layers.{layer}.weight"].float() for layer in range(layers)]
    )


def code_norms(path: Path, decoders: Tensor, kind: str, settings: dict[str, Any]) -> Tensor:
    """What a latent's value is multiplied by before it is held against the
    threshold, `[latents]`.
    """
    summed: Tensor = decoders.norm(dim=2).sum(dim=0)
    joint: Tensor = decoders.pow(2).sum(dim=(0, 2)).sqrt()
    if kind == "MIXED":
        own, cross = (
            float(settings.get(f"code_normalization_alpha_{part}", at))
            for part, at in (("sae", 1.0), ("cc", 0.1))
        )
        return joint * own + summed * cross
    kinds = {"CROSSCODER": summed, "SAE": joint, "NONE": torch.ones_like(summed)}
    if kind not in kinds:
        raise UserError(
            f"{path} has codes of the kind {kind}; {', '.join(kinds)} and MIXED have one value for"
            " all models and can be read"
        )
    return kinds[kind]


def in_raw_units(weights: DenseWeights, tensors: Tensors, settings: dict[str, Any]) -> DenseWeights:
    """Fold their normalisation of activations into the weights."""
    mean, spread = tensors.get("activation_mean"), tensors.get("activation_std")
    if mean is None or spread is None or bool(mean.isnan().any() | spread.isnan().any()):
        return weights
    mean, spread = mean.float(), spread.float()
    if settings.get("keep_relative_variance", True):
        scale = tensors["activation_global_scale"].float()[:, None].expand_as(mean)
        back = 1 / (scale + SMALL)
    else:
        back = spread + SMALL
        scale = 1 / back
    encoders = weights.encoders * scale[:, :, None]
    return DenseWeights(
        encoders=encoders,
        bias=weights.bias - torch.einsum("mw,mwl->l", mean, encoders),
        decoders=weights.decoders * back[:, None],
        centres=weights.centres * back + mean,
        threshold=weights.threshold,
    )
