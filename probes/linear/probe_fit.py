"""Linear probes fitted: one, or many label columns and many strengths at once.

`difference`: the difference of the two means, no choice to make. `logistic`:
L2-regularised logistic regression, as follows.

1. Features are centred and scaled one by one, then divided by the root of their
   number: a row's mean squared norm is 1, and `ridge` is the pull of the
   weights to 0 per row, whatever the width and the number of rows.
2. They are turned to their principal coordinates. The penalty does not see a
   rotation, so nothing is lost; where there are more features than rows, the
   coordinates are as many as the rows.
3. There the curvature of the loss lies below a diagonal matrix, a quarter of
   the squared singular values (Böhning, Ann. Inst. Stat. Math. 1992), so a step
   is elementwise and all columns go side by side in two matrix products.
   Nesterov's momentum, restarted for each column where it turns back
   (O'Donoghue and Candès, 1204.3982).

A probe that is fitted here is not yet a finding; `evaluate_probe` says what it
tells on tasks that it has not seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forensics.errors import UserError

STEPS: Final = 1000
SMALL: Final = 1e-10
Floats = np.ndarray
METHODS: Final = ("difference", "logistic")
TOLERANCE: Final = 1e-8  # of log-odds
RANKING: Final = 1e-2  # where only the order of rows counts


@dataclass(frozen=True, kw_only=True)
class Columns:
    """`weights [features, strengths, columns]` on features as they come,
    `intercepts [strengths, columns]`.
    """

    weights: Floats
    intercepts: Floats

    def scores(self, features: Floats) -> Floats:
        """Log-odds `[rows, strengths, columns]` of `features [rows, features]`."""
        flat = features @ self.weights.reshape(len(self.weights), -1)
        log_odds: Floats = flat.reshape(len(features), *self.intercepts.shape) + self.intercepts
        return log_odds


def fit_logistic_columns(
    features: Floats, labels: Floats, ridges: Sequence[float], tolerance: float = 1e-4
) -> Columns:
    """`features [rows, features]`, `labels [rows, columns]` bool, `ridges` per
    row. `tolerance`: of log-odds.

    A column whose labels are all alike gets weights of 0.
    """
    features, wanted = np.asarray(features, np.float64), np.asarray(labels, np.float64)
    centre, scale = features.mean(0), features.std(0)
    scale = np.where(scale > SMALL * max(float(scale.max()), SMALL), scale, np.inf) * np.sqrt(
        features.shape[1]
    )
    turned, back, squares = principal_components((features - centre) / scale)
    pull = np.repeat(np.asarray(ridges, float) * len(features), wanted.shape[1])
    solution, constant = descend(turned, np.tile(wanted, len(ridges)), squares, pull, tolerance)
    weights = (back @ solution) / scale[:, None]
    shape = (len(ridges), wanted.shape[1])
    return Columns(
        weights=weights.reshape(-1, *shape), intercepts=(constant - centre @ weights).reshape(shape)
    )


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


def principal_components(standard: Floats) -> tuple[Floats, Floats, Floats]:
    """Coordinates `[rows, rank]`, the turn back `[features, rank]`, squared
    singular values `[rank]`.
    """
    rows, width = standard.shape
    wide = width > rows
    squares, vectors = np.linalg.eigh(standard @ standard.T if wide else standard.T @ standard)
    kept = squares > SMALL * max(float(squares[-1]), SMALL)
    squares, vectors = squares[kept], vectors[:, kept]
    if wide:
        return vectors * np.sqrt(squares), standard.T @ (vectors / np.sqrt(squares)), squares
    return standard @ vectors, vectors, squares


def descend(
    turned: Floats, wanted: Floats, squares: Floats, pull: Floats, tolerance: float
) -> tuple[Floats, Floats]:
    """Weights `[rank, columns]` and intercepts `[columns]`. Columns that have
    arrived are left out from then on.
    """
    rows, rate = len(turned), wanted.mean(0)
    mixed = (rate > 0) & (rate < 1)
    rate = np.where(mixed, rate, 0.5)
    design = np.column_stack([turned, np.ones(rows)])
    curvature = np.append(squares, rows)
    solution = np.vstack([np.zeros((turned.shape[1], len(pull))), np.log(rate / (1 - rate))])
    penalised = np.append(np.ones(len(squares)), 0.0)
    left = np.flatnonzero(mixed)
    at, ahead, age = solution[:, left], solution[:, left], np.ones(len(left))
    for _ in range(STEPS):
        if not len(left):
            break
        strength = np.outer(penalised, pull[left])
        bound = curvature[:, None] / 4 + strength
        slope = (
            design.T @ (wanted[:, left] - (0.5 + 0.5 * np.tanh(design @ ahead / 2)))
            - strength * ahead
        )
        step = slope / bound
        old, (at, ahead, age) = at, _accelerated(at, ahead, age, step, slope)
        solution[:, left] = at
        moving = (
            np.maximum(_size(step, curvature, rows), _size(at - old, curvature, rows)) >= tolerance
        )
        left, at, ahead, age = left[moving], at[:, moving], ahead[:, moving], age[moving]
    return solution[:-1], solution[-1]


def _accelerated(
    at: Floats, ahead: Floats, age: Floats, step: Floats, slope: Floats
) -> tuple[Floats, Floats, Floats]:
    """The next place, where to look from, and the momentum's age; a column that
    turned back starts afresh.
    """
    new = ahead + step
    moved = new - at
    turned_back = (slope * moved).sum(0) < 0
    older = np.where(turned_back, 1.0, (1 + np.sqrt(1 + 4 * age**2)) / 2)
    return new, new + np.where(turned_back, 0.0, (age - 1) / older) * moved, older


def _size(step: Floats, curvature: Floats, rows: int) -> Floats:
    """By how much a step moves each column's log-odds: root mean square over rows."""
    sizes: Floats = np.sqrt((step**2 * curvature[:, None]).sum(0) / rows)
    return sizes


@dataclass(frozen=True, kw_only=True)
class LinearProbe:
    """`direction [features]` and `intercept`: a row's score is `row @ direction
    + intercept` (log-odds where the method is `logistic`). `ridge`: pull to 0
    per row, `None` where the method has none.
    """

    method: str
    direction: Floats
    intercept: float
    ridge: float | None = None

    def scores(self, activations: Floats) -> Floats:
        """`[rows]` of `activations [rows, features]`; high where the label is expected."""
        log_odds: Floats = np.asarray(activations, np.float64) @ self.direction + self.intercept
        return log_odds


def train_probe(
    activations: Floats, labels: Any, *, method: str = "logistic", ridge: float = 1e-2
) -> LinearProbe:
    """Fit on all rows. `activations [rows, features]`, `labels [rows]` bool,
    `ridge` per row (see above).

    Raises `UserError` for another method, shapes that do not fit, or labels
    that are all alike.
    """
    rows, wanted = np.asarray(activations, np.float64), np.asarray(labels, bool)
    if rows.ndim != 2 or wanted.shape != rows.shape[:1]:
        raise UserError(
            f"activations of shape {rows.shape} do not go with labels of shape {wanted.shape}; "
            "give [rows, features] and [rows]"
        )
    if wanted.all() or not wanted.any():
        raise UserError(f"all {len(wanted)} labels are alike; a probe needs rows of both kinds")
    fitted = fit_columns(rows, wanted[:, None], method, (ridge,), TOLERANCE)
    return LinearProbe(
        method=method,
        direction=fitted.weights[:, 0, 0],
        intercept=float(fitted.intercepts[0, 0]),
        ridge=ridge if method == "logistic" else None,
    )


def fit_columns(
    features: Floats,
    labels: Floats,
    method: str,
    ridges: tuple[float, ...],
    tolerance: float = RANKING,
) -> Columns:
    """Many label columns at once (see above). Raises `UserError` for an
    unknown method or strength.
    """
    if method not in METHODS:
        raise UserError(f"unknown probe method '{method}'; known: {', '.join(METHODS)}")
    if method == "difference":
        return fit_difference_columns(features, labels)
    if not ridges or min(ridges) <= 0:
        raise UserError(
            f"ridges of {ridges} leave a separable probe without an end; give strengths above 0"
        )
    return fit_logistic_columns(features, labels, ridges, tolerance)
