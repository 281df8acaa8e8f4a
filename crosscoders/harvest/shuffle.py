"""Blocks of equal size, and shuffling them in memory of fixed size.

1. Chunks of any size are cut into blocks of one size (the last may be shorter).
2. A pool holds so many rows. Once it is full, each new block takes the places of as many rows drawn at random, which
   come out. At the end the pool comes out in random order.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from crosscoders.activations import Block, Rows


def join_rows(parts: Sequence[Rows]) -> Rows:
    """One after the other."""
    return Rows(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])})


def join(blocks: Sequence[Block]) -> Block:
    """One block of several."""
    if len(blocks) == 1:
        return blocks[0]
    return Block(activations=torch.cat([b.activations for b in blocks]), rows=join_rows([b.rows for b in blocks]))


def take(block: Block, chosen: np.ndarray) -> Block:
    """The chosen rows, in that order."""
    index = torch.from_numpy(chosen).to(block.activations.device)
    return Block(activations=block.activations.index_select(0, index), rows=block.rows.take(chosen))


def in_blocks(chunks: Iterable[Block], size: int) -> Iterator[Block]:
    """The same rows in the same order, `size` at a time."""
    waiting: list[Block] = []
    held = 0
    for chunk in chunks:
        waiting.append(chunk)
        held += len(chunk.rows)
        if held < size:
            continue
        whole = join(waiting)
        last = held - held % size
        yield from (_part(whole, first, first + size) for first in range(0, last, size))
        waiting, held = ([_part(whole, last, held)] if last < held else []), held - last
    if held:
        yield join(waiting)


def shuffled(blocks: Iterable[Block], pool_rows: int, random: np.random.Generator) -> Iterator[Block]:
    """Blocks in random order, by a pool of about `pool_rows` rows; those that come out are as long as those that go in.

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
                pool, filling = _own(join(filling)), []
            continue
        places = random.choice(len(pool.rows), size=min(len(block.rows), len(pool.rows)), replace=False)
        out = take(pool, places)
        _put(pool, places, _part(block, 0, len(places)))
        yield out
        if len(places) < len(block.rows):
            yield _part(block, len(places), len(block.rows))
    if pool is None and filling:
        pool = join(filling)
    if pool is not None:
        yield from _emptied(pool, size, random)


def _emptied(pool: Block, size: int, random: np.random.Generator) -> Iterator[Block]:
    order = random.permutation(len(pool.rows))
    for first in range(0, len(order), size):
        yield take(pool, order[first : first + size])


def _part(block: Block, first: int, last: int) -> Block:
    chosen = slice(first, last)
    rows = Rows(**{name: column[chosen] for name, column in vars(block.rows).items()})
    return Block(activations=block.activations[chosen], rows=rows)


def _own(block: Block) -> Block:
    """A copy that nobody else holds, so that it can be written into."""
    rows = Rows(**{name: column.copy() for name, column in vars(block.rows).items()})
    return Block(activations=block.activations.clone(), rows=rows)


def _put(pool: Block, places: np.ndarray, block: Block) -> None:
    pool.activations[torch.from_numpy(places).to(pool.activations.device)] = block.activations
    for name, column in vars(block.rows).items():
        getattr(pool.rows, name)[places] = column
