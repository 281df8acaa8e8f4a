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
and stands in the table with the other (`halves`). Orientations are fixed
beforehand: higher should mean success, lower entropy and fewer tokens should
too. An AUROC below a half stays below a half.

What needs labels is chosen on one half of the tasks and reported on the other.

1. Halves are drawn by a seed, whole tasks at a time.
2. A logistic model of success on a few scores: what the two log-probabilities
   can tell at best when they are fitted. The progress advantage is their
   difference with weights 1 and -1, chosen by theory.
3. Another aggregation than the default. The source (2606.26080) picks the
   aggregation for each task on the data it reports on, which makes the best of
   many look better than it is. Here the default's figure on the reporting half
   stands beside the selected one's, and the selecting half's shows how much of
   a lead was luck.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import comb
from pathlib import Path
from typing import Any, Final

import numpy as np

import forensics.statistics as statistics
from forensics.errors import MissingInput, UserError
from forensics.policies import TokenScores
from forensics.records import parse_json, read_text
from forensics.statistics import Contrast, Estimate, auroc, auroc_difference, mean, paired, share
from probes.grades.step_grades import (
    ADVANTAGE,
    ALL,
    DEFAULT,
    SUCCESS,
    Aggregation,
    GradedRun,
    step_grades,
)
from probes.linear.probe_evaluation import TOLERANCE, Columns as Fitted, fit_logistic_columns

RIDGE: Final = (
    1.0  # pseudo-runs' worth of pull of the standardised weights to 0; keeps a perfect split finite
)
Grades = Mapping[Aggregation, float | None]


def fit_logistic(features: np.ndarray, success: np.ndarray, ridge: float = RIDGE) -> Fitted:
    """One column of weights. `features [runs, features]`, `success [runs]` bool.

    Raises `MissingInput` where all runs end alike.
    """
    if success.all() or not success.any():
        raise MissingInput(
            "All runs of the half that the model is fitted on end alike.", "Grade more runs."
        )
    pull = ridge / features.size  # per row, of features that share one row's norm
    return fit_logistic_columns(features, success[:, None], (pull,), TOLERANCE)


def halves(tasks: Sequence[str], seed: int) -> np.ndarray:
    """Which runs `[runs]` belong to the half that chooses; whole tasks, drawn
    by the seed, whatever their order.
    """
    names, task = np.unique(np.asarray(tasks, dtype=str), return_inverse=True)
    chosen = np.zeros(len(names), bool)
    chosen[np.random.default_rng(seed).permutation(len(names))[: (len(names) + 1) // 2]] = True
    selecting: np.ndarray = chosen[task]
    return selecting


@dataclass(frozen=True, kw_only=True)
class Selected:
    """`selecting`: its AUROC on the half that chose it. `reported`, `default`,
    `lead` (the difference) are of the other half.
    """

    aggregation: Aggregation
    selecting: Estimate
    reported: Estimate
    default: Estimate
    lead: Estimate


def grades_by(scored: TokenScores) -> dict[Aggregation, float | None]:
    """The progress advantage of one trajectory under each aggregation."""
    steps = {
        way: step_grades(scored, Aggregation(tokens=way)) for way in {one.tokens for one in ALL}
    }
    return {one: one.of_steps([step.grade for step in steps[one.tokens]]) for one in ALL}


def select(
    grades: Sequence[Grades], outcomes: Sequence[float | None], tasks: Sequence[str], seed: int
) -> Selected:
    """`grades`, `outcomes`, `tasks [runs]`. The default keeps its place where
    another only equals it.

    Raises `MissingInput` where a half has no successes or no failures.
    """
    rows = [
        i
        for i, outcome in enumerate(outcomes)
        if outcome is not None and all(value is not None for value in grades[i].values())
    ]
    success = np.array([(outcomes[i] or 0.0) >= SUCCESS for i in rows], bool)
    names = np.array([tasks[i] for i in rows], dtype=str)
    among = list(grades[rows[0]]) if rows else []
    if DEFAULT not in among:
        raise MissingInput("No run has an outcome and all grades.", "Grade runs with outcomes.")
    values = {one: np.array([grades[i][one] for i in rows], float) for one in among}
    first = halves(names.tolist(), seed)

    def on(half: np.ndarray, one: Aggregation) -> Estimate:
        return auroc(values[one][half], success[half], names[half])

    best = max(among, key=lambda one: (on(first, one).estimate, one == DEFAULT))
    return Selected(
        aggregation=best,
        selecting=on(first, best),
        reported=on(~first, best),
        default=on(~first, DEFAULT),
        lead=auroc_difference(
            values[best][~first], values[DEFAULT][~first], success[~first], names[~first]
        ),
    )


# -- the table ---------------------------------------------------------------------------

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


NEAR: Final = 1  # actions
CHANCE: Final = "a step at random"


def _changes(grades: np.ndarray) -> np.ndarray:
    return np.diff(grades, prepend=0.0)


PREDICTORS: Final[Mapping[str, Callable[[np.ndarray], np.ndarray]]] = {  # the largest is named
    "lowest sum": lambda grades: -np.cumsum(grades),
    "sharpest drop": lambda grades: -_changes(grades),
    "sharpest change": lambda grades: np.abs(_changes(grades)),
}


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """Accuracy of one predictor: at the true step, and within one action of it.
    Over `runs` with a known truth.
    """

    predictor: str
    at: Estimate
    near: Estimate
    runs: int


def predicted(grades: Sequence[float | None], predictor: str) -> tuple[int, ...]:
    """Places in `grades` that a predictor names (several where they tie); none
    where no step has a grade.
    """
    known = [i for i, grade in enumerate(grades) if grade is not None]
    if not known:
        return ()
    strength = PREDICTORS[predictor](np.array([grades[i] for i in known], float))
    return tuple(known[i] for i in np.flatnonzero(strength == strength.max()))


def failure_attribution(
    runs: Sequence[GradedRun],
    truth: Mapping[str, int],
    grades: Callable[[GradedRun], Sequence[float | None]] | None = None,
) -> list[Attribution]:
    """At which step was a run lost? Three predictors (2606.26080).

    1. Lowest sum: the step after which the running sum of grades is least: what it
       lost is never made up for later.
    2. Sharpest drop: the step whose grade falls most below that of the step before.
    3. Sharpest change: the step whose grade differs most from that of the step
       before, up or down.

    The first step is compared with 0, which is what a step earns on which both
    checkpoints agree. Predictors know nothing else of the run. Steps without a
    grade are passed over. Where several steps tie, each is named with equal chance,
    so constant grades are right as often as chance. Beside every accuracy stands
    that of naming a step at random.

    Accuracy of the three predictors and of chance. `truth`: of each
    trajectory by id, the number of the step that lost it. `grades`: of a run's
    steps, other than the progress advantage.

    Runs without a truth, or with one that is no graded step, take no part.
    Raises `MissingInput` for fewer than two tasks.
    """
    numbers = grades or (lambda run: [step.grade for step in run.steps])
    cases = [
        (run.task, values, place)  # the true step's place among the run's actions
        for run in runs
        for values in [numbers(run)]
        for place, step in enumerate(run.steps)
        if step.step == truth.get(run.trajectory) and values[place] is not None
    ]
    named = {name: [predicted(values, name) for _, values, _ in cases] for name in PREDICTORS}
    named[CHANCE] = [
        tuple(i for i, value in enumerate(values) if value is not None) for _, values, _ in cases
    ]
    return [_accuracy(name, places, cases) for name, places in named.items()]


def _accuracy(
    name: str,
    named: Sequence[tuple[int, ...]],
    cases: Sequence[tuple[str, Sequence[float | None], int]],
) -> Attribution:
    names, task = np.unique(np.asarray([task for task, _, _ in cases], str), return_inverse=True)
    counts = np.bincount(task, minlength=len(names)).astype(float)
    shares = []
    for reach in (0, NEAR):
        right = [
            np.mean([abs(i - place) <= reach for i in places])
            for places, (_, _, place) in zip(named, cases, strict=True)
        ]
        hits = np.bincount(task, np.array(right, float), len(names)).astype(float)
        shares.append(share(hits, counts))
    return Attribution(predictor=name, at=shares[0], near=shares[1], runs=len(cases))


def read_truth(path: Path) -> dict[str, int]:
    """Of each run, the step that lost it: JSON lines with `trajectory` and
    `step`. Raises `UserError`.
    """
    lines = read_text(path, "", "give JSON lines with `trajectory` and `step`").splitlines()
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = parse_json(line)
            found[str(row["trajectory"])] = int(row["step"])
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"line {number} of {path} does not say `trajectory` and `step`; write both"
            ) from None
    return found


BySort = Mapping[str, tuple[list[float], list[float]]]  # by task


@dataclass(frozen=True, kw_only=True)
class StepContrast(Estimate):
    """Does the grade reward a shortcut? Grades of the steps that try a channel, against the
    others of the same tasks.

    For a policy that was trained on a leak it should: the grade measures what RL rewarded,
    not what is right. So a positive figure is a warning against using the grade as a judge
    of steps, and says where the reward went.

    Mean grade of some steps minus that of the others, nats a token, paired
    by task. `inside`, `outside`: the two means over the same tasks. `n`: the
    steps that are inside.
    """

    inside: float
    outside: float


def contrast(
    runs: Iterable[GradedRun], kinds: Collection[str], *, level: float = 0.95
) -> StepContrast:
    """Steps that have one of `kinds` against the rest, over tasks that have
    both.

    Raises `MissingInput` where fewer than two tasks have.
    """
    return _contrast(_by_task(runs, kinds), level)


def shuffled_contrast(
    runs: Iterable[GradedRun],
    kinds: Collection[str],
    generator: np.random.Generator,
    *,
    level: float = 0.95,
) -> StepContrast:
    """The control: as many steps of each task as are of `kinds`, drawn at
    random. Raises as `contrast` does.
    """
    permuted = {}
    for task, (inside, outside) in sorted(_by_task(runs, kinds).items()):
        every = generator.permutation(sorted([*inside, *outside]))
        permuted[task] = (every[: len(inside)].tolist(), every[len(inside) :].tolist())
    return _contrast(permuted, level)


def _by_task(runs: Iterable[GradedRun], kinds: Collection[str]) -> BySort:
    """Of each task the grades of steps of these kinds, and of the others."""
    grades: dict[str, tuple[list[float], list[float]]] = {}
    for run in runs:
        for step in run.steps:
            if step.grade is not None:
                grades.setdefault(run.task, ([], []))[not set(kinds) & set(step.kinds)].append(
                    step.grade
                )
    return grades


def _contrast(grades: BySort, level: float) -> StepContrast:
    both = [pair for _, pair in sorted(grades.items()) if pair[0] and pair[1]]
    if len(both) < 2:
        raise MissingInput(
            f"{len(both)} of the tasks {'has' if len(both) == 1 else 'have'} steps of both sorts.",
            "Grade more runs.",
        )
    means = np.array([[np.mean(sorted(side)) for side in pair] for pair in both])
    found = vars(mean(means[:, 0] - means[:, 1], level=level))
    found |= {"n": sum(len(grades) for grades, _ in both)}
    return StepContrast(
        **found, inside=float(means[:, 0].mean()), outside=float(means[:, 1].mean())
    )
