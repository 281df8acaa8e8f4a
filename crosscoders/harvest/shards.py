"""One file of a cache: rows of a range of texts at every site, as safetensors (never a pickle).

A shard is written beside its place, flushed and renamed, so that a crash leaves a whole shard or none. What is read
back is a block of neighbouring rows, which costs one contiguous read.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from crosscoders.activations import Block, Rows
from crosscoders.harvest.stream import Sites
from forensics.errors import UserError
from forensics.records.files import as_user_error

COLUMNS = tuple(vars(Rows.blank(0)))
AGAIN = "harvest into the same folder again with resume, which makes that shard anew and keeps the others"


def write_shard(path: Path, sites: Sequence[str], found: Sites, rows: Rows) -> int:
    """Write a shard; gives its size in bytes. A full disk is a `UserError`."""
    tensors = {_name(i): found[site].cpu().contiguous() for i, site in enumerate(sites)}
    tensors |= {name: torch.from_numpy(column.copy()) for name, column in vars(rows).items()}
    draft = path.with_name(f".{path.name}.draft")
    try:
        save_file(tensors, draft)
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise as_user_error(error, path) from error
    except SafetensorError as error:
        draft.unlink(missing_ok=True)
        raise UserError(f"{path.name} cannot be written ({error}); free some space and resume") from error
    return path.stat().st_size


def read_part(path: Path, site: int, first: int, last: int, device: str) -> Block:
    """Rows `first` to `last` of a shard, at the site of that number. Raises `UserError` where it is cut short."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            activations = file.get_slice(_name(site))[first:last]
            columns = {name: file.get_slice(name)[first:last].numpy() for name in COLUMNS}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}); {AGAIN}") from error
    return Block(activations=activations.to(device), rows=Rows(**columns))


def require_whole(path: Path, size: int) -> None:
    """Raises `UserError` where a shard is missing or has another size than was written."""
    found = path.stat().st_size if path.is_file() else None
    if found != size:
        state = "is missing" if found is None else f"has {found} bytes of {size}"
        raise UserError(f"{path} {state}; {AGAIN}")


def _name(site: int) -> str:
    return f"activations.{site}"
