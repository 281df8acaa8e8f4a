"""Another aggregation than the default: one half of the tasks selects, the other reports.

The source (2606.26080) picks the aggregation for each task on the data it reports on, which makes the best of many
look better than it is. Here the halves are drawn by a seed, whole tasks at a time. The default's figure on the
reporting half stands beside the selected one's, and the selecting half's shows how much of a lead was luck.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forensics.errors import MissingInput
from probes.grades.aggregation import ALL, DEFAULT, Aggregation
from probes.grades.comparing import SUCCESS
from probes.grades.grading import step_grades
from probes.grades.logistic import halves
from probes.grades.ranking import Ranked, auroc, auroc_difference
from probes.scored import Scored

Grades = Mapping[Aggregation, float | None]


@dataclass(frozen=True, kw_only=True)
class Selected:
    """`selecting`: its AUROC on the half that chose it. `reported`, `default`, `lead` (the difference) are of the
    other half."""

    aggregation: Aggregation
    selecting: Ranked
    reported: Ranked
    default: Ranked
    lead: Ranked


def grades_by(scored: Scored, among: Sequence[Aggregation] = ALL) -> dict[Aggregation, float | None]:
    """The progress advantage of one trajectory under each aggregation."""
    steps = {way: step_grades(scored, Aggregation(tokens=way)) for way in {one.tokens for one in among}}
    return {one: one.of_steps([step.grade for step in steps[one.tokens]]) for one in among}


def select(
    grades: Sequence[Grades], outcomes: Sequence[float | None], tasks: Sequence[str], seed: int
) -> Selected:
    """`grades`, `outcomes`, `tasks [runs]`. The default keeps its place where another only equals it.

    Raises `MissingInput` where a half has no successes or no failures.
    """
    rows = [i for i, outcome in enumerate(outcomes)
            if outcome is not None and all(value is not None for value in grades[i].values())]
    success = np.array([(outcomes[i] or 0.0) >= SUCCESS for i in rows], bool)
    names = np.array([tasks[i] for i in rows], dtype=str)
    among = list(grades[rows[0]]) if rows else []
    if DEFAULT not in among:
        raise MissingInput("No run has an outcome and all grades.", "Grade runs with outcomes.")
    values = {one: np.array([grades[i][one] for i in rows], float) for one in among}
    first = halves(names.tolist(), seed)

    def on(half: np.ndarray, one: Aggregation) -> Ranked:
        return auroc(values[one][half], success[half], names[half].tolist())

    best = max(among, key=lambda one: (on(first, one).estimate, one == DEFAULT))
    lead = auroc_difference(values[best][~first], values[DEFAULT][~first], success[~first], names[~first].tolist())
    return Selected(aggregation=best, selecting=on(first, best), reported=on(~first, best), default=on(~first, DEFAULT),
                    lead=lead)
