"""From numbers of tokens to one of a step, and from steps to one of a trajectory.

The default is fixed beforehand: mean over a step's own sampled tokens, mean over steps (2606.26080, section 3). The
paper picks another one per task on the data it reports on; here any other goes through `selection`.
For a step of several tokens the identity `A* = beta * log-ratio` holds for the *sum*.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

WAYS: Final[Mapping[str, Callable[[np.ndarray], float]]] = {
    "mean": lambda values: float(values.mean()),
    "sum": lambda values: float(values.sum()),
    "min": lambda values: float(values.min()),
    "max": lambda values: float(values.max()),
    "last": lambda values: float(values[-1]),
}


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """`tokens`: over the sampled tokens of a step; `steps`: over the steps of a trajectory. Each one of `WAYS`."""

    tokens: str = "mean"
    steps: str = "mean"

    def __post_init__(self) -> None:
        for name in (self.tokens, self.steps):
            if name not in WAYS:
                raise ValueError(f"there is no aggregation '{name}'; use one of {', '.join(WAYS)}")

    @property
    def name(self) -> str:
        return f"{self.tokens} of tokens, {self.steps} of steps"

    def of_tokens(self, values: np.ndarray) -> float | None:
        """`values [tokens]`; `None` where there are none, or one is not finite (not read, or without any chance)."""
        return _known(values, self.tokens)

    def of_steps(self, values: Sequence[float | None]) -> float | None:
        """Steps that are `None` take no part; `None` where none is left."""
        return _known(np.array([value for value in values if value is not None], float), self.steps)


DEFAULT: Final = Aggregation()
ALL: Final = tuple(Aggregation(tokens=tokens, steps=steps) for tokens in WAYS for steps in WAYS)


def _known(values: np.ndarray, way: str) -> float | None:
    return WAYS[way](values) if len(values) and np.isfinite(values).all() else None
