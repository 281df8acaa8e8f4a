"""A logistic model of success on a few scores: what the two log-probabilities can tell at best when they are fitted.

The progress advantage is their difference with weights 1 and -1, chosen by theory. A fitted model may choose any
weights, so it needs labels, and is fitted on one half of the tasks and reported on the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forensics.errors import MissingInput

RIDGE: Final = 1.0  # pseudo-runs' worth of pull of the standardised weights to 0; keeps a perfect split finite
STEPS: Final = 50
SMALL: Final = 1e-10


@dataclass(frozen=True, kw_only=True)
class Logistic:
    """`weights [features]` on standardised features, `centre` and `scale [features]`."""

    weights: np.ndarray
    intercept: float
    centre: np.ndarray
    scale: np.ndarray

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Log-odds of success `[runs]` of `features [runs, features]`."""
        found: np.ndarray = (features - self.centre) / self.scale @ self.weights + self.intercept
        return found


def fit_logistic(features: np.ndarray, success: np.ndarray, ridge: float = RIDGE) -> Logistic:
    """By Newton's method. `features [runs, features]`, `success [runs]` bool.

    Raises `MissingInput` where all runs end alike.
    """
    wins = np.asarray(success, float)
    if not 0 < wins.sum() < len(wins):
        raise MissingInput("All runs of the half that the model is fitted on end alike.", "Grade more runs.")
    centre, scale = features.mean(0), features.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    design = np.column_stack([np.ones(len(wins)), (features - centre) / scale])
    pull = np.diag([0.0, *[ridge] * features.shape[1]])
    found = np.array([np.log(wins.mean() / (1 - wins.mean())), *[0.0] * features.shape[1]])
    for _ in range(STEPS):
        step = _newton(design, wins, found, pull)
        found += step
        if np.abs(step).max() < SMALL:
            break
    return Logistic(weights=found[1:], intercept=float(found[0]), centre=centre, scale=scale)


def _newton(design: np.ndarray, wins: np.ndarray, at: np.ndarray, pull: np.ndarray) -> np.ndarray:
    chance = 1 / (1 + np.exp(-np.clip(design @ at, -500, 500)))
    slope = design.T @ (wins - chance) - pull @ at
    curve = (design * (chance * (1 - chance))[:, None]).T @ design + pull
    step: np.ndarray = np.linalg.solve(curve, slope)
    return step * min(1.0, 5.0 / max(float(np.abs(step).max()), SMALL))  # no leap to where the curve is flat


def halves(tasks: Sequence[str], seed: int) -> np.ndarray:
    """Which runs `[runs]` belong to the half that chooses; whole tasks, drawn by the seed, whatever their order."""
    names, task = np.unique(np.asarray(tasks, dtype=str), return_inverse=True)
    chosen = np.zeros(len(names), bool)
    chosen[np.random.default_rng(seed).permutation(len(names))[: (len(names) + 1) // 2]] = True
    found: np.ndarray = chosen[task]
    return found
