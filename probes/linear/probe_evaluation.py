"""What a probe tells on tasks that it has not seen, beside what the text tells
and what shuffled labels give.

1. Nested splits: tasks are dealt into folds, and fold f is reported on by a
   probe that never saw its tasks. The choice of site and strength for f is made
   on the other folds, each held out in turn. A probe without f and g serves the
   choice for f (scored on g) and for g (scored on f), so pairs of folds are
   fitted once. Labels that depend on the task alone therefore earn nothing.
2. AUROC over pairs of rows within a fold, with tasks as the unit
   (`forensics.statistics.rank_statistics`).
3. Text-only baselines go through the same nested splits; the difference to each
   is paired by task.
4. Shuffled labels: the whole distribution, each column with its own choice of
   site and strength, as free as the true one, gives the p-value of "the
   activations tell nothing".
5. Transfer: fitted on one set of readings and read on another, still never on a
   task that it was fitted on. Another checkpoint or another organism is just
   other readings of the same sites. There the shuffled probes face the true
   labels: where one thing (the turn) dominates both, a probe fitted to nothing
   may lie along it, and the null is wide.

One question, measured whole: the probe, the difference of means through the
same splits, and the transfer from the first checkpoint's own runs and
activations. A probe that beats the text says that the answer is linearly there,
not that the policy uses it.

Linear probes fitted: one, or many label columns and many strengths at once.

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from forensics.errors import MissingInput, UserError, stop_outside
from forensics.statistics import Estimate, auroc, auroc_columns, auroc_difference
from probes.linear.probe_data import ProbeData, text_features

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


FEWEST_TASKS_A_FOLD: Final = 2


@dataclass(frozen=True, kw_only=True)
class HeldOutScores:
    """Scores of rows by probes that never saw their tasks.

    `scores [rows, columns]`: with site and strength chosen inside. `by_site`:
    of each site with the strength chosen.
    `chosen`: for each fold, the site and strength of the first column.
    """

    scores: Floats
    by_site: Mapping[str, Floats]
    chosen: tuple[tuple[str, float], ...]


def task_folds(tasks: Sequence[str], folds: int, seed: int) -> dict[str, int]:
    """The fold of each task; the same whatever the order."""
    names = sorted(set(tasks))
    order = np.random.default_rng(seed).permutation(len(names))
    return {names[i]: place % folds for place, i in enumerate(order.tolist())}


def permuted_labels(
    labels: Floats, tasks: Sequence[str], number: int, generator: np.random.Generator
) -> Floats:
    """Labels `[rows, number]` dealt anew: tasks take over the labels of other
    tasks, then mix them among their rows.

    How labels cluster by task is kept (up to tasks of unequal size); what they
    have to do with a row is not.
    """
    _, task = np.unique(np.asarray(tasks), return_inverse=True)
    permuted = np.empty((len(labels), number), bool)
    for column in range(number):
        order = generator.permutation(task.max() + 1)
        source = np.argsort(order[task], kind="stable")
        mixed = np.lexsort((generator.random(len(labels)), task))
        permuted[mixed, column] = labels[source]
    return permuted


def nested_scores(
    features: Mapping[str, Floats],
    labels: Floats,
    fold: Floats,
    method: str,
    ridges: tuple[float, ...],
    target: Mapping[str, Floats],
    target_fold: Floats,
) -> HeldOutScores:
    """Fit on `features` of each site `[rows, features]` with `labels [rows,
    columns]`; score `target` rows.

    `fold`, `target_fold`: of each row. Where the probe is read on its own rows,
    target is the same.
    """
    folds = int(max(fold.max(), target_fold.max())) + 1
    strengths = ridges if method == "logistic" else (0.0,)
    columns = np.arange(labels.shape[1])
    inner = {site: _inner(x, labels, fold, folds, method, ridges) for site, x in features.items()}
    by_site = {site: np.full((len(target_fold), len(columns)), np.nan) for site in features}
    for site, x in features.items():
        for held in range(folds):
            fitted = fit_columns(x[fold != held], labels[fold != held], method, ridges)
            best = inner[site][held].argmax(0)
            log_odds = fitted.scores(target[site][target_fold == held])
            by_site[site][target_fold == held] = log_odds[:, best, columns]
    sites = list(features)
    tops = np.stack([inner[site].max(1) for site in sites])  # [sites, folds, columns]
    chosen = tops.argmax(0)
    scores = np.stack([by_site[site] for site in sites])[
        chosen[target_fold], np.arange(len(target_fold))[:, None], columns
    ]
    names = [
        (sites[i], float(strengths[inner[sites[i]][held, :, 0].argmax()]))
        for held, i in enumerate(chosen[:, 0])
    ]
    return HeldOutScores(scores=scores, by_site=by_site, chosen=tuple(names))


def _inner(
    x: Floats, labels: Floats, fold: Floats, folds: int, method: str, ridges: tuple[float, ...]
) -> Floats:
    """AUROC `[folds, strengths, columns]` of probes for each fold, on the other
    folds; 0.5 where none has both labels.
    """
    strengths = len(ridges) if method == "logistic" else 1
    scores = np.full((folds, len(x), strengths, labels.shape[1]), np.nan)
    for pair in combinations(range(folds), 2):
        training = ~np.isin(fold, pair)
        fitted = fit_columns(x[training], labels[training], method, ridges)
        for held, other in (pair, pair[::-1]):
            scores[other, fold == held] = fitted.scores(x[fold == held])
    rates = [
        auroc_columns(scores[other, rest], labels[rest, None], folds=fold[rest])
        for other in range(folds)
        for rest in [fold != other]
    ]
    return np.nan_to_num(np.stack(rates), nan=0.5)


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """`method`: `logistic` or `difference`. `ridges`: pulls to 0 per row to
    choose from. `folds` of tasks. `shuffles` of the labels. `most_tokens` in a
    bag. `level` of intervals. `seed` of all of these.
    """

    method: str = "logistic"
    ridges: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)
    folds: int = 5
    shuffles: int = 39
    most_tokens: int = 2048
    level: float = 0.95
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A text-only reading: its AUROC, and that of the probe minus it on the same tasks."""

    auroc: Estimate
    advantage: Estimate


@dataclass(frozen=True, kw_only=True)
class ProbeEvaluation:
    """What was found on held-out tasks.

    `by_site`: AUROC of each site alone (to look at, not to choose from).
    `chosen`: site and strength of each fold.
    `shuffled`: AUROC of each shuffle, `p_value` of the true one among them,
    `None` without shuffles. `scores [rows]` of the target's rows by the probe
    that did not see their task, and their `folds`.
    """

    auroc: Estimate
    by_site: Mapping[str, Estimate]
    chosen: tuple[tuple[str, float], ...]
    baselines: Mapping[str, Baseline]
    shuffled: tuple[float, ...]
    p_value: float | None
    scores: Floats
    folds: Floats
    rows: int
    positives: int
    tasks: int


def evaluate_probe(
    readings: ProbeData, target: ProbeData | None = None, config: ProbeConfig | None = None
) -> ProbeEvaluation:
    """Fit on `readings`, report on `target` (default: the same readings), by
    task.

    Raises `UserError` for sites that differ, and `MissingInput` where the tasks
    are too few or all labels alike.
    """
    config = config or ProbeConfig()
    scored = target or readings
    _check(readings, scored, config)
    folds = task_folds((*readings.tasks, *scored.tasks), config.folds, config.seed)
    fold, other = (np.array([folds[task] for task in one.tasks]) for one in (readings, scored))
    generator = np.random.default_rng([config.seed, 1])
    labels = np.column_stack(
        [
            readings.labels,
            permuted_labels(readings.labels, readings.tasks, config.shuffles, generator),
        ]
    )
    truth = labels if target is None else np.repeat(scored.labels[:, None], labels.shape[1], 1)
    held = nested_scores(
        readings.activations, labels, fold, config.method, config.ridges, scored.activations, other
    )
    level = config.level

    def judged(scores: Floats) -> Estimate:
        return auroc(scores, scored.labels, scored.tasks, folds=other, level=level)

    baselines = {}
    for name, (x, y) in text_features(readings, scored, config.most_tokens).items():
        text = nested_scores(
            {name: x}, readings.labels[:, None], fold, "logistic", config.ridges, {name: y}, other
        ).scores[:, 0]
        lead = auroc_difference(
            held.scores[:, 0], text, scored.labels, scored.tasks, folds=other, level=level
        )
        baselines[name] = Baseline(auroc=judged(text), advantage=lead)
    rates = np.nan_to_num(auroc_columns(held.scores, truth, folds=other), nan=0.5)
    beyond = int((rates[1:] >= rates[0]).sum())
    return ProbeEvaluation(
        auroc=judged(held.scores[:, 0]),
        chosen=held.chosen,
        shuffled=tuple(rates[1:].tolist()),
        by_site={site: judged(scores[:, 0]) for site, scores in held.by_site.items()},
        baselines=baselines,
        p_value=(1 + beyond) / len(rates) if config.shuffles else None,
        scores=held.scores[:, 0],
        folds=other,
        rows=len(other),
        positives=int(scored.labels.sum()),
        tasks=len(set(scored.tasks)),
    )


def null_directions(
    readings: ProbeData,
    site: str,
    number: int,
    *,
    method: str = "logistic",
    ridge: float = 1e-2,
    seed: int = 0,
) -> Floats:
    """Directions `[number, features]` of probes fitted to labels shuffled by
    task: the null of `alignment`.
    """
    labels = permuted_labels(
        readings.labels, readings.tasks, number, np.random.default_rng([seed, 3])
    )
    directions: Floats = (
        fit_columns(readings.activations[site], labels, method, (ridge,)).weights[:, 0].T
    )
    return directions


def _check(source: ProbeData, target: ProbeData, config: ProbeConfig) -> None:
    widths = [{site: x.shape[1] for site, x in one.activations.items()} for one in (source, target)]
    if widths[0] != widths[1]:
        raise UserError(
            f"the probe is fitted at {widths[0]} and read at {widths[1]}; read the same sites of"
            " both"
        )
    if config.folds < 3:
        raise UserError(f"{config.folds} folds leave nothing to choose on; give at least 3")
    for one in (source, target):
        tasks, least = len(set(one.tasks)), FEWEST_TASKS_A_FOLD * config.folds
        if tasks < least:
            raise MissingInput(
                f"{tasks} tasks are too few for {config.folds} folds.",
                f"Read at least {least} tasks.",
            )
        if one.labels.all() or not one.labels.any():
            raise MissingInput(
                f"All {len(one.labels)} labels are alike.", "Ask a question whose answers differ."
            )


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """The probe, its simpler rival, and the `transfer` from before training;
    `None` where it cannot be had, and `no_transfer` says why.

    `unread`: steps that the question asked about and that could not be read.
    """

    logistic: ProbeEvaluation
    mean_difference: ProbeEvaluation
    transfer: ProbeEvaluation | None
    no_transfer: str | None
    unread: int = 0

    @property
    def best_text(self) -> str:
        """The name of the text baseline with the highest AUROC."""
        baselines = self.logistic.baselines
        return max(baselines, key=lambda name: baselines[name].auroc.estimate)


def measure(after: ProbeData, before: Callable[[], ProbeData], config: ProbeConfig) -> ProbeReport:
    """`before`: reads the first checkpoint, where that can be. Raises as
    `evaluate_probe` does on `after`.
    """
    transfer = no_transfer = None
    logistic = evaluate_probe(after, config=config)
    means = evaluate_probe(after, config=replace(config, method="difference", shuffles=0))
    try:
        transfer = evaluate_probe(before(), after, replace(config, shuffles=0))
    except MissingInput as error:
        no_transfer = error.reason
    except UserError as error:
        stop_outside(error)
        no_transfer = f"{error}."
    return ProbeReport(
        logistic=logistic,
        mean_difference=means,
        transfer=transfer,
        no_transfer=no_transfer,
        unread=after.unread,
    )
