"""The table: progress advantage and every baseline on the same runs, by what
they are good for.

1. Uncertainty: AUROC of a run's success (`forensics.statistics`), and the rate of success in
   groups of runs from low scores to high.
2. Best of N: the rate of success of the run that a score chooses among N of one
   task. With `K >= N` graded runs the expectation over all subsets of size N is
   exact: the run of rank `r` (from the lowest) is the best of a subset with
   probability `C(r - 1, N - 1) / C(K, N)`; runs of equal scores share. Beside
   it stand a run at random and the oracle (a subset succeeds if any of its runs
   does). Intervals are paired and by task.
3. Each baseline is also compared with the progress advantage on the very same
   runs; a positive difference is in favour of the progress advantage.

The logistic model on both log-probabilities is fitted on one half of the tasks
and stands in the table with the other (`task_halves`). Orientations are fixed
beforehand: higher should mean success, lower entropy and fewer tokens should
too. An AUROC below a half stays below a half.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import comb
from typing import Any, Final

import numpy as np

import forensics.statistics as statistics
from forensics.errors import MissingInput
from forensics.statistics import Contrast, Estimate, auroc, auroc_difference, paired
from probes.grades.step_grades import ADVANTAGE, SUCCESS, GradedRun
from probes.grades.task_halves import fit_logistic, halves

BINS: Final = 10
CELLS = ("chosen", "mean", "oracle")
LOGISTIC: Final = "logistic on both log-probabilities"
BOTH: Final = ("log-probability, policy", "log-probability, reference")


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Runs whose scores lie between `least` and `most`; `mean`: of the scores.
    The rate of success and its interval, `None` where it rests on one task.
    """

    least: float
    most: float
    mean: float
    rate: float
    low: float | None
    high: float | None
    runs: int


def calibration(
    scores: np.ndarray,
    success: np.ndarray,
    tasks: Sequence[str],
    *,
    bins: int = BINS,
    level: float = 0.95,
) -> list[Bin]:
    """The rate of success in `bins` groups of about as many runs each, from low
    scores to high. Equal scores are never parted.
    """
    edges = np.unique(np.quantile(scores, np.linspace(0, 1, bins + 1)[1:-1]))
    place = np.searchsorted(edges, scores, "right")
    curve = []
    for i in np.unique(place):
        own, won = scores[place == i], np.asarray(success, float)[place == i]
        _, task = np.unique(np.asarray(tasks)[place == i], return_inverse=True)
        wins, runs = (np.bincount(task, of).astype(float) for of in (won, None))
        share = statistics.share(wins, runs, level=level) if task.max() > 0 else None
        curve.append(
            Bin(
                least=float(own.min()),
                most=float(own.max()),
                mean=float(own.mean()),
                rate=float(won.mean()),
                low=share.low if share else None,
                high=share.high if share else None,
                runs=len(own),
            )
        )
    return curve


@dataclass(frozen=True, kw_only=True)
class BestOf:
    """Rates of success. `gain`: of choosing by the score over drawing at
    random. `closed`: the share of the way from random to the oracle that it
    goes (`None` where the two are equal).
    """

    n: int
    chosen: Contrast
    mean: Contrast
    oracle: Contrast
    gain: Contrast

    @property
    def closed(self) -> float | None:
        room = self.oracle.estimate - self.mean.estimate
        return self.gain.estimate / room if room > 0 else None


def best_of(scores: np.ndarray, success: np.ndarray, tasks: Sequence[str], n: int) -> BestOf:
    """`scores [runs]` finite, `success [runs]` bool. Tasks with fewer than `n`
    runs take no part.

    Raises `MissingInput` where fewer than two tasks have `n` runs.
    """
    rows = [
        _expected(score, won, n)
        for score, won in by_task(scores, success, tasks).values()
        if len(score) >= n
    ]
    if len(rows) < 2:
        raise MissingInput(
            f"{len(rows)} of the tasks {'has' if len(rows) == 1 else 'have'} {n} graded runs.",
            f"Grade at least {n} runs of each of several tasks.",
        )
    table = np.array(rows).T[None]
    parts = {name: paired(table, np.eye(3)[i]) for i, name in enumerate(CELLS)}
    return BestOf(n=n, gain=paired(table, np.array([1.0, -1.0, 0.0])), **parts)


def best_of_difference(
    first: np.ndarray, second: np.ndarray, success: np.ndarray, tasks: Sequence[str], n: int
) -> Contrast:
    """Success when choosing by `first` minus by `second`. Raises as `best_of` does."""
    one, other = by_task(first, success, tasks), by_task(second, success, tasks)
    rows = [
        (_expected(*one[task], n)[0], _expected(*other[task], n)[0])
        for task in one
        if len(one[task][0]) >= n
    ]
    if len(rows) < 2:
        raise MissingInput(
            f"Fewer than two tasks have {n} graded runs.", f"Grade {n} runs of several tasks."
        )
    return paired(np.array(rows).T[None], np.array([1.0, -1.0]))


def common_size(tasks: Sequence[str]) -> int:
    """The number of runs that most tasks have, the larger one where two are as
    common; 0 without runs.
    """
    counts = np.unique(np.asarray(tasks), return_counts=True)[1] if len(tasks) else np.zeros(0, int)
    sizes, how_many = np.unique(counts, return_counts=True)
    return int(sizes[::-1][how_many[::-1].argmax()]) if len(sizes) else 0


def by_task(
    scores: np.ndarray, success: np.ndarray, tasks: Sequence[str]
) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    """Of each task, in the order of names, its scores and successes."""
    names, task = np.unique(np.asarray(tasks, dtype=str), return_inverse=True)
    order = np.argsort(task, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(task, minlength=len(names)))[:-1])
    return {
        str(name): (scores[part], success[part].astype(float))
        for name, part in zip(names, parts, strict=True)
    }


def _expected(scores: np.ndarray, success: np.ndarray, n: int) -> tuple[float, float, float]:
    """Chosen, mean and oracle over all subsets of size `n`."""
    best = np.array([comb(rank, n - 1) / comb(len(scores), n) for rank in range(len(scores))])
    chosen, first = 0.0, 0
    for value in np.unique(scores):  # runs of one value share their ranks
        equal = success[scores == value]
        chosen += best[first : first + len(equal)].sum() * equal.mean()
        first += len(equal)
    lost = int((success == 0).sum())
    return float(min(chosen, 1.0)), float(success.mean()), 1 - comb(lost, n) / comb(len(scores), n)


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """One score. What could not be measured is `None`, with the reason in
    `missing`.

    `advantage_auroc`, `advantage_best`: the progress advantage minus this score
    on the same runs; `None` for itself.
    """

    score: str
    runs: int
    auroc: Estimate | None = None
    best: BestOf | None = None
    advantage_auroc: Estimate | None = None
    advantage_best: Contrast | None = None
    missing: str | None = None


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """All scores, the progress advantage first. `n`: of best-of-N.
    `calibration`: of the progress advantage.
    """

    rows: tuple[ScoreRow, ...]
    n: int
    calibration: tuple[Bin, ...]
    runs: int
    tasks: int


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Runs with an outcome: `success [runs]`, `tasks [runs]`, and each score
    `[runs]` with NaN where it is missing.
    """

    success: np.ndarray
    tasks: np.ndarray
    scores: dict[str, np.ndarray]


def compare_scores(runs: Sequence[GradedRun], *, n: int | None = None, seed: int = 0) -> ScoreTable:
    """`n`: of best-of-N (default: as many runs as most tasks have). `seed`: of
    the split that fits the model.
    """
    columns = columns_of(runs)
    known = ~np.isnan(columns.scores[ADVANTAGE])
    size = n or max(2, common_size(columns.tasks.tolist()))
    rows = tuple(_row(name, columns, size) for name in columns.scores)
    logistic = _row(LOGISTIC, with_logistic(columns, seed), size)
    curve = (
        calibration(
            columns.scores[ADVANTAGE][known], columns.success[known], columns.tasks[known].tolist()
        )
        if known.any()
        else []
    )
    return ScoreTable(
        rows=(*rows, logistic),
        n=size,
        calibration=tuple(curve),
        runs=len(columns.success),
        tasks=len(np.unique(columns.tasks)),
    )


def columns_of(runs: Sequence[GradedRun]) -> Columns:
    """What is known of the runs that have an outcome."""
    judged = [run for run in runs if run.outcome is not None]
    names = judged[0].scores if judged else {ADVANTAGE: None}
    return Columns(
        success=np.array(
            [run.outcome is not None and run.outcome >= SUCCESS for run in judged], bool
        ),
        tasks=np.array([run.task for run in judged], dtype=str),
        scores={name: np.array([run.scores[name] for run in judged], float) for name in names},
    )


def with_logistic(columns: Columns, seed: int) -> Columns:
    """The columns with the fitted model's score, which runs of the fitting half do not have."""
    odds = np.full(len(columns.success), np.nan)
    if BOTH[0] in columns.scores and len(odds):
        features = np.column_stack([columns.scores[name] for name in BOTH])
        known = ~np.isnan(features).any(1)
        fitting = halves(columns.tasks.tolist(), seed)
        try:
            model = fit_logistic(features[known & fitting], columns.success[known & fitting])
            odds[known & ~fitting] = model.scores(features[known & ~fitting])[:, 0, 0]
        except MissingInput:
            pass  # then no run has this score, which the row says
    return replace(columns, scores=columns.scores | {LOGISTIC: odds})


def _row(name: str, columns: Columns, n: int) -> ScoreRow:
    known = ~np.isnan(columns.scores[name])
    both = known & ~np.isnan(columns.scores[ADVANTAGE])
    missing: list[str] = []

    def measured(measure: Callable[..., Any], chosen: np.ndarray, *scores: str) -> Any:
        values = [columns.scores[score][chosen] for score in scores]
        try:
            return measure(*values, columns.success[chosen], columns.tasks[chosen])
        except MissingInput as error:
            missing.append(error.reason)
            return None

    if not known.any():
        return ScoreRow(score=name, runs=0, missing="No run with an outcome has this score.")
    own = {
        "auroc": measured(auroc, known, name),
        "best": measured(partial(best_of, n=n), known, name),
    }
    rival = name != ADVANTAGE and {
        "advantage_auroc": measured(auroc_difference, both, ADVANTAGE, name),
        "advantage_best": measured(partial(best_of_difference, n=n), both, ADVANTAGE, name),
    }
    return ScoreRow(
        score=name,
        runs=int(known.sum()),
        **own,
        **(rival or {}),
        missing=missing[0] if missing else None,
    )


def table_rows(comparison: ScoreTable) -> Iterator[dict[str, Any]]:
    """Plain rows for files and `--json`."""
    for row in comparison.rows:
        yield {
            "score": row.score,
            "runs": row.runs,
            "auroc": row.auroc and row.auroc.row(),
            "best_of_n": row.best and row.best.chosen.row(),
            "gain_over_mean": row.best and row.best.gain.row(),
            "share_of_way_to_oracle": row.best and row.best.closed,
            "advantage_minus_this_auroc": row.advantage_auroc and row.advantage_auroc.row(),
            "advantage_minus_this_best_of_n": row.advantage_best and row.advantage_best.row(),
            "missing": row.missing,
        }
