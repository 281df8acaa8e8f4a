"""Paired activations of several checkpoints on the same tokens: what every
method of this room reads.

A *stream* gives blocks as often as it is asked; nobody holds it whole. A
block's rows are tokens; each row has one vector a checkpoint (index 0 is
before, the last is after), and says which token of which text it belongs to, so
that masks by role, step kind, channel, outcome and advantage can be made from
the texts' notes.

A stream can be seen through a *view*, such as the models' difference. Blocks are
shuffled in memory of fixed size: a pool holds so many rows; once it is full,
each new block takes the places of as many rows drawn at random, which come out,
and at the end the pool comes out in random order.

Axes, here and everywhere in this room: `rows` (tokens), `models` (checkpoints),
`width` (features of the site), `latents`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

View = Callable[[Tensor], Tensor]  # what is seen of activations `[rows, models, width]`
PLAIN_TEXT = -1  # the step of a token of a text that has no steps


@dataclass(frozen=True, kw_only=True)
class StepNote:
    """One step of a text: who wrote it, the kinds of the actions in it, the
    channels that it showed.
    """

    role: str
    kinds: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TextNote:
    """One text. `task` is the unit of independence. `source`: which policy
    wrote it (`before`, `after`, ...).
    """

    id: str
    task: str
    source: str = "plain"
    outcome: float | None = None
    steps: tuple[StepNote, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What is known of each row, as columns `[rows]`.

    `text`: index into the stream's `texts`. `position`: of the token in its
    text. `token`: its id. `step`: index into the text's steps, or `PLAIN_TEXT`.
    `sampled`: drawn by the policy. `deciding`: the last token before an
    action's first one, where the next action is decided. `advantage`: NaN where
    none is known.
    """

    text: np.ndarray
    position: np.ndarray
    token: np.ndarray
    step: np.ndarray
    sampled: np.ndarray
    deciding: np.ndarray
    advantage: np.ndarray

    def __len__(self) -> int:
        return len(self.text)

    def take(self, chosen: np.ndarray | slice) -> "Rows":
        """The chosen rows (indices, a mask, or a slice)."""
        return Rows(**{name: column[chosen] for name, column in vars(self).items()})

    @classmethod
    def join(cls, parts: Sequence["Rows"]) -> "Rows":
        """One after the other."""
        return cls(
            **{
                name: np.concatenate([getattr(part, name) for part in parts])
                for name in vars(parts[0])
            }
        )

    @classmethod
    def blank(cls, number: int) -> "Rows":
        """Rows of which nothing is known: one text, one after the other."""
        zero = np.zeros(number, dtype=np.int32)
        return cls(
            text=zero,
            position=np.arange(number, dtype=np.int32),
            token=zero,
            step=np.full(number, PLAIN_TEXT, dtype=np.int32),
            sampled=np.zeros(number, dtype=bool),
            deciding=np.zeros(number, dtype=bool),
            advantage=np.full(number, np.nan, dtype=np.float32),
        )


@dataclass(frozen=True, kw_only=True)
class Block:
    """Activations, and what is known of their rows."""

    activations: Float[Tensor, "rows models width"]
    rows: Rows

    def take(self, chosen: np.ndarray | slice) -> "Block":
        """The chosen rows, in that order: a copy of those at indices, a view of
        a slice.
        """
        if isinstance(chosen, slice):
            activations = self.activations[chosen]
        else:
            index = torch.from_numpy(chosen).to(self.activations.device)
            activations = self.activations.index_select(0, index)
        return Block(activations=activations, rows=self.rows.take(chosen))

    @classmethod
    def join(cls, blocks: Sequence["Block"]) -> "Block":
        """One block of several."""
        if len(blocks) == 1:
            return blocks[0]
        return cls(
            activations=torch.cat([block.activations for block in blocks]),
            rows=Rows.join([block.rows for block in blocks]),
        )


class Stream(Protocol):
    """Activations at one site. `blocks(seed)` is one pass: in order, or in one
    that the seed fixes.
    """

    @property
    def models(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def site(self) -> str: ...
    @property
    def texts(self) -> Sequence[TextNote]: ...
    @property
    def identity(self) -> str:
        """A hash of everything that decides the values: checkpoints, site, texts."""
        ...

    def blocks(self, seed: int | None = None) -> Iterator[Block]: ...


@dataclass(frozen=True, kw_only=True)
class MappedStream:
    """Another stream, its blocks passed through `view`, which makes blocks of
    `models`. `name` ends its identity.
    """

    stream: Stream
    models: int
    name: str
    view: Callable[[Iterator[Block]], Iterator[Block]]

    @property
    def width(self) -> int:
        return self.stream.width

    @property
    def site(self) -> str:
        return self.stream.site

    @property
    def texts(self) -> Sequence[TextNote]:
        return self.stream.texts

    @property
    def identity(self) -> str:
        return self.stream.identity + self.name

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        return self.view(self.stream.blocks(seed))


def difference_view(
    activations: Float[Tensor, "rows models width"],
) -> Float[Tensor, "rows 1 width"]:
    """Last model minus first."""
    return activations[:, -1:] - activations[:, :1]


def in_blocks(chunks: Iterable[Block], size: int) -> Iterator[Block]:
    """The same rows in the same order, `size` at a time; the last may be shorter."""
    waiting: list[Block] = []
    held = 0
    for chunk in chunks:
        waiting.append(chunk)
        held += len(chunk.rows)
        if held < size:
            continue
        whole = Block.join(waiting)
        last = held - held % size
        yield from (whole.take(slice(first, first + size)) for first in range(0, last, size))
        waiting, held = ([whole.take(slice(last, held))] if last < held else []), held - last
    if held:
        yield Block.join(waiting)


def shuffled(
    blocks: Iterable[Block], pool_rows: int, random: np.random.Generator
) -> Iterator[Block]:
    """Blocks in random order, by a pool of about `pool_rows` rows; those that
    come out are as long as those that go in.

    The order depends on the blocks and the generator alone.
    """
    filling: list[Block] = []
    pool: Block | None = None
    size = 1
    for block in blocks:
        size = max(size, len(block.rows))
        if pool is None:
            filling.append(block)
            if sum(len(b.rows) for b in filling) >= pool_rows:
                joined = Block.join(filling)
                pool, filling = joined.take(np.arange(len(joined.rows))), []  # a copy of its own
            continue
        places = random.choice(
            len(pool.rows), size=min(len(block.rows), len(pool.rows)), replace=False
        )
        out = pool.take(places)
        entering = block.take(slice(0, len(places)))
        index = torch.from_numpy(places).to(pool.activations.device)
        pool.activations[index] = entering.activations
        for name, column in vars(entering.rows).items():
            getattr(pool.rows, name)[places] = column
        yield out
        if len(places) < len(block.rows):
            yield block.take(slice(len(places), len(block.rows)))
    if pool is None and filling:
        pool = Block.join(filling)
    if pool is not None:
        order = random.permutation(len(pool.rows))
        for first in range(0, len(order), size):
            yield pool.take(order[first : first + size])
