"""One pass of a dictionary over a stream, shared by everything that is counted
about its latents.

1. Blocks come from the stream, in order, and are cut so that rows times latents
   stay bounded.
2. Each cut is encoded once; the reconstructions and errors of all models are
   made from the same codes.
3. Every *accumulator* adds what it wants of it. Nothing but their sums is kept,
   so a stream of any length takes the same memory.

A dictionary with one model (an SAE) can read a stream of several: the last
model's activations feed its codes. Its one decoder then speaks for all models,
and each model is reconstructed from its own codes (`codes_by_model`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from crosscoders.activations.streams import Rows, Stream, TextNote
from crosscoders.dictionaries.dictionary import Codes, Dictionary
from forensics.errors import UserError

CELLS_AT_ONCE = 2**25  # rows times latents of dense pre-activations: 128 MiB in float32
ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class EncodedBlock:
    """Some rows of a stream as a dictionary reads them, in the dictionary's
    units.

    `codes_by_model`: each model's codes where one dictionary reads the models
    one by one, else the same codes for all.
    """

    dictionary: Dictionary
    texts: Sequence[TextNote]
    rows: Rows
    scaled: Float[Tensor, "rows models width"]
    codes_by_model: tuple[Codes, ...]

    @property
    def codes(self) -> Codes:
        """Active latents, sorted by row."""
        return self.codes_by_model[-1]

    @cached_property
    @torch.no_grad()
    def reconstructions(self) -> Float[Tensor, "rows models width"]:
        """Centres included."""
        joint = len(self.dictionary.ranges) > 1
        return torch.stack(
            [
                self.dictionary.decode(codes, m if joint else 0)
                for m, codes in enumerate(self.codes_by_model)
            ],
            dim=1,
        )


class Accumulator(Protocol):
    """What adds up numbers over passages that come in the stream's order."""

    def add(self, encoded: EncodedBlock) -> None: ...


@torch.no_grad()
def accumulate(dictionary: Dictionary, stream: Stream, accumulators: Sequence[Accumulator]) -> None:
    """One pass in the stream's order; every accumulator sees every row once.

    Raises `UserError` where they do not fit each other, and where an activation
    is not a number.
    """
    for encoded in encoded_blocks(dictionary, stream):
        for accumulator in accumulators:
            accumulator.add(encoded)


@torch.no_grad()
def encoded_blocks(dictionary: Dictionary, stream: Stream) -> Iterator[EncodedBlock]:
    """The stream as the dictionary reads it, a bounded number of rows at a time."""
    must_fit(dictionary, stream)
    most = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // dictionary.config.partition.latents))
    some = False
    for block in stream.blocks():
        for first in range(0, len(block.rows), most):
            some = True
            part = block.take(slice(first, first + most))
            scaled = dictionary.scaled(part.activations.to(dictionary.bias.device))
            if not bool(scaled.isfinite().all()):
                bad = int((~scaled.isfinite()).flatten(1).any(1).nonzero()[0, 0])
                raise UserError(
                    f"the activations at {stream.site} hold a value that is not a finite number,"
                    f" in text {stream.texts[int(part.rows.text[bad])].id} at token"
                    f" {int(part.rows.position[bad])}; leave that text out, or run the models in"
                    " float32"
                )
            if dictionary.config.models > 1:
                by_model = (dictionary.encode(scaled),) * scaled.shape[1]
            else:
                models = range(scaled.shape[1])
                by_model = tuple(dictionary.encode(scaled[:, m : m + 1]) for m in models)
            yield EncodedBlock(dictionary, stream.texts, part.rows, scaled, by_model)
    if not some:
        raise UserError(f"the stream at {stream.site} has no rows; give it texts")


def must_fit(dictionary: Dictionary, stream: Stream) -> None:
    """Raise `UserError` where a dictionary cannot read a stream."""
    config = dictionary.config
    if config.width != stream.width:
        raise UserError(
            f"the dictionary is {config.width} wide and the activations at {stream.site} are"
            f" {stream.width}; use the site that it was trained on"
        )
    if config.models not in (1, stream.models):
        raise UserError(
            f"the dictionary speaks of {config.models} models and the stream of {stream.models}; "
            "give as many checkpoints as it was trained on"
        )
