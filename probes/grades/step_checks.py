"""Grades of steps held against what is known of them.

At which step was a run lost? Three predictors (2606.26080).

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

Does the grade reward a shortcut? Grades of the steps that try a channel,
against the others of the same tasks. For a policy that was trained on a leak it
should: the grade measures what RL rewarded, not what is right. So a positive
figure is a warning against using the grade as a judge of steps, and says where
the reward went.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from forensics.errors import MissingInput, UserError
from forensics.records.given_files import parse_json, read_text
from forensics.statistics import Estimate, mean, share
from probes.grades.step_grades import GradedRun

NEAR: Final = 1  # actions
CHANCE: Final = "a step at random"
Grades = Mapping[str, tuple[list[float], list[float]]]


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


@dataclass(frozen=True, kw_only=True)
class StepContrast(Estimate):
    """Mean grade of some steps minus that of the others, nats a token, paired
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


def _by_task(runs: Iterable[GradedRun], kinds: Collection[str]) -> Grades:
    """Of each task the grades of steps of these kinds, and of the others."""
    grades: dict[str, tuple[list[float], list[float]]] = {}
    for run in runs:
        for step in run.steps:
            if step.grade is not None:
                grades.setdefault(run.task, ([], []))[not set(kinds) & set(step.kinds)].append(
                    step.grade
                )
    return grades


def _contrast(grades: Grades, level: float) -> StepContrast:
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
