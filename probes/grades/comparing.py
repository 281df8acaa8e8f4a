"""The table: progress advantage and every baseline on the same runs, by what they are good for.

1. Uncertainty: AUROC of a run's success (`ranking`).
2. Best of N: the rate of success of the run that a score chooses among N of one task (`best_of`).
3. Each baseline is also compared with the progress advantage on the very same runs; a positive difference is in favour
   of the progress advantage.

The logistic model on both log-probabilities is fitted on one half of the tasks and stands in the table with the other.
Orientations are fixed beforehand: higher should mean success, lower entropy and fewer tokens should too. An AUROC below
a half stays below a half.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forensics.errors import MissingInput
from forensics.statistics import ContrastEstimate
from probes.grades.best_of import BestOf, best_of, best_of_difference, common_size
from probes.grades.grading import ADVANTAGE, Graded
from probes.grades.logistic import fit_logistic, halves
from probes.grades.ranking import Bin, Ranked, auroc, auroc_difference, calibration

SUCCESS: Final = 0.5  # the outcome from which a run is a success
LOGISTIC: Final = "logistic on both log-probabilities"
BOTH: Final = ("log-probability, policy", "log-probability, reference")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One score. What could not be measured is `None`, with the reason in `missing`.

    `advantage_auroc`, `advantage_best`: the progress advantage minus this score on the same runs; `None` for itself.
    """

    score: str
    runs: int
    auroc: Ranked | None
    best: BestOf | None
    advantage_auroc: Ranked | None
    advantage_best: ContrastEstimate | None
    missing: str | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All scores, the progress advantage first. `n`: of best-of-N. `calibration`: of the progress advantage."""

    rows: tuple[Compared, ...]
    n: int
    calibration: tuple[Bin, ...]
    runs: int
    tasks: int


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Runs with an outcome: `success [runs]`, `tasks [runs]`, and each score `[runs]` with NaN where it is missing."""

    success: np.ndarray
    tasks: np.ndarray
    scores: dict[str, np.ndarray]


def compare(runs: Sequence[Graded], *, n: int | None = None, seed: int = 0) -> Comparison:
    """`n`: of best-of-N (default: as many runs as most tasks have). `seed`: of the split that fits the model."""
    columns = columns_of(runs)
    known = ~np.isnan(columns.scores[ADVANTAGE])
    size = n or max(2, common_size(columns.tasks.tolist()))
    rows = tuple(_row(name, columns, size) for name in columns.scores)
    logistic = _row(LOGISTIC, _with_logistic(columns, seed), size)
    curve = calibration(columns.scores[ADVANTAGE][known], columns.success[known], columns.tasks[known].tolist()) \
        if known.any() else []
    return Comparison(rows=(*rows, logistic), n=size, calibration=tuple(curve), runs=len(columns.success),
                      tasks=len(np.unique(columns.tasks)))


def columns_of(runs: Sequence[Graded]) -> Columns:
    """What is known of the runs that have an outcome."""
    judged = [run for run in runs if run.outcome is not None]
    names = judged[0].scores if judged else {ADVANTAGE: None}
    return Columns(
        success=np.array([run.outcome is not None and run.outcome >= SUCCESS for run in judged], bool),
        tasks=np.array([run.task for run in judged], dtype=str),
        scores={name: np.array([run.scores[name] for run in judged], float) for name in names},
    )


def _with_logistic(columns: Columns, seed: int) -> Columns:
    """The columns with the fitted model's score, which runs of the fitting half do not have."""
    found = np.full(len(columns.success), np.nan)
    features = np.column_stack([columns.scores[name] for name in BOTH]) if BOTH[0] in columns.scores else None
    if features is not None and len(features):
        known = ~np.isnan(features).any(1)
        fitting = halves(columns.tasks.tolist(), seed)
        try:
            model = fit_logistic(features[known & fitting], columns.success[known & fitting])
            found[known & ~fitting] = model.scores(features[known & ~fitting])
        except MissingInput:
            pass  # then no run has this score, which the row says
    return Columns(success=columns.success, tasks=columns.tasks, scores=columns.scores | {LOGISTIC: found})


def _row(name: str, columns: Columns, n: int) -> Compared:
    known = ~np.isnan(columns.scores[name])
    both = known & ~np.isnan(columns.scores[ADVANTAGE])
    rivals = name != ADVANTAGE
    missing: list[str] = []

    def told(measure: Callable[..., Any], chosen: np.ndarray, *scores: str, more: tuple[int, ...] = ()) -> Any:
        values = [columns.scores[score][chosen] for score in scores]
        return _or_none(lambda: measure(*values, columns.success[chosen], columns.tasks[chosen].tolist(), *more),
                        missing)

    if not known.any():
        return Compared(score=name, runs=0, auroc=None, best=None, advantage_auroc=None, advantage_best=None,
                        missing="No run with an outcome has this score.")
    return Compared(
        score=name, runs=int(known.sum()), auroc=told(auroc, known, name), best=told(best_of, known, name, more=(n,)),
        advantage_auroc=told(auroc_difference, both, ADVANTAGE, name) if rivals else None,
        advantage_best=told(best_of_difference, both, ADVANTAGE, name, more=(n,)) if rivals else None,
        missing=missing[0] if missing else None,
    )


def _or_none(measure: Callable[[], Any], missing: list[str]) -> Any:
    try:
        return measure()
    except MissingInput as error:
        missing.append(error.reason)
        return None


def table_rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Plain rows for files and `--json`."""
    for row in comparison.rows:
        yield {
            "score": row.score, "runs": row.runs, "auroc": interval(row.auroc),
            "best_of_n": interval(row.best.chosen if row.best else None),
            "gain_over_mean": interval(row.best.gain if row.best else None),
            "share_of_way_to_oracle": row.best.closed if row.best else None,
            "advantage_minus_this_auroc": interval(row.advantage_auroc),
            "advantage_minus_this_best_of_n": interval(row.advantage_best), "missing": row.missing,
        }


def interval(found: Ranked | ContrastEstimate | None) -> dict[str, float] | None:
    """`estimate`, `low`, `high`, `level`."""
    if found is None:
        return None
    return {"estimate": found.estimate, "low": found.low, "high": found.high, "level": found.level}
