"""A world of two models whose features are known: which are shared, and which
only one of them has.

1. Every feature has a random unit direction; norms are spread evenly in the
   logarithm over a factor of `spread`. Shared features have one direction in
   both models, turned apart by `drift` in the second where that is wanted.
2. Features lie in blocks at random (shared and one-model ones mixed): a block
   is on together, and where it is on each of its features is active with the
   same chance, beside a small background. So features are correlated, and a
   shared latent could well take a one-model feature along.
3. An active feature's strength is its norm times a uniform number from 0.5 to
   1.5, the same in both models.
4. Noise, drawn for each model apart, adds `noise` of the variance.

The stream is generated on the fly, block by block, each from its own seed: any
length at constant memory, and the same rows in every pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from crosscoders import Block, Rows, TextNote
from forensics.records import content_hash

Pair = Literal["as-is", "swapped", "identical", "same-model"]
Kind = Literal["before-only", "shared", "after-only"]
TEXT = 64  # rows of one text, which is one task


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """`active`: mean number of active features. `weakness`, `rarity`: factors
    on the norm and the frequency of one-model features. `drift`: angle
    (radians) between a shared feature's directions in the two models.

    `pair`: `identical` shows the before model twice, `same-model` so too but
    with noise of its own each time.
    """

    width: int = 64
    shared: int = 256
    before_only: int = 16
    after_only: int = 16
    active: float = 12.0
    block: int = 8
    chance_in_block: float = 0.25
    background: float = 0.1
    spread: float = 4.0
    noise: float = 0.05
    weakness: float = 1.0
    rarity: float = 1.0
    drift: float = 0.0
    pair: Pair = "as-is"

    @property
    def features(self) -> int:
        return self.shared + self.before_only + self.after_only


@dataclass(frozen=True)
class World:
    """The features of a seed. Order: before-only, shared, after-only (of the
    pair as it is, before any swap).
    """

    config: WorldConfig
    seed: int

    @cached_property
    def directions(self) -> torch.Tensor:
        """`[features, models, width]`: what an active feature of strength 1
        adds to each model; zero where silent.
        """
        config, generator = self.config, self._generator(0)
        found = generator.standard_normal((config.features, 2, config.width))
        found /= np.linalg.norm(found, axis=-1, keepdims=True)
        aside = found[:, 1] - (found[:, 1] * found[:, 0]).sum(-1, keepdims=True) * found[:, 0]
        aside /= np.linalg.norm(aside, axis=-1, keepdims=True)
        found[:, 1] = np.cos(config.drift) * found[:, 0] + np.sin(config.drift) * aside
        found[: config.before_only, 1] = 0
        found[config.before_only + config.shared :, 0] = 0
        return torch.from_numpy(self._paired(found * self.norms[:, None, None])).float()

    @cached_property
    def norms(self) -> np.ndarray:
        """`[features]`."""
        half = np.log(self.config.spread) / 2
        norms: np.ndarray = np.exp(self._generator(1).uniform(-half, half, self.config.features))
        norms[self._one_model] *= self.config.weakness
        return norms

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """What each feature is in the pair that is shown."""
        config = self.config
        here: tuple[Kind, Kind, Kind] = ("before-only", "shared", "after-only")
        if config.pair == "swapped":
            here = ("after-only", "shared", "before-only")
        if config.pair in ("identical", "same-model"):  # the after model's own features are nowhere
            return ("shared",) * config.features
        return tuple(np.repeat(here, (config.before_only, config.shared, config.after_only)))

    @cached_property
    def blocks(self) -> np.ndarray:
        """`[features]`: the block each feature lies in."""
        features = self.config.features
        found: np.ndarray = self._generator(2).permutation(features) // self.config.block
        return found

    @cached_property
    def noise(self) -> float:
        """Standard deviation of each coordinate's noise: `config.noise` of the
        variance of what is seen.
        """
        strengths = self.strengths(np.random.default_rng([self.seed, 3]), 8192)
        clean = torch.from_numpy(strengths).float() @ self.directions[:, 0]
        share = self.config.noise
        return float((clean.var(dim=0).mean() * share / (1 - share)).sqrt())

    def strengths(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        """How strong each feature is `[rows, features]`, zero where it is not
        active (norms are in `directions`).
        """
        config = self.config
        wanted = config.active / config.features
        alone = wanted * config.background
        on = (wanted - alone) / config.chance_in_block
        lit = generator.random((rows, int(self.blocks.max()) + 1)) < on
        chance = np.where(lit[:, self.blocks], config.chance_in_block, alone) * np.where(
            self._one_model, config.rarity, 1.0
        )
        active = generator.random((rows, config.features)) < chance
        strengths: np.ndarray = active * generator.uniform(0.5, 1.5, active.shape)
        return strengths

    def truth(self, kind: Kind, model: int) -> torch.Tensor:
        """Unit directions `[features of the kind, width]` in a model."""
        chosen = torch.tensor([one == kind for one in self.kinds])
        return torch.nn.functional.normalize(self.directions[chosen, model], dim=-1)

    def stream(self, rows: int, part: int = 0, block: int = 4096) -> "WorldStream":
        """`part`: another one gives other rows of the same world."""
        return WorldStream(self, rows, part, block)

    @property
    def _one_model(self) -> np.ndarray:
        kinds = np.ones(self.config.features, dtype=bool)
        kinds[self.config.before_only : self.config.before_only + self.config.shared] = False
        return kinds

    def _paired(self, directions: np.ndarray) -> np.ndarray:
        if self.config.pair == "swapped":
            return directions[:, ::-1].copy()
        return (
            directions[:, [0, 0]] if self.config.pair in ("identical", "same-model") else directions
        )

    def _generator(self, what: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, what, 7])


@dataclass(frozen=True)
class WorldStream:
    """A `Stream` of `rows` rows."""

    world: World
    rows: int
    part: int
    block: int

    models = 2
    site = "synthetic"

    @property
    def width(self) -> int:
        return self.world.config.width

    @cached_property
    def texts(self) -> Sequence[TextNote]:
        return [TextNote(id=str(i), task=str(i)) for i in range(-(-self.rows // TEXT))]

    @property
    def identity(self) -> str:
        return content_hash(
            [asdict(self.world.config), self.world.seed, self.rows, self.part, self.block]
        )

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        starts = np.arange(0, self.rows, self.block)
        shuffle = None if seed is None else np.random.default_rng(seed)
        for first in starts if shuffle is None else shuffle.permutation(starts):
            made = self._made(int(first))
            if shuffle is not None:
                order = shuffle.permutation(len(made.rows))
                made = Block(
                    activations=made.activations[torch.from_numpy(order)],
                    rows=made.rows.take(order),
                )
            yield made

    def _made(self, first: int) -> Block:
        generator = np.random.default_rng([self.world.seed, self.part, first, 11])
        number = min(self.block, self.rows - first)
        strengths = torch.from_numpy(self.world.strengths(generator, number)).float()
        noises = 1 if self.world.config.pair == "identical" else 2
        noise = generator.standard_normal((number, noises, self.width), dtype=np.float32)
        clean = torch.einsum("rf,fmw->rmw", strengths, self.world.directions)
        index = np.arange(first, first + number, dtype=np.int32)
        rows = replace(Rows.blank(number), text=index // TEXT, position=index % TEXT)
        return Block(activations=clean + self.world.noise * torch.from_numpy(noise), rows=rows)
