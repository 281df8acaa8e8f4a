"""A checksum that a Parquet file carries inside, over every byte of it.

1. The writer leaves a place in the file's own metadata, under `KEY`: `MARK` and
   `DIGITS` zeros. Other tools read the file as ever.
2. The whole file is hashed so, and the digits are written over the zeros
   (`seal`), before the file gets its name.
3. `require_whole` hashes it again with zeros there. One changed byte anywhere is
   refused by the file's name: also one in `KEY` or in `MARK`, because the other
   still says that there is a checksum.

A file of a version before this carries none. It is read all the same, and that it
carries none is said once for its folder.
"""

import logging
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from forensics.errors import changed
from forensics.records.record import FileState, file_state

KEY: Final = b"forensics.checksum"
MARK: Final = b"forensics-blake2b:"
DIGITS: Final = 32
BETWEEN: Final = 2  # bytes of the format between a name and its value: their kind and length
TAIL: Final = 1 << 20  # the metadata stands last
BLOCK: Final = 1 << 20
PLACE: Final = {KEY.decode(): MARK.decode() + "0" * DIGITS}

_told: set[Path] = set()


def seal(path: Path) -> None:
    """Write the checksum of a file into its place."""
    place = _place(path)
    assert place is not None, f"{path} has no place for a checksum"
    digits = _digits(path, place)
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(digits)


def require_whole(path: Path) -> bool:
    """Whether a file carries a checksum, which then is right. Raises `OutsideFailure` where it
    is wrong, and `OSError` where the file cannot be read.

    A file is read for it once in a process, for as long as its size and its time stay.
    """
    return _is_whole(path, file_state(path))


@lru_cache(maxsize=100_000)
def _is_whole(path: Path, _: FileState) -> bool:
    place = _place(path)
    if place is not None and _digits(path, place) != _stated(path, place):
        raise changed(path)
    return place is not None


def tell_unchecked(path: Path) -> None:
    """Say once for its folder that stored runs carry no checksum."""
    if path.parent not in _told:
        _told.add(path.parent)
        logging.getLogger("forensics").warning(
            "The runs stored in %s carry no checksum (an earlier version stored them), so a byte"
            " that was changed in them since may go unnoticed.",
            path.parent,
        )


def source(path: Path) -> Any:
    """A path as pyarrow takes it, which takes none that is no UTF-8 text: then what it holds."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return pa.BufferReader(path.read_bytes())
    return path


def _place(path: Path) -> int | None:
    """Where the digits stand, `None` where a file carries no checksum. Raises `OutsideFailure`
    where what says so is damaged.
    """
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        start = file.seek(max(size - TAIL, 0))
        tail = file.read()
    key, mark = tail.rfind(KEY), tail.rfind(MARK)
    if key < 0 and mark < 0:
        return None
    if key < 0 or mark != key + len(KEY) + BETWEEN:
        if _is_said(path):
            raise changed(path)
        return None  # the words stand in a run's text
    return start + mark + len(MARK)


def _is_said(path: Path) -> bool:
    """Whether the metadata says that there is a checksum, by its name or by its value."""
    try:
        said = pq.read_metadata(source(path)).metadata or {}
    except (pa.ArrowException, OSError):
        return True
    return KEY in said or any(value.startswith(MARK) for value in said.values())


def _stated(path: Path, place: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(place)
        return file.read(DIGITS)


def _digits(path: Path, place: int) -> bytes:
    """The digits of a file's hash, with zeros where they stand."""
    digest = blake2b(digest_size=DIGITS // 2)
    with open(path, "rb") as file:
        left = place
        while left and (block := file.read(min(left, BLOCK))):
            digest.update(block)
            left -= len(block)
        digest.update(b"0" * DIGITS)
        file.seek(place + DIGITS)
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest().encode()
