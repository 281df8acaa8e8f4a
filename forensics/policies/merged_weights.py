"""A model's weights under the plain model's names, as its checkpoint holds them.

A LoRA adapter is merged here, one weight at a time and never in place: merging and
taking it out again would not give the same bits. A merged weight is as wide as
the wider of base and adapter, because an update that was trained in float32
vanishes in a bfloat16 weight.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class SavedWeight:
    """One weight under its name in the checkpoint. `key` is the same for names
    that share one weight; `value` gives the tensor, merged where it is adapted.
    """

    name: str
    key: tuple[int, str]
    value: Callable[[], torch.Tensor]


def saved_weights(model: Any) -> Iterator[SavedWeight]:
    """Every weight and saved buffer of a model, with an adapter or without."""
    plain = plain_model(model)
    adapted = {
        name: module
        for name, module in plain.named_modules()
        if hasattr(model, "peft_config") and hasattr(module, "get_delta_weight")
    }
    for name, weight in plain.state_dict(keep_vars=True).items():
        owner = next((o for o in adapted if name.startswith(f"{o}.")), None)
        if owner is None:
            yield SavedWeight(name=name, key=(id(weight), ""), value=weight.detach)
            continue
        part = name.removeprefix(f"{owner}.")
        if not part.startswith("base_layer."):
            continue  # the adapter's own
        own = f"{owner}.{part.removeprefix('base_layer.')}"
        if part == "base_layer.weight":
            yield SavedWeight(
                name=own, key=(id(weight), owner), value=_merge(weight, adapted[owner])
            )
        else:
            yield SavedWeight(name=own, key=(id(weight), ""), value=weight.detach)


def plain_model(model: Any) -> Any:
    """The model itself, without the wrapper of an adapter."""
    return model.get_base_model() if hasattr(model, "peft_config") else model


def _merge(weight: torch.Tensor, module: Any) -> Callable[[], torch.Tensor]:
    @torch.no_grad()
    def merged() -> torch.Tensor:
        total = weight.detach()
        for adapter in module.active_adapters:
            total = total + module.get_delta_weight(adapter)
        return total

    return merged


def merged_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Each weight once, in the order of names."""
    once: dict[tuple[int, str], SavedWeight] = {}
    for weight in saved_weights(model):
        once.setdefault(weight.key, weight)
    for weight in sorted(once.values(), key=lambda one: one.name):
        yield weight.name, weight.value()
