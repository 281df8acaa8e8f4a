"""What is run to test a set of features, and every control of equal size beside
it.

- features: all of the set; and the first 1, 2, 4, ... of it, for the curve of
  saturation
- random directions: the same change turned at random, so every row is moved
  exactly as far (the whole distribution)
- random features: other latents that are as often active
- mean difference: the vector between the models, taken away or added
- difference subspace: as many principal directions of the difference as leave
  the same error
- routing: the activation replaced by the dictionary's reconstruction
- spillover: the same change in the other model, by what of the features is
  there
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.steering.edits import (
    Change,
    Encoding,
    Mode,
    Side,
    feature_change,
    other_side,
    routing_change,
    shift_change,
    subspace_change,
)
from crosscoders.steering.evaluation import Condition
from crosscoders.steering.readings import (
    Reader,
    Readings,
    equal_error_basis,
    equally_active,
    mean_difference,
    median_values,
)
from forensics.records import content_hash


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A dictionary (`key`: its hash, `name`: as it is told), an ordered set of
    its latents, and how they are used.
    """

    name: str
    key: str
    dictionary: Dictionary
    features: tuple[int, ...]
    mode: Mode
    acting: Side
    encoding: Encoding
    readings: Readings
    seed: int

    @property
    def reader(self) -> Reader:
        return Reader(dictionary=self.dictionary, encoding=self.encoding)

    def steered(
        self,
        strength: float,
        *,
        features: Sequence[int] | None = None,
        role: str = "features",
        acting: Side | None = None,
        draw: int | None = None,
    ) -> Condition:
        """These latents (by default all of the set) changed at a strength."""
        chosen = self.features if features is None else tuple(features)
        side = acting or self.acting
        return self._condition(
            role, self._change(chosen, strength, side), side, strength, chosen, draw
        )

    def saturation(self, strength: float) -> list[Condition]:
        """The first 1, 2, 4, ... latents of the set, the whole set last."""
        sizes = sorted(
            {2**i for i in range(len(self.features).bit_length())} | {len(self.features)}
        )
        return [
            self.steered(strength, features=self.features[:size], role="saturation")
            for size in sizes
        ]

    def random_directions(self, strength: float, number: int) -> list[Condition]:
        """The change of the set, turned at random."""
        change, found = self._change(self.features, strength, self.acting), []
        for draw in range(number):
            seed = int(content_hash([self.seed, self.key, list(self.features), draw], 15), 16)
            turned = change.turned(torch.Generator().manual_seed(seed))
            found.append(
                self._condition(
                    "random-direction", turned, self.acting, strength, self.features, draw
                )
            )
        return found

    def random_features(self, strength: float, number: int) -> list[Condition]:
        """Other latents of equal activity; fewer than `number` where there are
        too few that are ever active.
        """
        rng = np.random.default_rng([self.seed, number])
        sets = equally_active(self.reader, self.features, self.readings.here, number, rng)
        return [
            self.steered(strength, features=one, role="random-feature", draw=n)
            for n, one in enumerate(sets)
        ]

    def mean_difference(self, strength: float) -> Condition:
        change = shift_change(
            mean_difference(self.readings.here), mode=self.mode, strength=strength
        )
        return self._condition("mean-difference", change, self.acting, strength)

    def difference_subspace(self, strength: float) -> Condition:
        basis = equal_error_basis(self.reader, self.features, self.readings.here)
        change = subspace_change(basis, mode=self.mode, acting=self.acting, strength=strength)
        return self._condition(
            "difference-subspace", change, self.acting, strength, directions=len(basis)
        )

    def routing(self) -> Condition:
        change = routing_change(self.dictionary, acting=self.acting, encoding=self.encoding)
        return self._condition("routing", change, self.acting, None)

    def spillover(self, strength: float) -> Condition:
        return self.steered(strength, role="spillover", acting=other_side(self.acting))

    def _change(self, features: tuple[int, ...], strength: float, acting: Side) -> Change:
        values = (
            median_values(self.reader, features, self.readings.here) if self.mode == "add" else None
        )
        alone = self.encoding == "own" and self.dictionary.config.models == 1
        encoding: Encoding = self.encoding if alone or acting == self.acting else "twice"
        return feature_change(
            self.dictionary,
            features,
            mode=self.mode,
            acting=acting,
            strength=strength,
            encoding=encoding,
            values=values,
            source="after",
        )

    def _condition(
        self,
        role: str,
        change: Change,
        acting: Side,
        strength: float | None,
        features: tuple[int, ...] = (),
        draw: int | None = None,
        directions: int | None = None,
    ) -> Condition:
        return Condition(
            role=role,
            acting=acting,
            change=change,
            mode=self.mode,
            strength=strength,
            features=features,
            draw=draw,
            directions=directions,
            dictionary=self.key,
        )
