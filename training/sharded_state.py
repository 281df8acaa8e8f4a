"""The state of a run whose weights are sharded (FSDP2): each process writes and reads its own.

1. A process writes the rows that it holds of every weight and moment, into a file of its own.
   A tensor that is not sharded is written by the first process.
2. `shards.json`, written by the first process when all files are there, says of every tensor
   its whole shape, and which file holds its rows from which one on.
3. A process that goes on reads the rows that it holds now, wherever they lie. Rows of
   a tensor are one stretch of it (FSDP2 shards the first dimension), so none is gathered.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from forensics.policies import SHARDS, TensorPlace, sharded_tensors
from forensics.records import write_json
from training.distributed import Process
from training.tensor_file import stream_tensors

Like = Callable[[torch.Tensor], torch.Tensor]  # what is saved, spread as the given tensor is


def is_sharded(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "device_mesh")


def write_shards(
    target: Path, groups: Mapping[str, Mapping[str, torch.Tensor]], process: Process
) -> None:
    """Write this process's rows of the tensors of every group into the folder `target`, which
    all processes see; the index is there when it returns on the first one.
    """
    process.wait()  # the folder is there, and what was in it is gone
    mine = {
        name: tensor
        for tensors in groups.values()
        for name, tensor in tensors.items()
        if is_sharded(tensor) or process.first
    }
    file = f"shard-{process.rank:05d}-of-{process.size:05d}.safetensors"
    local = {name: _local(tensor) for name, tensor in mine.items()}
    stream_tensors(target / file, local, torch.Tensor.contiguous)
    firsts = process.to_first((file, {name: _first_row(one) for name, one in mine.items()}))
    if process.first:
        index = {
            group: {
                name: {
                    "shape": list(tensor.shape),
                    "parts": [[part, rows[name]] for part, rows in firsts if name in rows],
                }
                for name, tensor in tensors.items()
            }
            for group, tensors in groups.items()
        }
        write_json(target / SHARDS, index)


def read_shards(state: Path, group: str) -> dict[str, Like]:
    """How to read each tensor of a group. Raises `UserError` for a state that is not whole."""
    return {place.name: partial(_read, place) for place in sharded_tensors(state, group)}


def _read(place: TensorPlace, like: torch.Tensor) -> torch.Tensor:
    if not is_sharded(like):
        return _rows(place, 0, None).to(like.device)
    from torch.distributed.tensor import DTensor

    assert isinstance(like, DTensor)
    first = _first_row(like)
    local = _rows(place, first, first + _local(like).shape[0]).to(like.device)
    return DTensor.from_local(
        local,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def _rows(place: TensorPlace, start: int, stop: int | None) -> torch.Tensor:
    """Rows of a tensor (a number has none, and is read whole), from the files that hold them."""
    if not place.shape:
        return _slice(place.parts[0], ...)
    found, at = [torch.empty((0, *place.shape[1:]), dtype=getattr(torch, place.dtype_name))], 0
    for part in place.parts:
        rows = part.shape[0]
        begin, end = max(start - at, 0), rows if stop is None else min(stop - at, rows)
        if begin < end:
            found.append(_slice(part, slice(begin, end)))
        at += rows
    return torch.cat(found)


def _slice(part: TensorPlace, rows: Any) -> torch.Tensor:
    with safe_open(part.file, framework="pt") as file:
        if rows is ...:
            return torch.as_tensor(file.get_tensor(part.name)).clone()
        return torch.as_tensor(file.get_slice(part.name)[rows])


def _local(tensor: torch.Tensor) -> torch.Tensor:
    value: Any = tensor.detach()
    local: torch.Tensor = value.to_local() if is_sharded(tensor) else value
    return local


def _first_row(tensor: Any) -> int:
    """The first of the rows that this process holds: FSDP2 deals them out as `torch.chunk`."""
    if not is_sharded(tensor):
        return 0
    from torch.distributed.tensor import Shard

    assert tuple(tensor.placements) == (Shard(0),), "FSDP2 shards the first dimension"
    mesh, rows = tensor.device_mesh, tensor.shape[0]
    each = -(-rows // mesh.size())
    first = min(mesh.get_local_rank() * each, rows)
    assert _local(tensor).shape[0] == min(each, rows - first)
    return int(first)
