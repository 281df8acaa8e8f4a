"""Nested splits by task: what is chosen inside is reported outside, for many label columns at once.

1. Tasks are dealt into folds. Fold f is reported on by a probe that never saw its tasks.
2. The choice of site and strength for f is made on the other folds, each held out in turn. A probe without f and g
   serves the choice for f (scored on g) and for g (scored on f), so pairs of folds are fitted once.
3. Label columns (the true labels and the shuffled ones) choose for themselves, so a shuffled column enjoys the same
   freedom as the true one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from probes.linear.fitting import fit_columns
from probes.linear.ranking import beaten_columns

Floats = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Held:
    """Scores of rows by probes that never saw their tasks.

    `scores [rows, columns]`: with site and strength chosen inside. `by_site`: of each site with the strength chosen.
    `chosen`: for each fold, the site and strength of the first column.
    """

    scores: Floats
    by_site: Mapping[str, Floats]
    chosen: tuple[tuple[str, float], ...]


def deal(tasks: Sequence[str], folds: int, seed: int) -> dict[str, int]:
    """The fold of each task; the same whatever the order."""
    names = sorted(set(tasks))
    order = np.random.default_rng(seed).permutation(len(names))
    return {names[i]: place % folds for place, i in enumerate(order.tolist())}


def shuffled(labels: Floats, tasks: Sequence[str], number: int, generator: np.random.Generator) -> Floats:
    """Labels `[rows, number]` dealt anew: tasks take over the labels of other tasks, then mix them among their rows.

    How labels cluster by task is kept (up to tasks of unequal size); what they have to do with a row is not.
    """
    _, task = np.unique(np.asarray(tasks), return_inverse=True)
    found = np.empty((len(labels), number), bool)
    for column in range(number):
        order = generator.permutation(task.max() + 1)
        given = np.argsort(order[task], kind="stable")
        mixed = np.lexsort((generator.random(len(labels)), task))
        found[mixed, column] = labels[given]
    return found


def nested_scores(
    features: Mapping[str, Floats], labels: Floats, fold: Floats, method: str, ridges: tuple[float, ...],
    target: Mapping[str, Floats], target_fold: Floats,
) -> Held:
    """Fit on `features` of each site `[rows, features]` with `labels [rows, columns]`; score `target` rows.

    `fold`, `target_fold`: of each row. Where the probe is read on its own rows, target is the same.
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
            told = fitted.scores(target[site][target_fold == held])
            by_site[site][target_fold == held] = told[:, best, columns]
    sites = list(features)
    tops = np.stack([inner[site].max(1) for site in sites])  # [sites, folds, columns]
    chosen = tops.argmax(0)
    scores = np.stack([by_site[site] for site in sites])[chosen[target_fold], np.arange(len(target_fold))[:, None],
                                                         columns]
    names = [(sites[i], float(strengths[inner[sites[i]][held, :, 0].argmax()])) for held, i in enumerate(chosen[:, 0])]
    return Held(scores=scores, by_site=by_site, chosen=tuple(names))


def _inner(
    x: Floats, labels: Floats, fold: Floats, folds: int, method: str, ridges: tuple[float, ...]
) -> Floats:
    """AUROC `[folds, strengths, columns]` of probes for each fold, on the other folds; 0.5 where none has both
    labels."""
    shape = (folds, len(ridges) if method == "logistic" else 1, labels.shape[1])
    won, total = np.zeros(shape), np.zeros(shape)
    for pair in combinations(range(folds), 2):
        training = ~np.isin(fold, pair)
        fitted = fit_columns(x[training], labels[training], method, ridges)
        for held, other in (pair, pair[::-1]):
            beaten, both = beaten_columns(fitted.scores(x[fold == held]), labels[fold == held])
            won[other] += beaten
            total[other] += both
    found: Floats = np.divide(won, total, out=np.full(shape, 0.5), where=total > 0)
    return found
