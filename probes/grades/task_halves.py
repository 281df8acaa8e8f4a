"""What needs labels is chosen on one half of the tasks and reported on the other.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forensics.errors import MissingInput
from forensics.policies import TokenScores
from forensics.statistics import Estimate, auroc, auroc_difference
from probes.grades.step_grades import ALL, DEFAULT, SUCCESS, Aggregation, step_grades
from probes.linear.probe_fit import TOLERANCE, Columns, fit_logistic_columns

RIDGE: Final = (
    1.0  # pseudo-runs' worth of pull of the standardised weights to 0; keeps a perfect split finite
)
Grades = Mapping[Aggregation, float | None]


def fit_logistic(features: np.ndarray, success: np.ndarray, ridge: float = RIDGE) -> Columns:
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
