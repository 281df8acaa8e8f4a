"""Harvest: checkpoints read on the same tokens, once, into a store.

1. Texts are taken in their order, a window of tokens at a time; a window is a shard
   of the store, and what the store has of a checkpoint is not read again.
2. Inside a window texts of like length share a batch, padded on the right, which cannot
   change what stands before; a checkpoint reads it as far as the site.
3. Rows that nobody asked for are dropped before anything is copied; the others are
   checked to be finite, and stored as they are.

Any policy with weights in this process is read: a checkpoint, a model of TransformerLens or
nnsight, or a model whose adapter `policy_from(..., within=...)` switches off, so that a LoRA
pair needs one copy of the weights.

Activations on disk by content: read once, whatever is then done with them.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from crosscoders.activations.outlier_positions import Limits, beyond
from crosscoders.activations.streams import (
    Block,
    TextNote,
    TokenizedText,
    in_blocks,
    shuffled,
    texts_hash,
)
from forensics.errors import OutsideFailure, UserError
from forensics.policies import read_sites, require
from forensics.progress import Progress, silent, ticking
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


RowFilter = Literal["all", "sampled", "deciding", "assistant"]


@dataclass(frozen=True, kw_only=True)
class HarvestConfig:
    """`rows`: which tokens. `skip`: first tokens of each text that are left out. `batch`:
    padded tokens of one forward pass. `window`: batches that are sorted by length
    together and written as one shard.
    """

    rows: RowFilter = "all"
    skip: int = 0
    batch: int = 8192
    window: int = 8

    def __post_init__(self) -> None:
        if min(self.batch, self.window) < 1:
            raise UserError(f"batch is {self.batch}, window is {self.window}; give at least 1")

    def tokens(self, text: TokenizedText) -> np.ndarray:
        """Which tokens of a text become rows."""
        chosen: np.ndarray = np.ones(len(text), dtype=bool)
        if self.rows == "assistant":  # the last stands for no step
            roles = [*(step.role == "assistant" for step in text.note.steps), False]
            chosen = np.asarray(roles)[text.step]
        elif self.rows != "all":
            chosen = getattr(text, self.rows)
        return np.flatnonzero(chosen[self.skip :]) + self.skip


@dataclass(frozen=True)
class Window:
    """Consecutive texts, with the `tokens` of each that become rows."""

    texts: Sequence[TokenizedText]
    tokens: Sequence[np.ndarray]

    @property
    def rows(self) -> list[int]:
        """How many, by text."""
        return [*map(len, self.tokens)]


@dataclass(frozen=True)
class Side:
    """One checkpoint at a site: `row` is one of its rows, `folder` that of its shards."""

    policy: Any
    row: Tensor
    site: str
    batch: int
    folder: Path

    @classmethod
    def opened(
        cls, policy: Any, text: TokenizedText, site: str, batch: int, store: Path, asked: str
    ) -> "Side":
        """Of a policy that reads the first token of a text, and in a store the folder of what is
        `asked` of it.
        """
        first = torch.from_numpy(text.token_ids[:1].astype(np.int64))[None]
        row = read_rows(policy, first, site)
        key = content_hash([policy.identity, str(row.dtype), asked])
        return cls(policy, row, site, batch, store / key)

    def path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.safetensors"

    def missing(self, windows: Sequence[Window]) -> int:
        """Bytes of the windows that the store does not have."""
        there = (self.path(number).is_file() for number in range(len(windows)))
        rows = sum(sum(one.rows) for one, known in zip(windows, there, strict=True) if not known)
        return rows * self.row.shape[1] * self.row.element_size()

    def rows(
        self, number: int, window: Window, tick: Callable[[int], None] = lambda texts: None
    ) -> tuple[Tensor, ...]:
        """Those of a window by text `[rows, width]`, mapped; read now where they are missing.
        `tick` hears of how many texts more.
        """
        path = self.path(number)
        if path.is_file():
            tick(len(window.texts))
        else:
            write_shard(path, self.read(window, tick))
        return torch.split(read_shard(path, sum(window.rows), self.row), window.rows)

    def read(self, window: Window, tick: Callable[[int], None] = lambda texts: None) -> Tensor:
        """The rows `[rows, width]` of a window, in the order of its texts."""
        lengths = [*map(len, window.texts)]
        found: dict[int, Tensor] = {}
        for members in batches(range(len(lengths)), lengths, self.batch):
            ids = np.zeros((len(members), max(lengths[i] for i in members)), dtype=np.int64)
            for padded, i in zip(ids, members, strict=True):
                padded[: lengths[i]] = window.texts[i].token_ids
            flat = [window.tokens[i] + at * ids.shape[1] for at, i in enumerate(members)]
            chosen = torch.from_numpy(np.concatenate(flat))
            seen = read_rows(self.policy, torch.from_numpy(ids), self.site)
            rows = seen.index_select(0, chosen.to(seen.device)).cpu()
            found |= zip(members, rows.split([len(one) for one in flat]), strict=True)
            tick(len(members))
        whole = torch.cat([found[i] for i in range(len(lengths))])
        if not bool(whole.sum(dtype=torch.float32).isfinite()):
            self._require_finite(whole, window)
        return whole

    def _require_finite(self, rows: Tensor, window: Window) -> None:
        bad = np.flatnonzero(~rows.isfinite().all(-1).numpy())
        if not len(bad):
            return
        ends = np.cumsum(window.rows)
        text = int(np.searchsorted(ends, bad[0], side="right"))
        token = window.tokens[text][bad[0] - ends[text] + window.rows[text]]
        raise UserError(
            f"checkpoint {self.policy.identity} gives activations that are not finite at"
            f" {self.site}, first at token {token} of text {window.texts[text].note.id}; load it in"
            " float32, or leave the checkpoint out"
        )


def read_rows(policy: Any, ids: Tensor, site: str) -> Tensor:
    """Activations `[texts * positions, width]` of token ids `[texts, positions]`."""
    with policy.within():
        (found,) = read_sites(policy.model, ids.to(policy.model.device), [site])
    return found.flatten(0, 1)


def harvest(
    policies: Sequence[Any],
    texts: Sequence[TokenizedText],
    site: str,
    config: HarvestConfig | None = None,
    *,
    store: Path | None = None,
    progress: Progress = silent,
) -> StoredStream:
    """Activations of every policy (index 0 is before) at one site, on the same tokens.

    `store`: the folder that keeps them (default: a temporary one, for as long as the
    stream lives). Raises `UserError` where tokenizers, widths or the site do not fit, for a
    text that a checkpoint cannot read and for activations that are not finite, and
    `OutsideFailure` where the disk has no room.
    """
    config = config or HarvestConfig()
    if not policies or not texts or not site:
        raise UserError("a harvest needs a policy, a text and a site; one of them is missing")
    _require_readable(policies, texts)
    tokens = [config.tokens(text) for text in texts]
    parts = windows(range(len(texts)), [*map(len, texts)], config.batch * config.window)
    read = [Window([texts[i] for i in part], [tokens[i] for i in part]) for part in parts]
    place = TemporaryPlace() if store is None else None
    folder = place.path if place else Path(store or "")
    asked = content_hash([site, texts_hash(texts, tokens), config.batch, config.window])
    sides = [
        Side.opened(policy, texts[0], site, config.batch, folder, asked) for policy in policies
    ]
    widths = [side.row.shape[1] for side in sides]
    if len(set(widths)) > 1:
        raise UserError(
            f"at {site} the checkpoints have {' and '.join(map(str, widths))} features; give"
            " checkpoints of one shape"
        )
    require_room(folder, sum(side.missing(read) for side in sides))
    values: list[tuple[Tensor, ...]] = []
    tick = ticking(progress, "reading activations", len(texts) * len(sides))
    for number, window in enumerate(read):
        values += zip(*(side.rows(number, window, tick) for side in sides), strict=True)
    return StoredStream(
        tokenized=texts,
        values=values,
        tokens=tokens,
        chosen=[np.arange(len(one)) for one in tokens],
        site=site,
        width=widths[0],
        models=len(sides),
        identity=content_hash([[side.folder.name for side in sides], texts_hash(texts)]),
        batch=config.batch,
        window=config.window,
        place=place,
    )


def _require_readable(policies: Sequence[Any], texts: Sequence[TokenizedText]) -> None:
    for policy in policies:
        require(policy, "weights", "tokens", task="reading activations of batches")
        words, others = (set(one.tokenizer.get_vocab().items()) for one in (policies[0], policy))
        if differing := words ^ others:
            raise UserError(
                f"the tokenizers of checkpoints {policies[0].identity} and {policy.identity} differ"
                f" (for example at {min(differing)[0]!r}); compare checkpoints of one model family"
                " that share a tokenizer"
            )
    lengths = [policy.context_length for policy in policies]
    most = min((length for length in lengths if length is not None), default=None)
    tokens = min(policy.model.get_input_embeddings().num_embeddings for policy in policies)
    for text in texts:
        if most is not None and len(text) > most:
            raise UserError(
                f"text {text.note.id} has {len(text)} tokens and a checkpoint was made for {most} "
                "positions; cut it into pieces"
            )
        if len(text) and not 0 <= text.token_ids.min() <= text.token_ids.max() < tokens:
            raise UserError(
                f"text {text.note.id} holds token {text.token_ids.max()} and a checkpoint has"
                f" {tokens} tokens; tokenise the texts with the checkpoints' own tokenizer"
            )
