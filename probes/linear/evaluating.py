"""What a probe tells on tasks that it has not seen, beside what the text tells and what shuffled labels give.

1. Nested splits by task (`nested`): site and strength are chosen inside and reported outside. Labels that depend on
   the task alone therefore earn nothing.
2. AUROC over pairs of rows within a fold, with a bootstrap over tasks (`ranking`).
3. Text-only baselines (`text`) go through the same nested splits; the difference to each is taken on the same resampled
   tasks.
4. Shuffled labels (`nested.shuffled`): the whole distribution, each with its own choice of site and strength, gives the
   p-value of "the activations tell nothing".
5. Transfer: fitted on one set of readings and read on another, still never on a task that it was fitted on. Another
   checkpoint or another organism is just other readings of the same sites. There the shuffled probes face the true
   labels: where one thing (the turn) dominates both, a probe fitted to nothing may lie along it, and the null is wide.

A probe that beats the text says that the answer is linearly there, not that the policy uses it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forensics.errors import MissingInput, UserError
from probes.linear.fitting import fit_columns
from probes.linear.nested import Held, deal, nested_scores, shuffled
from probes.linear.ranking import (
    Estimate,
    Pairs,
    auroc_by_task,
    beaten_columns,
    difference_by_task,
    draws,
    pairs_of,
)
from probes.linear.readings import Readings
from probes.linear.text import text_features

FEWEST_TASKS_A_FOLD: Final = 2
Floats = np.ndarray


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """`method`: `logistic` or `difference`. `ridges`: pulls to 0 per row to choose from. `folds` of tasks. `shuffles`
    of the labels. `resamples` of tasks. `most_tokens` in a bag. `level` of intervals. `seed` of all of these."""

    method: str = "logistic"
    ridges: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)
    folds: int = 5
    shuffles: int = 39
    resamples: int = 1000
    most_tokens: int = 2048
    level: float = 0.95
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A text-only reading: its AUROC, and that of the probe minus it on the same tasks."""

    auroc: Estimate
    advantage: Estimate


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was found on held-out tasks.

    `by_site`: AUROC of each site alone (to look at, not to choose from). `chosen`: site and strength of each fold.
    `shuffled`: AUROC of each shuffle, `p_value` of the true one among them, `None` without shuffles.
    `scores [rows]` of the target's rows by the probe that did not see their task, and their `folds`.
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


def evaluate_probe(readings: Readings, target: Readings | None = None, config: ProbeConfig | None = None) -> Evaluation:
    """Fit on `readings`, report on `target` (default: the same readings), by task.

    Raises `UserError` for sites that differ, and `MissingInput` where the tasks are too few or all labels alike.
    """
    config = config or ProbeConfig()
    scored = target or readings
    _check(readings, scored, config)
    dealt = deal((*readings.tasks, *scored.tasks), config.folds, config.seed)
    fold, other = (np.array([dealt[task] for task in one.tasks]) for one in (readings, scored))
    generator = np.random.default_rng([config.seed, 1])
    labels = np.column_stack([readings.labels,
                              shuffled(readings.labels, readings.tasks, config.shuffles, generator)])
    truth = labels if target is None else np.repeat(scored.labels[:, None], labels.shape[1], 1)
    held = nested_scores(readings.activations, labels, fold, config.method, config.ridges, scored.activations, other)
    judge = _Judge(
        labels=scored.labels, tasks=scored.tasks, folds=other, level=config.level,
        weights=draws(len(set(scored.tasks)), config.resamples, np.random.default_rng([config.seed, 2])),
    )
    pairs = judge.pairs(held.scores[:, 0])
    dealt_anew = _rates(held, truth, other)[1:]
    return Evaluation(
        auroc=judge.auroc(pairs), chosen=held.chosen, shuffled=tuple(dealt_anew.tolist()),
        by_site={site: judge.auroc(judge.pairs(scores[:, 0])) for site, scores in held.by_site.items()},
        baselines=_baselines(readings, scored, fold, other, judge, pairs, config),
        p_value=(1 + int((dealt_anew >= pairs.rate).sum())) / (1 + len(dealt_anew)) if len(dealt_anew) else None,
        scores=held.scores[:, 0], folds=other, rows=len(other), positives=int(scored.labels.sum()),
        tasks=len(set(scored.tasks)),
    )


def null_directions(
    readings: Readings, site: str, number: int, *, method: str = "logistic", ridge: float = 1e-2, seed: int = 0
) -> Floats:
    """Directions `[number, features]` of probes fitted to labels shuffled by task: the null of `alignment`."""
    labels = shuffled(readings.labels, readings.tasks, number, np.random.default_rng([seed, 3]))
    found: Floats = fit_columns(readings.activations[site], labels, method, (ridge,)).weights[:, 0].T
    return found


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """The rows that are reported on, and the resampled tasks that all scores share."""

    labels: Floats
    tasks: Sequence[str]
    folds: Floats
    weights: Floats
    level: float

    def pairs(self, scores: Floats) -> Pairs:
        return pairs_of(scores, self.labels, self.tasks, self.folds)

    def auroc(self, pairs: Pairs) -> Estimate:
        return auroc_by_task(pairs, self.weights, self.level)


def _check(source: Readings, target: Readings, config: ProbeConfig) -> None:
    widths = [{site: x.shape[1] for site, x in one.activations.items()} for one in (source, target)]
    if widths[0] != widths[1]:
        raise UserError(f"the probe is fitted at {widths[0]} and read at {widths[1]}; read the same sites of both")
    if config.folds < 3:
        raise UserError(f"{config.folds} folds leave nothing to choose on; give at least 3")
    for one in (source, target):
        tasks, least = len(set(one.tasks)), FEWEST_TASKS_A_FOLD * config.folds
        if tasks < least:
            raise MissingInput(f"{tasks} tasks are too few for {config.folds} folds.", f"Read at least {least} tasks.")
        if one.labels.all() or not one.labels.any():
            raise MissingInput(f"All {len(one.labels)} labels are alike.", "Ask a question whose answers differ.")


def _rates(held: Held, truth: Floats, fold: Floats) -> Floats:
    """AUROC `[columns]` over pairs within folds."""
    won, total = np.zeros(truth.shape[1]), np.zeros(truth.shape[1])
    for one in np.unique(fold):
        beaten, both = beaten_columns(held.scores[fold == one][:, None, :], truth[fold == one])
        won += beaten[0]
        total += both
    found: Floats = np.divide(won, total, out=np.full(len(won), 0.5), where=total > 0)
    return found


def _baselines(
    source: Readings, target: Readings, fold: Floats, other: Floats, judge: _Judge, pairs: Pairs, config: ProbeConfig
) -> dict[str, Baseline]:
    found = {}
    for name, (x, y) in text_features(source, target, config.most_tokens).items():
        held = nested_scores({name: x}, source.labels[:, None], fold, "logistic", config.ridges, {name: y}, other)
        own = judge.pairs(held.scores[:, 0])
        found[name] = Baseline(auroc=judge.auroc(own),
                               advantage=difference_by_task(pairs, own, judge.weights, config.level))
    return found
