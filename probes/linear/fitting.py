"""One linear probe: its direction in the space of the activations, and how it lies to other directions.

Two ways to fit it. `difference`: the difference of the two means, no choice to make. `logistic`: L2-regularised
logistic regression (`solver`). A probe that is fitted here is not yet a finding; `evaluate_probe` says what it tells
on tasks that it has not seen.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from probes.linear.solver import Columns, fit_difference_columns, fit_logistic_columns

METHODS: Final = ("difference", "logistic")
TOLERANCE: Final = 1e-8  # of log-odds
RANKING: Final = 1e-2  # where only the order of rows counts
Floats = np.ndarray


@dataclass(frozen=True, kw_only=True)
class LinearProbe:
    """`direction [features]` and `intercept`: a row's score is `row @ direction + intercept` (log-odds where the method
    is `logistic`). `ridge`: pull to 0 per row, `None` where the method has none."""

    method: str
    direction: Floats
    intercept: float
    ridge: float | None = None

    def scores(self, activations: Floats) -> Floats:
        """`[rows]` of `activations [rows, features]`; high where the label is expected."""
        found: Floats = np.asarray(activations, np.float64) @ self.direction + self.intercept
        return found


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """`cosines [directions]`; `p_value` of the largest of them in size, `None` without null directions to hold it
    against."""

    cosines: Floats
    p_value: float | None


def train_probe(activations: Floats, labels: Any, *, method: str = "logistic", ridge: float = 1e-2) -> LinearProbe:
    """Fit on all rows. `activations [rows, features]`, `labels [rows]` bool, `ridge` per row (see `solver`).

    Raises `UserError` for another method, shapes that do not fit, or labels that are all alike.
    """
    rows, wanted = np.asarray(activations, np.float64), np.asarray(labels, bool)
    if rows.ndim != 2 or wanted.shape != rows.shape[:1]:
        raise UserError(f"activations of shape {rows.shape} do not go with labels of shape {wanted.shape}; "
                        "give [rows, features] and [rows]")
    if wanted.all() or not wanted.any():
        raise UserError(f"all {len(wanted)} labels are alike; a probe needs rows of both kinds")
    fitted = fit_columns(rows, wanted[:, None], method, (ridge,), TOLERANCE)
    return LinearProbe(method=method, direction=fitted.weights[:, 0, 0], intercept=float(fitted.intercepts[0, 0]),
                       ridge=ridge if method == "logistic" else None)


def fit_columns(
    features: Floats, labels: Floats, method: str, ridges: tuple[float, ...], tolerance: float = RANKING
) -> Columns:
    """Many label columns at once (see `solver`). Raises `UserError` for an unknown method or strength."""
    if method not in METHODS:
        raise UserError(f"unknown probe method '{method}'; known: {', '.join(METHODS)}")
    if method == "difference":
        return fit_difference_columns(features, labels)
    if not ridges or min(ridges) <= 0:
        raise UserError(f"ridges of {ridges} leave a separable probe without an end; give strengths above 0")
    return fit_logistic_columns(features, labels, ridges, tolerance)


def alignment(direction: Floats, directions: Floats, nulls: Floats | None = None) -> Alignment:
    """Cosines of a probe's direction with others, such as the decoders of a dictionary.

    `direction [features]`, `directions [others, features]`. `nulls [shuffles, features]`: directions of probes fitted
    to shuffled labels on the same activations. They share the activations' uneven spread, so they are the null; a
    direction drawn evenly over the sphere would flatter every cosine. A cosine is not a cause: steer along it.
    Raises `UserError` where the widths differ.
    """
    wide = np.atleast_2d(np.asarray(directions, np.float64))
    if wide.shape[1] != len(direction):
        raise UserError(f"directions of width {wide.shape[1]} do not go with a probe of width {len(direction)}; "
                        "read both at the same site")
    cosines = _cosines(np.atleast_2d(direction), wide)[0]
    if nulls is None:
        return Alignment(cosines=cosines, p_value=None)
    beaten = np.abs(_cosines(np.atleast_2d(nulls), wide)).max(1) >= np.abs(cosines).max()
    return Alignment(cosines=cosines, p_value=float((1 + beaten.sum()) / (1 + len(beaten))))


def _cosines(first: Floats, second: Floats) -> Floats:
    """`[first, second]`; 0 with a direction of length 0."""
    lengths = np.linalg.norm(first, axis=1)[:, None] * np.linalg.norm(second, axis=1)
    found: Floats = np.divide(first @ second.T, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return found
