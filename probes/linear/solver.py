"""L2-regularised logistic regression for many label columns and many strengths at once.

1. Features are centred and scaled one by one, then divided by the root of their number: a row's mean squared norm is 1,
   and `ridge` is the pull of the weights to 0 per row, whatever the width and the number of rows.
2. They are turned to their principal coordinates. The penalty does not see a rotation, so nothing is lost; where there
   are more features than rows, the coordinates are as many as the rows.
3. There the curvature of the loss lies below a diagonal matrix, a quarter of the squared singular values (Böhning,
   Ann. Inst. Stat. Math. 1992), so a step is elementwise and all columns go side by side in two matrix products.
   Nesterov's momentum, restarted for each column where it turns back (O'Donoghue and Candès, 1204.3982).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

STEPS: Final = 1000
SMALL: Final = 1e-10
Floats = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Columns:
    """`weights [features, strengths, columns]` on features as they come, `intercepts [strengths, columns]`."""

    weights: Floats
    intercepts: Floats

    def scores(self, features: Floats) -> Floats:
        """Log-odds `[rows, strengths, columns]` of `features [rows, features]`."""
        flat = features @ self.weights.reshape(len(self.weights), -1)
        found: Floats = flat.reshape(len(features), *self.intercepts.shape) + self.intercepts
        return found


def fit_logistic_columns(
    features: Floats, labels: Floats, ridges: Sequence[float], tolerance: float = 1e-4
) -> Columns:
    """`features [rows, features]`, `labels [rows, columns]` bool, `ridges` per row. `tolerance`: of log-odds.

    A column whose labels are all alike gets weights of 0.
    """
    features, wanted = np.asarray(features, np.float64), np.asarray(labels, np.float64)
    centre, scale = features.mean(0), features.std(0)
    scale = np.where(scale > SMALL * max(float(scale.max()), SMALL), scale, np.inf) * np.sqrt(features.shape[1])
    turned, back, squares = _principal((features - centre) / scale)
    pull = np.repeat(np.asarray(ridges, float) * len(features), wanted.shape[1])
    found, constant = _descend(turned, np.tile(wanted, len(ridges)), squares, pull, tolerance)
    weights = (back @ found) / scale[:, None]
    shape = (len(ridges), wanted.shape[1])
    return Columns(weights=weights.reshape(-1, *shape), intercepts=(constant - centre @ weights).reshape(shape))


def fit_difference_columns(features: Floats, labels: Floats) -> Columns:
    """Difference of the two means, with the threshold half-way. One strength. Shapes as above."""
    features, wanted = np.asarray(features, np.float64), np.asarray(labels, np.float64)
    ones, zeros = wanted.sum(0), (1 - wanted).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        high, low = features.T @ wanted / ones, features.T @ (1 - wanted) / zeros
    known = (ones > 0) & (zeros > 0)
    weights = np.where(known, high - low, 0.0)
    middle = np.where(known, high + low, 0.0) / 2
    return Columns(weights=weights[:, None, :], intercepts=-(weights * middle).sum(0)[None, :])


def _principal(standard: Floats) -> tuple[Floats, Floats, Floats]:
    """Coordinates `[rows, rank]`, the turn back `[features, rank]`, squared singular values `[rank]`."""
    rows, width = standard.shape
    wide = width > rows
    squares, vectors = np.linalg.eigh(standard @ standard.T if wide else standard.T @ standard)
    kept = squares > SMALL * max(float(squares[-1]), SMALL)
    squares, vectors = squares[kept], vectors[:, kept]
    if wide:
        return vectors * np.sqrt(squares), standard.T @ (vectors / np.sqrt(squares)), squares
    return standard @ vectors, vectors, squares


def _descend(
    turned: Floats, wanted: Floats, squares: Floats, pull: Floats, tolerance: float
) -> tuple[Floats, Floats]:
    """Weights `[rank, columns]` and intercepts `[columns]`. Columns that have arrived are left out from then on."""
    rows, rate = len(turned), wanted.mean(0)
    mixed = (rate > 0) & (rate < 1)
    rate = np.where(mixed, rate, 0.5)
    design = np.column_stack([turned, np.ones(rows)])
    curvature = np.append(squares, rows)
    found = np.vstack([np.zeros((turned.shape[1], len(pull))), np.log(rate / (1 - rate))])
    penalised = np.append(np.ones(len(squares)), 0.0)
    left = np.flatnonzero(mixed)
    at, ahead, age = found[:, left], found[:, left], np.ones(len(left))
    for _ in range(STEPS):
        if not len(left):
            break
        strength = np.outer(penalised, pull[left])
        bound = curvature[:, None] / 4 + strength
        slope = design.T @ (wanted[:, left] - _chance(design @ ahead)) - strength * ahead
        step = slope / bound
        old, (at, ahead, age) = at, _accelerated(at, ahead, age, step, slope)
        found[:, left] = at
        moving = np.maximum(_size(step, curvature, rows), _size(at - old, curvature, rows)) >= tolerance
        left, at, ahead, age = left[moving], at[:, moving], ahead[:, moving], age[moving]
    return found[:-1], found[-1]


def _accelerated(
    at: Floats, ahead: Floats, age: Floats, step: Floats, slope: Floats
) -> tuple[Floats, Floats, Floats]:
    """The next place, where to look from, and the momentum's age; a column that turned back starts afresh."""
    new = ahead + step
    moved = new - at
    turned_back = (slope * moved).sum(0) < 0
    older = np.where(turned_back, 1.0, (1 + np.sqrt(1 + 4 * age**2)) / 2)
    return new, new + np.where(turned_back, 0.0, (age - 1) / older) * moved, older


def _chance(odds: Floats) -> Floats:
    found: Floats = 0.5 + 0.5 * np.tanh(odds / 2)
    return found


def _size(step: Floats, curvature: Floats, rows: int) -> Floats:
    """By how much a step moves each column's log-odds: root mean square over rows."""
    found: Floats = np.sqrt((step**2 * curvature[:, None]).sum(0) / rows)
    return found
