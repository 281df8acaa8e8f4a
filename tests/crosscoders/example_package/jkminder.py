"""Crosscoders of dictionary_learning (jkminder's fork): `f = relu(sum_l x_l W_l + b)`, and
for BatchTopK where `f * norm > threshold`; what `x` is normalised by is folded into the weights.
"""

import torch

from crosscoders.dictionaries import saved as ours
from forensics.errors import UserError

KINDS = {1: "CROSSCODER", 2: "SAE", 3: "MIXED", 4: "NONE", 5: "DECOUPLED"}


def recognise(path):
    if (path / ours.CONFIG).is_file() or not (files := sorted(path.glob("*.safetensors"))):
        return None
    known = {"kind": "dictionary_learning", "site": None, "checkpoints": None, "read": load}
    return ours.SavedDictionary(path=path, key=ours.files_key(files[:1]), **known)


def load(saved, width):
    tensors = ours.read_tensors(min(saved.path.glob("*.safetensors")))
    tensors = {name.removeprefix("_orig_mod."): one.float() for name, one in tensors.items()}
    config = saved.path / "config.json"
    said = ours.read_object(config) if config.is_file() else {}
    said |= said.get("trainer") or {}
    encoders = tensors.get("encoder.weight")
    if encoders is None or encoders.dim() != 3 or len(encoders) != len(tensors["decoder.bias"]):
        raise UserError(f"{saved.path} holds no crosscoder that reads all models; give another")
    bias, centres = tensors["encoder.bias"], tensors["decoder.bias"]
    decoders = tensors.get("decoder.weight")
    if decoders is None:
        layers = range(len(centres))
        decoders = torch.stack([tensors[f"decoder.layers.{layer}.weight"] for layer in layers])
    norm, limit = norms(tensors, decoders, said), tensors.get("threshold")
    activation, k = ("relu", 32) if limit is None else ("batchtopk", int(tensors["k"]))
    if limit is not None:  # it is below 0 until it is trained
        limit = torch.where(norm > 0, limit / norm, torch.inf) if limit >= 0 else None
    mean, spread = tensors.get("activation_mean"), tensors.get("activation_std")
    if mean is not None and not mean.isnan().any():
        factor = 1 / (spread + 1e-8)
        if said.get("keep_relative_variance", True):
            factor = tensors["activation_global_scale"][:, None].expand_as(mean)
        encoders = encoders * factor[:, :, None]
        bias = bias - torch.einsum("mw,mwl->l", mean, encoders)
        decoders, centres = decoders / factor[:, None], centres / factor + mean
    parts = {"encoders": encoders, "bias": bias, "decoders": decoders, "centres": centres}
    return ours.from_dense(ours.DenseWeights(**parts, threshold=limit), activation, k)


def norms(tensors, decoders, said):
    summed, joint = decoders.norm(dim=2).sum(0), decoders.square().sum((0, 2)).sqrt()
    said = {"code_normalization_alpha_sae": 1.0, "code_normalization_alpha_cc": 0.1} | said
    own, cross = (said["code_normalization_alpha_" + part] for part in ("sae", "cc"))
    found = {"CROSSCODER": summed, "SAE": joint, "NONE": torch.ones_like(joint)}
    found["MIXED"] = joint * own + summed * cross
    stated = str(said.get("code_normalization") or "CROSSCODER").upper()
    kind = (KINDS | {0: stated}).get(int(tensors.get("code_normalization_id", 0)))
    if kind not in found:
        raise UserError(f"codes of the kind {kind} have another value for each model; give others")
    return found[kind]
