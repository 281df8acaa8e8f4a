"""Activations that are read once and kept in a file for as long as a study runs.

A pass over a deep model costs more than everything that a dictionary does with the
rows, and a study takes a dozen passes. So both checkpoints read all texts once, into one
memory-mapped file (`rows x models x width`, in the checkpoints' own
type), and every pass and every part of the texts is taken from there.

1. `keep` writes the file, in the order of the texts; a note beside it says of what,
   once it is whole, so that a study that was cut off reads it and does not run the
   checkpoints again.
2. `part` is a stream of some of the texts, without the rows beyond the limits
   (`outlier_positions`). With a seed its rows come in one random order.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from crosscoders.activations.harvest_stream import HarvestStream
from crosscoders.activations.outlier_positions import Limits, beyond
from crosscoders.activations.streams import Block, Rows, TextNote
from crosscoders.activations.texts import TokenizedText
from forensics.progress import Progress, silent
from forensics.records import content_hash
from forensics.records.files import as_user_error, write_json

FILE, NOTE = "activations.bin", "activations.json"
MOST_OF_DISK: Final = 0.5  # of what is free
ROWS_AT_ONCE: Final = 65_536


@dataclass(frozen=True)
class KeptStream:
    """A `Stream` over rows `index` of `activations [all rows, models, width]`;
    `rows` are what is known of those at `index`.
    """

    activations: Tensor
    index: np.ndarray
    rows: Rows
    tokenized: Sequence[TokenizedText]
    site: str
    identity: str
    block: int = 4096

    @property
    def models(self) -> int:
        return self.activations.shape[1]

    @property
    def width(self) -> int:
        return self.activations.shape[2]

    @cached_property
    def texts(self) -> tuple[TextNote, ...]:
        return tuple(text.note for text in self.tokenized)

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        number = len(self.index)
        order = np.arange(number)
        if seed is not None:
            order = np.random.default_rng(seed).permutation(number)
        for first in range(0, number, self.block):
            chosen = order[first : first + self.block]
            taken = self.activations.index_select(0, torch.from_numpy(self.index[chosen]))
            yield Block(activations=taken, rows=self.rows.take(chosen))

    def part(self, texts: Sequence[TokenizedText], limits: Limits | None = None) -> "KeptStream":
        """The rows of these texts (the very objects that were kept), without outliers."""
        place = {id(text): number for number, text in enumerate(self.tokenized)}
        renumbered = np.full(len(self.tokenized), -1, dtype=np.int32)
        for number, text in enumerate(texts):
            renumbered[place[id(text)]] = number
        wanted = renumbered[self.rows.text] >= 0
        if limits is not None:
            for first in range(0, len(self.index), ROWS_AT_ONCE):
                here = slice(first, first + ROWS_AT_ONCE)
                some = self.activations.index_select(0, torch.from_numpy(self.index[here]))
                wanted[here] &= ~beyond(some, limits).numpy()
        rows = self.rows.take(wanted)
        rows = replace(rows, text=renumbered[rows.text])
        names = [text.note.id for text in texts]
        return replace(
            self,
            index=self.index[wanted],
            rows=rows,
            tokenized=tuple(texts),
            identity=content_hash([self.identity, names, limits and list(limits)]),
        )


def fits(stream: HarvestStream, folder: Path) -> bool:
    """Whether all rows of a stream fit on the folder's disk."""
    return _bytes(stream) < MOST_OF_DISK * shutil.disk_usage(folder).free


def _rows(stream: HarvestStream) -> int:
    return sum(map(len, stream.tokenized))


def _bytes(stream: HarvestStream) -> int:
    size = torch.empty((), dtype=stream.readers[0].dtype).element_size()
    return _rows(stream) * stream.models * stream.width * size


def _reserve(file: Path, size: int) -> None:
    """Take the place on the disk at once: a page of a mapped file that finds none ends the
    process without a word. A full disk is an `OutsideFailure`, and leaves no file.
    """
    if not size or not hasattr(os, "posix_fallocate"):
        return
    try:
        with open(file, "wb") as made:
            os.posix_fallocate(made.fileno(), 0, size)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise as_user_error(error, file) from error


def keep(stream: HarvestStream, folder: Path, progress: Progress = silent) -> KeptStream:
    """Every row of a stream that leaves none out, from the file where it is whole."""
    assert (stream.config.rows, stream.config.skip, stream.config.limits) == ("all", 0, None)
    folder.mkdir(parents=True, exist_ok=True)
    shape = (_rows(stream), stream.models, stream.width)
    dtype = stream.readers[0].dtype
    note = {"stream": stream.identity, "shape": list(shape), "dtype": str(dtype)}
    file, whole = folder / FILE, folder / NOTE
    there = whole.is_file() and json.loads(whole.read_text()) == note
    if not there:
        whole.unlink(missing_ok=True)
        file.unlink(missing_ok=True)
    size = int(np.prod(shape))
    if not there:
        _reserve(file, _bytes(stream))
    kept = torch.from_file(str(file), shared=True, size=size, dtype=dtype).view(shape)
    if not there:
        done = 0
        progress("reading activations", 0, shape[0])
        for block in stream.blocks():
            kept[done : done + len(block.rows)] = block.activations
            done += len(block.rows)
            progress("reading activations", done, shape[0])
        assert done == shape[0], "every token is a row"
        write_json(whole, note)
    rows = Rows.join([text.rows(number) for number, text in enumerate(stream.tokenized)])
    index = np.arange(shape[0])
    return KeptStream(kept, index, rows, stream.tokenized, stream.site, stream.identity)
