"""Weights that are not trained, held in the precision that they are multiplied in.

Under autocast a linear layer rounds its weight at each pass: for every token that is
drawn, all frozen weights are read in float32 and written in bfloat16. Held in bfloat16
they give the same numbers, bit for bit, and take half of the memory. Only weights of
linear layers are: embeddings and norms are used as they are.
"""

import copy
from collections.abc import Iterator
from typing import Any

import torch


def narrow_frozen(model: Any, dtype: torch.dtype) -> None:
    """Hold a model's frozen linear weights in `dtype`, in place; those alone that `dtype`
    holds exactly, so that a checkpoint which is saved holds the same numbers.
    """
    for weight in _linear_weights(model):
        if weight.requires_grad or dtype.itemsize >= weight.dtype.itemsize:
            continue
        narrow = weight.data.to(dtype)
        if torch.equal(narrow.to(weight.dtype), weight):
            weight.data = narrow


def frozen_copy(model: Any, dtype: torch.dtype) -> Any:
    """A copy to be compared with and never saved, its linear weights in `dtype`; there is
    never a copy in the model's own precision beside it.
    """
    narrow = {
        id(weight): torch.nn.Parameter(weight.detach().to(dtype, copy=True), requires_grad=False)
        for weight in _linear_weights(model)
    }
    return copy.deepcopy(model, narrow).requires_grad_(False)


def _linear_weights(model: Any) -> Iterator[torch.Tensor]:
    """Of every plain linear layer, but for those that an embedding shares."""
    shared = {id(one.weight) for one in model.modules() if isinstance(one, torch.nn.Embedding)}
    for one in model.modules():
        if type(one) is torch.nn.Linear and id(one.weight) not in shared:
            yield one.weight
