"""At which step was a run lost? Three predictors on the grades of its steps (2606.26080).

1. Lowest sum: the step after which the running sum of grades is least: what it lost is never made up for later.
2. Sharpest drop: the step whose grade falls most below that of the step before.
3. Sharpest change: the step whose grade differs most from that of the step before, up or down.

The first step is compared with 0, which is what a step earns on which both checkpoints agree. Predictors know nothing
else of the run. Steps without a grade are passed over. Where several steps tie, each is named with equal chance, so
constant grades are right as often as chance. Beside every accuracy stands that of naming a step at random.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forensics.statistics import Share, clustered_share
from probes.grades.grading import Graded

NEAR: Final = 1  # actions


def _changes(grades: np.ndarray) -> np.ndarray:
    return np.diff(grades, prepend=0.0)


PREDICTORS: Final[Mapping[str, Callable[[np.ndarray], np.ndarray]]] = {  # the largest is named
    "lowest sum": lambda grades: -np.cumsum(grades),
    "sharpest drop": lambda grades: -_changes(grades),
    "sharpest change": lambda grades: np.abs(_changes(grades)),
}
CHANCE: Final = "a step at random"


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """Accuracy of one predictor: at the true step, and within one action of it. Over `runs` with a known truth."""

    predictor: str
    at: Share
    near: Share
    runs: int


def predicted(grades: Sequence[float | None], predictor: str) -> tuple[int, ...]:
    """Places in `grades` that a predictor names (several where they tie); none where no step has a grade."""
    known = [i for i, grade in enumerate(grades) if grade is not None]
    if not known:
        return ()
    strength = PREDICTORS[predictor](np.array([grades[i] for i in known], float))
    return tuple(known[i] for i in np.flatnonzero(strength == strength.max()))


def attribution(
    runs: Sequence[Graded], truth: Mapping[str, int], grades: Callable[[Graded], Sequence[float | None]] | None = None
) -> list[Attribution]:
    """Accuracy of the three predictors and of chance. `truth`: of each trajectory by id, the number of the step that
    lost it. `grades`: of a run's steps, other than the progress advantage.

    Runs without a truth, or with one that is no graded step, take no part. Raises `MissingInput` for fewer than two
    tasks.
    """
    numbers = grades or (lambda run: [step.grade for step in run.steps])
    cases = [(run.task, numbers(run), place) for run in runs if (place := _place(run, numbers(run), truth)) is not None]
    named = {name: [predicted(values, name) for _, values, _ in cases] for name in PREDICTORS}
    named[CHANCE] = [tuple(i for i, value in enumerate(values) if value is not None) for _, values, _ in cases]
    return [_accuracy(name, found, cases) for name, found in named.items()]


def _place(run: Graded, grades: Sequence[float | None], truth: Mapping[str, int]) -> int | None:
    """The true step's place among the run's actions."""
    place = next((i for i, step in enumerate(run.steps) if step.step == truth.get(run.trajectory)), None)
    return None if place is None or grades[place] is None else place


def _accuracy(
    name: str, named: Sequence[tuple[int, ...]], cases: Sequence[tuple[str, Sequence[float | None], int]]
) -> Attribution:
    places = [place for _, _, place in cases]
    shares = [_share([[abs(i - place) <= reach for i in found] for found, place in zip(named, places, strict=True)],
                     [task for task, _, _ in cases]) for reach in (0, NEAR)]
    return Attribution(predictor=name, at=shares[0], near=shares[1], runs=len(cases))


def _share(hits: Sequence[Sequence[bool]], tasks: Sequence[str]) -> Share:
    names, task = np.unique(np.asarray(tasks, dtype=str), return_inverse=True)
    right = np.array([np.mean(found) for found in hits], float)
    size = len(names)
    counts = np.bincount(task, minlength=size).astype(float)
    return clustered_share(np.bincount(task, right, size).astype(float), counts)
