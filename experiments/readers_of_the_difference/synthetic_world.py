"""Two models whose features are known: which they share, and which only one of them has.

1. Every feature has a random unit direction; norms are spread evenly in the logarithm over a
   factor of 4. A shared feature has one direction in both models, turned by `drift` in the second.
2. Features lie in blocks of 8, shared and one-model ones mixed. A block is on together, and where
   it is on each of its features is active with a chance of 1/4, beside a small background.
3. An active feature's strength is its norm times a uniform number from 0.5 to 1.5. Noise, drawn
   for each model apart, adds 5 % of the variance.

A stream is made on the fly, each block from its own seed: the same rows in every pass. The world
is that of `experiments/planted_features` (commit def71cb), its code shortened.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from crosscoders import Block, Rows, TextNote
from forensics.records import content_hash

WIDTH, SHARED, OWN = 64, 256, 16
ACTIVE, BLOCK, IN_BLOCK, BACKGROUND, SPREAD, NOISE = 12.0, 8, 0.25, 0.1, 4.0, 0.05
TEXT, ROWS = 64, 4096  # rows of one text, which is one task, and of one block
FEATURES = SHARED + 2 * OWN
AFTER_ONLY = slice(OWN + SHARED, FEATURES)


@dataclass(frozen=True, kw_only=True)
class SyntheticWorld:
    """`weakness`, `rarity`: factors on the norm and the frequency of one-model features; `drift`:
    the angle (radians) by which a shared feature turns. Features lie in the order before-only,
    shared, after-only.
    """

    seed: int
    weakness: float = 1.0
    rarity: float = 1.0
    drift: float = 0.0

    @cached_property
    def directions(self) -> Tensor:
        """What an active feature of strength 1 adds `[features, models, width]`."""
        found = self._drawn(0).standard_normal((FEATURES, 2, WIDTH))
        found /= np.linalg.norm(found, axis=-1, keepdims=True)
        aside = found[:, 1] - (found[:, 1] * found[:, 0]).sum(-1, keepdims=True) * found[:, 0]
        aside /= np.linalg.norm(aside, axis=-1, keepdims=True)
        found[:, 1] = np.cos(self.drift) * found[:, 0] + np.sin(self.drift) * aside
        found[:OWN, 1], found[AFTER_ONLY, 0] = 0, 0
        norms = np.exp(self._drawn(1).uniform(-np.log(SPREAD) / 2, np.log(SPREAD) / 2, FEATURES))
        norms[self.one_model] *= self.weakness
        return torch.from_numpy(found * norms[:, None, None]).float()

    @cached_property
    def one_model(self) -> np.ndarray:
        """Which features only one model has `[features]`."""
        return (np.arange(FEATURES) < OWN) | (np.arange(FEATURES) >= OWN + SHARED)

    @property
    def truth(self) -> Tensor:
        """Unit directions of the after-only features `[features, width]`."""
        return normalize(self.directions[AFTER_ONLY, 1], dim=-1)

    @cached_property
    def noise(self) -> float:
        """Standard deviation of each coordinate's noise."""
        strengths = torch.from_numpy(self.strengths(np.random.default_rng([self.seed, 3]), 8192))
        variance = (strengths.float() @ self.directions[:, 0]).var(0).mean()
        return float((variance * NOISE / (1 - NOISE)).sqrt())

    def strengths(self, drawn: np.random.Generator, rows: int) -> np.ndarray:
        """How strong each feature is `[rows, features]`, 0 where it is not active."""
        blocks = self._drawn(2).permutation(FEATURES) // BLOCK
        wanted = ACTIVE / FEATURES
        alone = wanted * BACKGROUND
        lit = drawn.random((rows, int(blocks.max()) + 1)) < (wanted - alone) / IN_BLOCK
        chance = np.where(lit[:, blocks], IN_BLOCK, alone)
        chance = chance * np.where(self.one_model, self.rarity, 1.0)
        active = drawn.random((rows, FEATURES)) < chance
        strengths: np.ndarray = active * drawn.uniform(0.5, 1.5, active.shape)
        return strengths

    def stream(self, rows: int, part: int) -> "SyntheticStream":
        """Each `part` has other rows of the same world."""
        return SyntheticStream(self, rows, part)

    def _drawn(self, what: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, what, 7])


@dataclass(frozen=True)
class SyntheticStream:
    """A `Stream` of `rows` rows."""

    world: SyntheticWorld
    rows: int
    part: int

    models = 2
    width = WIDTH
    site = "synthetic"

    @cached_property
    def texts(self) -> Sequence[TextNote]:
        return [TextNote(id=str(i), task=str(i)) for i in range(-(-self.rows // TEXT))]

    @property
    def identity(self) -> str:
        return content_hash([repr(self.world), self.rows, self.part])

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        starts = np.arange(0, self.rows, ROWS)
        random = None if seed is None else np.random.default_rng(seed)
        for first in starts if random is None else random.permutation(starts):
            made = self.block(int(first))[0]
            yield made if random is None else made.take(random.permutation(len(made.rows)))

    def block(self, first: int) -> tuple[Block, np.ndarray]:
        """The rows from `first` on, and the strengths of their features."""
        drawn = np.random.default_rng([self.world.seed, self.part, first, 11])
        number = min(ROWS, self.rows - first)
        strengths = self.world.strengths(drawn, number)
        noise = torch.from_numpy(drawn.standard_normal((number, 2, WIDTH), dtype=np.float32))
        clean = torch.einsum(
            "rf,fmw->rmw", torch.from_numpy(strengths).float(), self.world.directions
        )
        index = np.arange(first, first + number, dtype=np.int32)
        rows = replace(Rows.blank(number), text=index // TEXT, position=index % TEXT)
        return Block(activations=clean + self.world.noise * noise, rows=rows), strengths
