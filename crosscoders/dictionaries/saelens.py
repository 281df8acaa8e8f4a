"""SAELens: a crosscoder as an SAE on concatenated activations that stock
SAELens loads, and its SAEs as dictionaries.

1. Out: `torch.cat([h_before, h_after], -1)` is the input, so encoders and
   decoders are stacked along it; scale and centres are folded into weights and
   biases (`DenseWeights`). A threshold makes a `jumprelu`, ReLU a `standard`, TopK a
   `topk` SAE.
2. In: SAELens itself reads the files (older formats included); what it holds is
   taken over as a dictionary of one model, or of several where the input is
   that of several models, one after the other. A gated SAE is the JumpReLU with
   `threshold = b_mag - exp(r_mag) b_gate` exactly, since gate and magnitude
   share their directions (2404.16014). Normalisation row by row, and
   architectures that are no sum of directions, are refused: nothing here would
   mean the same.
"""

from pathlib import Path
from typing import Any, Final

import torch
from einops import rearrange
from safetensors.torch import save

from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.saved import (
    CONFIG,
    FORMAT,
    WEIGHTS,
    DenseWeights,
    SavedDictionary,
    files_key,
    from_dense,
    read_object,
    stated,
    stated_checkpoints,
    to_dense,
)
from forensics.errors import UserError
from forensics.records import write_atomically, write_json

WRITTEN_FOR: Final = "6.54.0"  # SAELens reads the version to know the format
READ: Final = ("standard", "gated", "topk", "jumprelu")


def export_saelens(
    dictionary: Dictionary, folder: Path | str, *, site: str | None = None, **metadata: Any
) -> Path:
    """Write an SAE that `sae_lens.SAE.load_from_disk(folder)` reads; its input
    is `[..., models * width]`.

    Its decoder's row splits into the models' directions the same way. Raises
    `UserError` for a dictionary that has no threshold yet.
    """
    weights, config, folder = to_dense(dictionary), dictionary.config, Path(folder)
    tensors = {
        "W_enc": rearrange(weights.encoders, "model width latent -> (model width) latent"),
        "b_enc": weights.bias,
        "W_dec": rearrange(weights.decoders, "model latent width -> latent (model width)"),
        "b_dec": rearrange(weights.centres, "model width -> (model width)"),
    }
    if weights.threshold is not None:
        if bool(weights.threshold.isnan().any()):
            raise UserError(
                "this dictionary has no threshold yet, so it encodes nothing; train it before"
                " exporting it"
            )
        tensors["threshold"] = weights.threshold
    content: dict[str, Any] = {
        "architecture": dictionary.function.saelens,
        "d_in": config.models * config.width,
        "d_sae": weights.latents,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": False,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": {
            **metadata,
            "sae_lens_version": WRITTEN_FOR,
            "hook_name": site,
            "concatenated": config.models,
        },
    }
    if dictionary.function.saelens == "topk":
        content |= {"k": config.k, "rescale_acts_by_decoder_norm": False}
    write_atomically(
        folder / WEIGHTS, save({name: tensor.contiguous() for name, tensor in tensors.items()})
    )
    write_json(folder / CONFIG, content)
    return folder


def load_saelens(folder: Path | str, models: int | None = None) -> Dictionary:
    """Any SAE of SAELens on this machine as a dictionary: `encode` and `decode`
    give what SAELens gives.

    `models`: how many models' activations its input holds, one after the other
    (one, unless it was exported from here). Raises `UserError` for what cannot
    be read, and for architectures that are no sum of directions.
    """
    from sae_lens import SAE

    folder = Path(folder)
    config = read_object(folder / CONFIG)
    kind = config.get("architecture", "standard")
    if kind not in READ:
        raise UserError(
            f"{folder} is a SAELens SAE of the kind '{kind}'; {', '.join(READ)} can be read"
        )
    normalised = config.get("normalize_activations", "none") or "none"
    if normalised != "none":
        raise UserError(
            f"{folder} normalises activations ({normalised}), so its directions are not those of"
            " the model; fold the normalisation into the weights in SAELens and save it again"
        )
    if config.get("reshape_activations", "none") != "none":
        raise UserError(
            f"{folder} reads attention heads ({config['reshape_activations']}), which has no site"
            " here"
        )
    try:
        sae: Any = SAE.load_from_disk(folder, device="cpu", dtype="float32")
    except Exception as error:  # whatever a foreign reader raises for a file that is not whole
        told = str(error).split("\n")[0]
        raise UserError(f"SAELens cannot read {folder} ({told}); copy or save it again") from error
    count = models or int(sae.cfg.metadata.get("concatenated") or 1)
    if sae.cfg.d_in % count:
        raise UserError(
            f"the input of {folder} has {sae.cfg.d_in} features, which {count} models cannot share"
        )
    weights, kind = _weights(sae, count), sae.cfg.architecture()
    if kind == "topk":
        return from_dense(weights, "topk", sae.cfg.k)
    return from_dense(weights, "relu" if kind == "standard" else "jumprelu")


def recognise(path: Path) -> SavedDictionary | None:
    """An SAE of SAELens: its `cfg.json` says how wide its input is."""
    if not (path / CONFIG).is_file():
        return None
    content = read_object(path / CONFIG)
    if content.get("format") == FORMAT or not isinstance(content.get("d_in"), int):
        return None
    metadata = content.get("metadata")
    return SavedDictionary(
        path=path,
        kind="SAELens",
        site=stated(content, "hook_name") or stated(content, "hook_point"),
        checkpoints=stated_checkpoints(content),
        key=files_key([path / CONFIG, path / WEIGHTS]),
        read=load,
        inputs=content["d_in"],
        models={**content, **(metadata if isinstance(metadata, dict) else {})}.get("concatenated"),
    )


def load(saved: SavedDictionary, width: int) -> Dictionary:
    """An SAE of one model, or of both, one after the other: told apart by the
    width of the site.
    """
    for models in (1, 2):
        if saved.inputs == models * width and saved.models in (None, models):
            return load_saelens(saved.path, models)
    told = f" of {saved.models} models" if saved.models else ""
    raise UserError(
        f"{saved.path} reads {saved.inputs} features{told} and the activations here are {width}"
        f" wide; give an SAE that reads {width} (one model) or {2 * width} (both, one after the"
        " other)"
    )


@torch.no_grad()
def _weights(sae: Any, models: int) -> DenseWeights:
    kind, encoder, decoder = sae.cfg.architecture(), sae.W_enc.detach(), sae.W_dec.detach()
    threshold = sae.threshold.detach() if kind == "jumprelu" else None
    if kind == "gated":
        stretch = sae.r_mag.detach().exp()
        encoder, bias = encoder * stretch, sae.b_mag.detach()
        threshold = bias - stretch * sae.b_gate.detach()
    else:
        bias = sae.b_enc.detach()
    if sae.cfg.apply_b_dec_to_input:
        bias = bias - sae.b_dec.detach() @ encoder
    if kind == "topk" and sae.cfg.rescale_acts_by_decoder_norm:
        norm = decoder.norm(dim=-1)
        encoder, bias, decoder = encoder * norm, bias * norm, decoder / norm[:, None]
    return DenseWeights(
        encoders=rearrange(encoder, "(model width) latent -> model width latent", model=models),
        bias=bias,
        decoders=rearrange(decoder, "latent (model width) -> model latent width", model=models),
        centres=rearrange(sae.b_dec.detach(), "(model width) -> model width", model=models),
        threshold=threshold,
    )
