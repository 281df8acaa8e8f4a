"""Does the grade reward a shortcut? Grades of the steps that try a channel, against the
others of the same tasks.

For a policy that was trained on a leak it should: the grade measures what RL rewarded,
not what is right. So a positive figure is a warning against using the grade as a judge
of steps, and says where the reward went.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from forensics.errors import MissingInput
from forensics.statistics import Estimate, mean
from probes.grades.step_grades import GradedRun

Grades = Mapping[str, tuple[list[float], list[float]]]


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
