"""Activations on disk by content: read once, whatever is then done with them.

A study passes over its activations a dozen times, and the next study of the same texts
passes over them again; running a checkpoint costs more than all of that.

1. Under a store lies a folder for each checkpoint, site and set of tokens, named by their
   hash, so that a second dictionary, another seed or another partner of the same
   checkpoint reads what is there.
2. A folder holds *shards*: safetensors of the rows `[rows, width]` of some consecutive
   texts, in the checkpoint's own type. A shard is written whole or not at all, so that what
   a killed run wrote counts, and says which it is and the sum of its numbers, so that a
   broken one is noticed.
3. Shards are mapped into memory, not loaded. A `StoredStream` gives their rows in the order
   of the texts, or in one that a seed fixes: texts in random order, their rows through a
   shuffling pool.
"""

import shutil
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from crosscoders.activations.outlier_positions import Limits, beyond
from crosscoders.activations.streams import Block, TextNote, in_blocks, shuffled
from crosscoders.activations.texts import TokenizedText
from forensics.errors import OutsideFailure, UserError
from forensics.progress import Progress, silent
from forensics.records import content_hash, write_atomically

NAME: Final = "activations"
MOST_OF_DISK: Final = 0.5  # of what is free


def write_shard(path: Path, rows: Tensor) -> None:
    """Write rows `[rows, width]`. Raises `OutsideFailure` where the disk is full."""
    write_atomically(path, save({NAME: rows.contiguous()}, {"holds": _holds(path, rows)}))


def read_shard(path: Path, rows: int, like: Tensor) -> Tensor:
    """So many rows of the type and width of `like`, mapped into memory. Raises `UserError`
    where the shard is not what was written.
    """
    try:
        with safe_open(path, "pt") as file:
            found: Tensor = file.get_tensor(NAME)
            stated = (file.metadata() or {}).get("holds")
    except (SafetensorError, OSError) as error:
        raise _broken(path) from error
    if (tuple(found.shape), found.dtype) != ((rows, like.shape[-1]), like.dtype):
        raise _broken(path)
    if _holds(path, found) != stated:
        raise _broken(path)
    return found


def _broken(path: Path) -> UserError:
    return UserError(
        f"the activations in {path} are not what was written there; delete this file and run"
        " again with --resume, which reads them from the checkpoint again"
    )


def _holds(path: Path, rows: Tensor) -> str:
    """Which shard it is, with a checksum that is as fast as memory."""
    return f"{path.parent.name}/{path.name} {int(rows.contiguous().view(torch.int16).sum())}"


def size_told(size: float) -> str:
    """Bytes in words."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"


def require_room(folder: Path, size: int) -> None:
    """Make the folder. Raises `UserError` where that cannot be done, and `OutsideFailure` where
    so many bytes would take most of the disk.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made ({error.strerror}); name another place with --activations"
        ) from None
    free = shutil.disk_usage(folder).free
    if size > MOST_OF_DISK * free:
        raise OutsideFailure(
            f"the activations of these texts take {size_told(size)} and {folder} has"
            f" {size_told(free)} free; name a larger place with --activations, or give fewer texts"
        )


class TemporaryPlace:
    """A folder for as long as somebody holds this."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="activations-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def windows(order: Iterable[int], lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Consecutive texts of an order, `most` tokens together."""
    window, tokens = [], 0
    for index in order:
        window.append(index)
        tokens += lengths[index]
        if tokens >= most:
            yield window
            window, tokens = [], 0
    if window:
        yield window


def batches(window: Sequence[int], lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Texts of like length together; the longest decides how many fit into `most` tokens."""
    batch: list[int] = []
    for index in sorted(window, key=lambda i: lengths[i]):
        if batch and lengths[index] * (len(batch) + 1) > most:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


@dataclass(frozen=True, kw_only=True)
class StoredStream:
    """A `Stream` over mapped rows. By text: `values`, of each model `[stored, width]`; `tokens
    [stored]` that these are of; `chosen` among them. `batch` tokens of a batch and `window`
    batches decide the random order; `place` is what holds a temporary folder; `told` hears of
    passes in order (`heard`).
    """

    tokenized: Sequence[TokenizedText] = field(repr=False)
    values: Sequence[tuple[Tensor, ...]] = field(repr=False)
    tokens: Sequence[np.ndarray] = field(repr=False)
    chosen: Sequence[np.ndarray] = field(repr=False)
    site: str
    width: int
    models: int
    identity: str
    batch: int
    window: int
    block: int = 4096
    pool: int = 65536
    place: TemporaryPlace | None = None
    told: tuple[str, Progress] = field(default=("", silent), repr=False, compare=False)

    @cached_property
    def texts(self) -> tuple[TextNote, ...]:
        return tuple(text.note for text in self.tokenized)

    @property
    def number(self) -> int:
        """Of rows."""
        return sum(map(len, self.chosen))

    def positions(self, text: TokenizedText) -> np.ndarray:
        """Which tokens of one of the texts are rows."""
        number = next(i for i, one in enumerate(self.tokenized) if one is text)
        found: np.ndarray = self.tokens[number][self.chosen[number]]
        return found

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        lengths, order = [*map(len, self.tokenized)], np.arange(len(self.tokenized))
        if seed is not None:
            order = np.random.default_rng(seed).permutation(len(order))
        parts: Iterable[list[int]] = windows(order.tolist(), lengths, self.batch * self.window)
        if seed is not None:
            parts = (part for window in parts for part in batches(window, lengths, self.batch))
        blocks = in_blocks((self._text(i) for part in parts for i in part), self.block)
        if seed is None:
            return self._telling(blocks)
        return shuffled(blocks, self.pool, np.random.default_rng([seed, 1]))

    def heard(self, what: str, progress: Progress) -> "StoredStream":
        """The same rows; every pass over them in order says how far it is."""
        return replace(self, told=(what, progress))

    def _telling(self, blocks: Iterator[Block]) -> Iterator[Block]:
        (what, progress), done, number = self.told, 0, self.number
        for block in blocks:
            progress(what, done, number)
            done += len(block.rows)
            yield block
        progress(what, number, number)

    def _text(self, number: int) -> Block:
        values, chosen = self.values[number], torch.from_numpy(self.chosen[number])
        rows = [one.index_select(0, chosen).to(values[0].dtype) for one in values]
        known = self.tokenized[number].rows(number).take(self.tokens[number][self.chosen[number]])
        return Block(activations=torch.stack(rows, 1), rows=known)

    def part(self, texts: Sequence[TokenizedText], limits: Limits | None = None) -> "StoredStream":
        """The rows of these texts (the very objects that were harvested), without outliers."""
        at = {id(text): number for number, text in enumerate(self.tokenized)}
        places = [at[id(text)] for text in texts]
        chosen = [self.chosen[place] for place in places]
        if limits is not None:
            over = [beyond(self._text(place).activations, limits).numpy() for place in places]
            chosen = [one[~outlying] for one, outlying in zip(chosen, over, strict=True)]
        names = [text.note.id for text in texts]
        return replace(
            self,
            tokenized=tuple(texts),
            values=[self.values[place] for place in places],
            tokens=[self.tokens[place] for place in places],
            chosen=chosen,
            identity=content_hash([self.identity, names, limits and list(limits)]),
        )
