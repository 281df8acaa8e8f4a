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
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from forensics.errors import UserError
from forensics.records import parse_json, read_text
from forensics.statistics import Estimate, share
from probes.grades.step_grades import GradedRun

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
    """Accuracy of the three predictors and of chance. `truth`: of each
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
