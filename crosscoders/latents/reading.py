"""One pass of a dictionary over a stream, shared by everything that is counted about its latents.

1. Blocks come from the stream, in order, and are cut so that rows times latents stay bounded.
2. Each cut is encoded once; the reconstructions and errors of all models are made from the same codes.
3. Every *counter* adds what it wants of it. Nothing but the counters' sums is kept, so a stream of any length takes
   the same memory.

A dictionary with one model (an SAE) can read a stream of several: `reads` says which model's activations feed its
codes. Its one decoder then speaks for all models, and each model is reconstructed from its own codes (`own`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import nn

from crosscoders.activations import Block, Rows, Stream, TextNote
from crosscoders.dictionary import Codes, Dictionary
from forensics.errors import UserError

CELLS_AT_ONCE = 2**25  # rows times latents of dense pre-activations: 128 MiB in float32
ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Passage:
    """Some rows of a stream as a dictionary reads them, in the dictionary's units.

    `scaled [rows, models, width]`; `codes`: active latents, sorted by row; `own`: each model's codes where one
    dictionary reads the models one by one, else the same codes for all.
    """

    dictionary: Dictionary
    texts: Sequence[TextNote]
    rows: Rows
    scaled: torch.Tensor
    codes: Codes
    own: tuple[Codes, ...]

    @cached_property
    def reconstructions(self) -> torch.Tensor:
        """`[rows, models, width]`, centres included."""
        joint = len(self.dictionary.ranges) > 1
        return torch.stack([
            decoded(self.dictionary, codes, m if joint else 0) for m, codes in enumerate(self.own)
        ], dim=1)

    @cached_property
    def centres(self) -> torch.Tensor:
        """`[models, width]`."""
        return self.dictionary.centres.detach().expand(self.scaled.shape[1], -1)


class Counter(Protocol):
    """What adds up numbers over passages that come in the stream's order."""

    def add(self, passage: Passage) -> None: ...


@torch.no_grad()
def read_through(
    dictionary: Dictionary, stream: Stream, counters: Sequence[Counter], *, reads: int = -1
) -> None:
    """One pass in the stream's order; every counter sees every row once.

    `reads`: the model that feeds a dictionary of one model. Raises `UserError` where they do not fit each other, and
    where an activation is not a number.
    """
    for passage in passages(dictionary, stream, reads=reads):
        for counter in counters:
            counter.add(passage)


@torch.no_grad()
def passages(dictionary: Dictionary, stream: Stream, *, reads: int = -1) -> Iterator[Passage]:
    """The stream as the dictionary reads it, a bounded number of rows at a time."""
    must_fit(dictionary, stream)
    most = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // dictionary.config.partition.latents))
    some = False
    for block in stream.blocks():
        for first in range(0, len(block.rows), most):
            some = True
            yield _passage(dictionary, stream, _cut(block, first, first + most), reads)
    if not some:
        raise UserError(f"the stream at {stream.site} has no rows; give it texts")


def _cut(block: Block, first: int, last: int) -> Block:
    whole = first == 0 and last >= len(block.rows)
    if whole:
        return block
    return Block(activations=block.activations[first:last], rows=Rows(
        **{name: column[first:last] for name, column in vars(block.rows).items()}
    ))


def _passage(dictionary: Dictionary, stream: Stream, block: Block, reads: int) -> Passage:
    scaled = dictionary.scaled(block.activations.to(dictionary.bias.device))
    _must_be_numbers(scaled, stream, block.rows)
    if dictionary.config.models > 1:
        codes = dictionary.encode(scaled)
        own: tuple[Codes, ...] = (codes,) * scaled.shape[1]
    else:
        own = tuple(dictionary.encode(scaled[:, m : m + 1]) for m in range(scaled.shape[1]))
        codes = own[reads]
    return Passage(dictionary, stream.texts, block.rows, scaled, codes, own)


def must_fit(dictionary: Dictionary, stream: Stream) -> None:
    """Raise `UserError` where a dictionary cannot read a stream."""
    config = dictionary.config
    if config.width != stream.width:
        raise UserError(
            f"the dictionary is {config.width} wide and the activations at {stream.site} are {stream.width}; "
            "use the site that it was trained on"
        )
    if config.models not in (1, stream.models):
        raise UserError(
            f"the dictionary speaks of {config.models} models and the stream of {stream.models}; "
            "give as many checkpoints as it was trained on"
        )


def _must_be_numbers(scaled: torch.Tensor, stream: Stream, rows: Rows) -> None:
    if bool(scaled.isfinite().all()):
        return
    bad = int((~scaled.isfinite()).flatten(1).any(1).nonzero()[0, 0])
    raise UserError(
        f"the activations at {stream.site} hold a value that is not a finite number, in text "
        f"{stream.texts[int(rows.text[bad])].id} at token {int(rows.position[bad])}; leave that text out, or run the "
        "models in float32"
    )


def decoded(dictionary: Dictionary, codes: Codes, model: int) -> torch.Tensor:
    """What `Dictionary.decode` gives, without anything of the size active x width on the way; for inference only."""
    seen = dictionary.ranges[model]
    chosen = (codes.latent >= seen.start) & (codes.latent < seen.stop)
    counts = torch.bincount(codes.row[chosen], minlength=codes.rows)
    decoder = dictionary.decoder(model).detach()
    parts = nn.functional.embedding_bag(
        codes.latent[chosen] - seen.start, decoder, counts.cumsum(0) - counts, mode="sum",
        per_sample_weights=codes.value[chosen].detach().to(decoder.dtype),
    )
    return parts + dictionary.centres[model].detach()


def all_directions(dictionary: Dictionary, models: int) -> torch.Tensor:
    """Decoders `[latents, models, width]`; the one decoder of an SAE stands for every model."""
    return dictionary.directions().expand(-1, models, -1) if dictionary.config.models == 1 else dictionary.directions()
