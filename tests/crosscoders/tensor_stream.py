"""A stream that lies in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from crosscoders.activations.streams import Block, Rows, TextNote


@dataclass(frozen=True, kw_only=True)
class TensorStream:
    """A stream that lies in memory: for tests, synthetic worlds and small studies."""

    activations: Float[Tensor, "rows models width"]
    rows: Rows
    texts: Sequence[TextNote] = (TextNote(id="text", task="text"),)
    site: str = "synthetic"
    identity: str = "synthetic"
    block: int = 4096

    @property
    def models(self) -> int:
        return self.activations.shape[1]

    @property
    def width(self) -> int:
        return self.activations.shape[2]

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        number = len(self.rows)
        order = (
            np.arange(number) if seed is None else np.random.default_rng(seed).permutation(number)
        )
        for first in range(0, number, self.block):
            chosen = order[first : first + self.block]
            yield Block(
                activations=self.activations[torch.from_numpy(chosen)], rows=self.rows.take(chosen)
            )
