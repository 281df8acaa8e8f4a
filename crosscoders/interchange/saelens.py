"""SAELens: a crosscoder as an SAE on concatenated activations that stock SAELens loads, and its SAEs as dictionaries.

1. Out: `torch.cat([h_before, h_after], -1)` is the input, so encoders and decoders are stacked along it; scale and
   centres are folded into weights and biases (`parts`). A threshold makes a `jumprelu`, ReLU a `standard`, TopK a
   `topk` SAE.
2. In: SAELens itself reads the files (older formats included); what it holds is taken over as a dictionary of one
   model, or of several where the input is that of several models, one after the other. A gated SAE is the JumpReLU
   with `threshold = b_mag - exp(r_mag) b_gate` exactly, since gate and magnitude share their directions (2404.16014).
   Normalisation row by row, and architectures that are no sum of directions, are refused: nothing here would mean the
   same.
"""

from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save

from crosscoders.dictionary import Dictionary
from crosscoders.interchange.parts import Parts, put_together, take_apart
from crosscoders.interchange.storing import CONFIG, WEIGHTS, read_object
from forensics.errors import UserError
from forensics.records.files import write_atomically, write_json

WRITTEN_FOR: Final = "6.54.0"  # SAELens reads the version to know the format
ARCHITECTURES: Final = {"relu": "standard", "topk": "topk", "batchtopk": "jumprelu", "jumprelu": "jumprelu"}
READ: Final = ("standard", "gated", "topk", "jumprelu")


def export_saelens(dictionary: Dictionary, folder: Path | str, *, site: str | None = None, **metadata: Any) -> Path:
    """Write an SAE that `sae_lens.SAE.load_from_disk(folder)` reads; its input is `[..., models * width]`.

    Its decoder's row splits into the models' directions the same way. Raises `UserError` for a dictionary that has
    no threshold yet.
    """
    parts, config, place = take_apart(dictionary), dictionary.config, Path(folder)
    tensors = {
        "W_enc": parts.encoders.reshape(-1, parts.latents), "b_enc": parts.bias,
        "W_dec": parts.decoders.transpose(0, 1).reshape(parts.latents, -1), "b_dec": parts.centres.reshape(-1),
    }
    if parts.threshold is not None:
        if bool(parts.threshold.isnan().any()):
            raise UserError("this dictionary has no threshold yet, so it encodes nothing; train it before exporting it")
        tensors["threshold"] = parts.threshold
    told: dict[str, Any] = {
        "architecture": ARCHITECTURES[config.activation], "d_in": config.models * config.width,
        "d_sae": parts.latents, "dtype": "float32", "device": "cpu", "apply_b_dec_to_input": False,
        "normalize_activations": "none", "reshape_activations": "none",
        "metadata": {**metadata, "sae_lens_version": WRITTEN_FOR, "hook_name": site, "concatenated": config.models},
    }
    if config.activation == "topk":
        told |= {"k": config.k, "rescale_acts_by_decoder_norm": False}
    write_atomically(place / WEIGHTS, save({name: tensor.contiguous() for name, tensor in tensors.items()}))
    write_json(place / CONFIG, told)
    return place


def load_saelens(folder: Path | str, models: int | None = None) -> Dictionary:
    """Any SAE of SAELens on this machine as a dictionary: `encode` and `decode` give what SAELens gives.

    `models`: how many models' activations its input holds, one after the other (one, unless it was exported from
    here). Raises `UserError` for what cannot be read, and for architectures that are no sum of directions.
    """
    place = Path(folder)
    _require_readable(place)
    sae = _stock(place)
    count = models or int(sae.cfg.metadata.get("concatenated") or 1)
    if sae.cfg.d_in % count:
        raise UserError(f"the input of {folder} has {sae.cfg.d_in} features, which {count} models cannot share")
    parts = _parts(sae, count)
    kind = sae.cfg.architecture()
    if kind == "topk":
        return put_together(parts, "topk", sae.cfg.k)
    return put_together(parts, "relu" if kind == "standard" else "jumprelu")


def _require_readable(folder: Path) -> None:
    """Refuse by the configuration what the weights could not mend."""
    config = read_object(folder / CONFIG)
    kind = config.get("architecture", "standard")
    if kind not in READ:
        raise UserError(f"{folder} is a SAELens SAE of the kind '{kind}'; {', '.join(READ)} can be read")
    normalised = config.get("normalize_activations", "none") or "none"
    if normalised != "none":
        raise UserError(
            f"{folder} normalises activations ({normalised}), so its directions are not those of the model; fold the "
            "normalisation into the weights in SAELens and save it again"
        )
    if config.get("reshape_activations", "none") != "none":
        raise UserError(f"{folder} reads attention heads ({config['reshape_activations']}), which has no site here")


def _stock(folder: Path) -> Any:
    """The SAE as SAELens reads it."""
    from sae_lens import SAE

    try:
        return SAE.load_from_disk(folder, device="cpu", dtype="float32")
    except Exception as error:  # whatever a foreign reader raises for a file that is not whole
        told = str(error).split("\n")[0]
        raise UserError(f"SAELens cannot read {folder} ({told}); copy or save it again") from error


@torch.no_grad()
def _parts(sae: Any, models: int) -> Parts:
    """Dense tensors of a SAELens SAE, its input split into models."""
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
    latents = len(bias)
    return Parts(
        encoders=encoder.reshape(models, -1, latents), bias=bias,
        decoders=decoder.reshape(latents, models, -1).transpose(0, 1), centres=sae.b_dec.detach().reshape(models, -1),
        threshold=threshold,
    )
