"""Where tensors lie in safetensors files, from the headers alone; whole, or in parts that
several processes wrote.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.records.given_files import parse_json, read_text

PIECE: Final = 1 << 24
HEADER_LIMIT: Final = 100_000_000  # bytes, the limit of the format's own reader
SHARDS: Final = "shards.json"  # of a state that several processes wrote, each its own rows

# dtype code -> (its name, bytes a value, exponent bits; all of them set: NaN or infinite)
DTYPES: Final = {
    "F64": ("float64", 8, 0x7FF0000000000000),
    "F32": ("float32", 4, 0x7F800000),
    "F16": ("float16", 2, 0x7C00),
    "BF16": ("bfloat16", 2, 0x7F80),
    "F8_E4M3": ("float8_e4m3fn", 1, 0x7F),
    "F8_E5M2": ("float8_e5m2", 1, 0x7C),
    "I64": ("int64", 8, None),
    "I32": ("int32", 4, None),
    "I16": ("int16", 2, None),
    "I8": ("int8", 1, None),
    "U64": ("uint64", 8, None),
    "U32": ("uint32", 4, None),
    "U16": ("uint16", 2, None),
    "U8": ("uint8", 1, None),
    "BOOL": ("bool", 1, None),
}


@dataclass(frozen=True, kw_only=True)
class TensorPlace:
    """One tensor in one file: `start` and `end` are byte offsets from the file's first byte;
    or in several, its rows in the order of `parts`, and then offsets from the first part's.
    """

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    parts: tuple["TensorPlace", ...] = ()

    @property
    def dtype_name(self) -> str:
        """The dtype as numpy and torch spell it."""
        return DTYPES[self.dtype][0]


def read_header(path: Path) -> list[TensorPlace]:
    """The tensors of one file. Raises `UserError` where header and size disagree."""
    size = path.stat().st_size
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(HEADER_LIMIT, size - 8):
                raise ValueError("the header is cut off")
            header = json.loads(file.read(length))
        places = [
            _place(path, name, entry, 8 + length)
            for name, entry in header.items()
            if name != "__metadata__"
        ]
        require_contiguous(places, 8 + length, size)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error) if type(error) is ValueError else "its header cannot be read"
        raise UserError(
            f"{path} is truncated or corrupt ({reason}); copy or save the checkpoint again"
        ) from None
    return places


def _place(path: Path, name: str, entry: dict[str, Any], base: int) -> TensorPlace:
    shape = tuple(int(size) for size in entry["shape"])
    start, end = entry["data_offsets"]
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"tensor '{name}' has the unknown dtype {entry['dtype']}")
    if min(shape, default=0) < 0 or end - start != math.prod(shape) * DTYPES[entry["dtype"]][1]:
        raise ValueError(f"tensor '{name}' does not fill its place")
    return TensorPlace(
        name=name, file=path, dtype=entry["dtype"], shape=shape, start=base + start, end=base + end
    )


def require_contiguous(places: list[TensorPlace], base: int, size: int) -> None:
    """Tensors follow one another without holes up to the end of the file, as the format asks."""
    at = base
    for place in sorted(places, key=lambda place: (place.start, place.end)):
        if place.start != at:
            raise ValueError(f"tensor '{place.name}' is not where the header says")
        at = place.end
    if at != size:
        raise ValueError(f"the header promises {at} bytes, the file has {size}")


def pieces(place: TensorPlace) -> Iterator[bytes]:
    """A tensor's bytes in order, at most 16 MiB at a time."""
    for part in place.parts:
        yield from pieces(part)
    if place.parts:
        return
    with open(place.file, "rb") as file:
        file.seek(place.start)
        left = place.end - place.start
        while left:
            piece = file.read(min(PIECE, left))
            if not piece:
                raise UserError(
                    f"{place.file} became shorter while it was read; copy the checkpoint again"
                )
            left -= len(piece)
            yield piece


def sharded_tensors(directory: Path, group: str) -> list[TensorPlace]:
    """The tensors of a state that several processes wrote (`training.run_state`). Raises
    `UserError` where a file or a row is missing.
    """
    try:
        index = parse_json(read_text(directory / SHARDS, "", "copy the state again"))[group]
        files = sorted({file for one in index.values() for file, _ in one["parts"]})
        if missing := [file for file in files if not (directory / file).is_file()]:
            raise UserError(f"{directory / missing[0]} is missing; copy every file of the state")
        held = {
            file: {place.name: place for place in read_header(directory / file)} for file in files
        }
        return [
            _joined(tuple(one["shape"]), [(held[f][name], first) for f, first in one["parts"]])
            for name, one in index.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{directory / SHARDS} does not fit its files; copy the state again"
        ) from None


def _joined(shape: tuple[int, ...], rows: list[tuple[TensorPlace, int]]) -> TensorPlace:
    """One tensor of its rows. Raises `ValueError` unless all are there, in order."""
    parts = [part for part, _ in rows]
    ends = [0, *accumulate(part.shape[0] if shape else 0 for part in parts)]
    if [first for _, first in rows] != ends[:-1] or ends[-1] != (shape[0] if shape else 0):
        raise ValueError("rows are missing")
    end = sum(part.end - part.start for part in parts)
    return replace(parts[0], start=0, end=end, shape=shape, parts=tuple(parts))
