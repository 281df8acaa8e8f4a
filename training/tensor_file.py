"""A safetensors file written one tensor at a time.

A state holds every trained weight and two moments of it. The format's own writer wants
them all at once in the memory of the host, 91 GB for seven billion parameters; here each is
copied, written and let go. The bytes are those that the format's own writer gives.
"""

import json
from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}


def stream_tensors(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    whole: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Write tensors, each as `whole` gives it."""
    kinds = list(CODES)  # in the order of the format
    names = sorted(tensors, key=lambda name: (kinds.index(tensors[name].dtype), name))
    with path.open("wb") as file:
        file.write(_header({name: tensors[name] for name in names}))
        for name in names:
            plain = whole(tensors[name]).detach().cpu().contiguous().reshape(-1)
            file.write(plain.view(torch.uint8).numpy().data)


def _header(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Name, type, shape and place of each, in order, filled up to 8 bytes."""
    ends = list(accumulate(one.numel() * one.element_size() for one in tensors.values()))
    places: dict[str, Any] = {
        name: {"dtype": CODES[one.dtype], "shape": list(one.shape), "data_offsets": [start, end]}
        for (name, one), start, end in zip(tensors.items(), [0, *ends], ends, strict=False)
    }
    text = json.dumps(places, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
