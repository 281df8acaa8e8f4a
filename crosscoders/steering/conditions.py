"""What is run to test a set of features, and every control of equal size beside
it.

- features: all of the set; and the first 1, 2, 4, ... of it, for the curve of
  saturation
- random directions: the same change turned at random, so every row is moved
  exactly as far (the whole distribution)
- random features: other latents that are as often active
- mean shift: the mean of the models' difference, the same in every row, taken away or added
- difference subspace: as many principal directions of the difference as leave
  the same error
- routing: the activation replaced by the dictionary's reconstruction
- spillover: the same change in the other model, by what of the features is
  there
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from crosscoders.steering.activation_edits import (
    SIDES,
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
    FedDictionary,
    Readings,
    equal_error_basis,
    equally_active,
    mean_difference,
    median_values,
)
from forensics.errors import UserError
from forensics.records import content_hash

DEFAULT_STRENGTHS: dict[Mode, tuple[float, ...]] = {
    "ablate": (0.5, 1.0, 2.0),
    "scale": (0.0, 0.5, 2.0),
    "add": (0.5, 1.0, 2.0, 4.0),
}


@dataclass(frozen=True, kw_only=True)
class SteeringConfig:
    """`mode`: what is done; `acting`: in which model. `strengths`: what to
    choose from (empty: by mode).

    `controls`: random directions; `feature_controls`: random sets of features.
    `measure`: `success`, `channel:NAME`, `kind:NAME`, ... (`None`: chosen by
    rule). `breakage`: how much the share of runs handed in may fall, for a
    strength to be chosen. `encoding`: see `edits`. `level`: of the intervals.
    """

    mode: Mode = "ablate"
    acting: Side = "after"
    strengths: tuple[float, ...] = ()
    controls: int = 20
    feature_controls: int = 5
    measure: str | None = None
    breakage: float = 0.1
    encoding: Encoding = "both"
    level: float = 0.95

    def __post_init__(self) -> None:
        choices = {"mode": tuple(DEFAULT_STRENGTHS), "acting": SIDES, "encoding": ("both", "own")}
        for name, known in choices.items():
            if (value := getattr(self, name)) not in known:
                raise UserError(f"{name} is '{value}'; use one of: {', '.join(known)}")
        if self.controls < 0 or self.feature_controls < 0:
            raise UserError("the number of controls must be 0 or more")
        if not 0 < self.level < 1 or not 0 <= self.breakage <= 1:
            raise UserError("level and breakage are shares between 0 and 1")

    @property
    def tried(self) -> tuple[float, ...]:
        return self.strengths or DEFAULT_STRENGTHS[self.mode]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A dictionary (`key`: its hash, `name`: as it is told), an ordered set of
    its latents, and how they are used.
    """

    name: str
    key: str
    reader: FedDictionary
    features: tuple[int, ...]
    config: SteeringConfig
    readings: Readings
    seed: int

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
        side, config, dictionary = acting or self.config.acting, self.config, self.reader.dictionary
        alone = config.encoding == "own" and dictionary.config.models == 1
        added = config.mode == "add"
        change = feature_change(
            dictionary,
            chosen,
            mode=config.mode,
            acting=side,
            strength=strength,
            encoding=config.encoding if alone or side == config.acting else "twice",
            values=median_values(self.reader, chosen, self.readings.here) if added else None,
        )
        condition = self._condition(role, change, strength)
        return replace(condition, acting=side, features=chosen, draw=draw)

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
        plain, turned = self.steered(strength, role="random-direction"), []
        assert plain.change is not None
        for draw in range(number):
            seed = int(content_hash([self.seed, self.key, list(self.features), draw], 15), 16)
            change = plain.change.turned(torch.Generator().manual_seed(seed))
            turned.append(replace(plain, change=change, draw=draw))
        return turned

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

    def mean_shift(self, strength: float) -> Condition:
        difference = mean_difference(self.readings.here)
        change = shift_change(difference, mode=self.config.mode, strength=strength)
        return self._condition("mean-shift", change, strength)

    def difference_subspace(self, strength: float) -> Condition:
        mode, acting = self.config.mode, self.config.acting
        change = subspace_change(self._subspace, mode=mode, acting=acting, strength=strength)
        condition = self._condition("difference-subspace", change, strength)
        return replace(condition, directions=len(self._subspace))

    @cached_property
    def _subspace(self) -> Tensor:
        """Seconds of work, the same at every strength."""
        return equal_error_basis(self.reader, self.features, self.readings.here)

    def routing(self) -> Condition:
        acting, encoding = self.config.acting, self.config.encoding
        change = routing_change(self.reader.dictionary, acting=acting, encoding=encoding)
        return self._condition("routing", change, None)

    def spillover(self, strength: float) -> Condition:
        return self.steered(strength, role="spillover", acting=other_side(self.config.acting))

    def _condition(self, role: str, change: Change, strength: float | None) -> Condition:
        return Condition(
            role=role,
            acting=self.config.acting,
            change=change,
            mode=self.config.mode,
            strength=strength,
            dictionary=self.key,
        )
