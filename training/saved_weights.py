"""A model's weights as its checkpoint holds them: under the plain model's names,
in the precision that they were trained in, a tied weight once.

Whether a folder that was saved holds the weights of a model is asked of its bytes:
names of files, steps and times say nothing of it.
"""

from pathlib import Path
from typing import Any

import torch

from forensics.policies import TensorPlace, own_tensors, pieces, saved_weights, trained_tensors


def checkpoint_tensors(
    model: Any, dtype: torch.dtype | None, keep: bool
) -> tuple[dict[str, torch.Tensor], bool]:
    """What a checkpoint of the model is written from, on the CPU, and whether an
    adapter has parted weights that were tied.

    `dtype`: of all floating-point weights (`None`: each in its own). Names of one
    weight share one tensor. Weights that are sharded are gathered one at a time,
    which every process takes part in; only one that is to `keep` them holds more
    than one.
    """
    made: dict[tuple[int, str], torch.Tensor] = {}
    found: dict[str, torch.Tensor] = {}
    for weight in saved_weights(model):
        if weight.key not in made:
            value = whole(weight.value())
            kind = dtype if dtype is not None and value.is_floating_point() else value.dtype
            made[weight.key] = value.to("cpu", kind) if keep else value.new_empty(0)
        found[weight.name] = made[weight.key]
    parted = len({number for number, _ in made}) < len(made)
    return found, parted


def whole(value: torch.Tensor) -> torch.Tensor:
    """A tensor, gathered where it is sharded."""
    gather = getattr(value.detach(), "full_tensor", None)
    return (gather() if gather else value.detach()).contiguous()


def difference(model: Any, folder: Path) -> str | None:
    """Where the weights saved in `folder` (a checkpoint, an adapter, or a state of
    ours) are not those of `model`, in one sentence; `None` where every one is, bit
    for bit. Raises `UserError` for files that cannot be read.
    """
    live = {_plain_name(name): tensor.detach for name, tensor in own_tensors(model)}
    live |= {_plain_name(weight.name): weight.value for weight in saved_weights(model)}
    for place in trained_tensors(folder):
        value = live.get(_plain_name(place.name))
        if value is None:
            return f"The folder holds a weight '{place.name}' that the trained model has not."
        tensor = value()
        kind = str(tensor.dtype).removeprefix("torch.")
        if kind != place.dtype_name:
            return (
                f"The weight '{place.name}' was saved in {place.dtype_name} and trained in {kind},"
                " so the folder holds another policy; leave save_dtype out of [compute]."
            )
        if tuple(tensor.shape) != place.shape or not _equal(tensor, place):
            return f"The weight '{place.name}' in the folder is not the trained model's."
    return None


def _plain_name(name: str) -> str:
    """A weight's name without what wrappers put around it."""
    name = name.removeprefix("module.").removeprefix("base_model.model.")
    return name.replace(".default.", ".")


def _equal(tensor: torch.Tensor, place: TensorPlace) -> bool:
    here = tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data
    at = 0
    for piece in pieces(place):
        if here[at : at + len(piece)] != piece:
            return False
        at += len(piece)
    return True
