"""The checkpoints of one training run, in the order of their steps.

1. `series_of` reads directories (`checkpoint-100`, `checkpoint-200`, ...) and sorts them by the
   step that their trainer noted, or else by the number that ends their name.
2. As the `subjects` of a case the first is *before* and the others are *after*; `pairs` compares
   each checkpoint with the one before it, which says between which steps a behaviour began.
3. `scores` reads the mean outcome at each step from runs, and plays what is not there.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path

import numpy as np

from forensics.errors import UserError
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.progress import Progress, silent
from forensics.records.case_file import Checkpoint
from forensics.rollout_logs import Rollouts
from forensics.statistics import Estimate, mean
from forensics.subjects import BEFORE, CheckpointSubject, Role


@dataclass(frozen=True)
class StepScore:
    """The score after a training step; its interval is over tasks."""

    step: int
    score: Estimate


@dataclass(frozen=True, kw_only=True)
class Series:
    """Checkpoints of one run by training step, which only rises."""

    checkpoints: tuple[Checkpoint, ...]
    backend: str = "huggingface"
    device: str = "auto"

    @property
    def steps(self) -> tuple[int, ...]:
        """The training step of each checkpoint."""
        return tuple(one.training_step or 0 for one in self.checkpoints)

    @property
    def subjects(self) -> tuple[CheckpointSubject, ...]:
        """The subjects of one case: the first before training, the others after it."""
        return self._as_subjects(self.checkpoints)

    def pairs(self) -> Iterator[tuple[CheckpointSubject, ...]]:
        """The subjects of each case of two consecutive checkpoints."""
        return map(self._as_subjects, pairwise(self.checkpoints))

    def scores(self, rollouts: Callable[[str], Rollouts]) -> Iterator[StepScore]:
        """The mean outcome by step. `rollouts`: that of a case with these `subjects`. Raises
        `MissingInput` where a checkpoint has scored fewer than two tasks.
        """
        for step, subject in zip(self.steps, self.subjects, strict=True):
            yield StepScore(step, mean_outcome(rollouts(subject.role.name)))

    def _as_subjects(self, chosen: Sequence[Checkpoint]) -> tuple[CheckpointSubject, ...]:
        roles = (BEFORE, *map(Role, range(len(chosen) - 1)))
        return tuple(
            CheckpointSubject(role=role, stated=one, backend=self.backend, device=self.device)
            for role, one in zip(roles, chosen, strict=True)
        )


def series_of(
    directories: Sequence[str | PathLike[str]],
    *,
    backend: str = "huggingface",
    device: str = "auto",
    progress: Progress = silent,
) -> Series:
    """The series of these checkpoint directories, in any order. Raises `UserError` where one
    does not say its step, two have the same, or a tokenizer differs.
    """
    found = [_with_step(inspect_checkpoint(fspath(one), progress=progress)) for one in directories]
    if len(found) < 2:
        raise UserError("a series needs two checkpoints; give the directories of one training run")
    seen: dict[int, str] = {}
    for one in found:
        if one.training_step is None:
            raise UserError(
                f"{one.path} does not say its training step; give checkpoints with the"
                " trainer_state.json of their trainer, or names such as checkpoint-500"
            )
        if twin := seen.get(one.training_step):
            raise UserError(
                f"{twin} and {one.path} are both of step {one.training_step}; give each once"
            )
        seen[one.training_step] = one.path
        if one.tokenizer != found[0].tokenizer:
            raise UserError(
                f"the tokenizers of {found[0].path} and {one.path} differ; give checkpoints of"
                " one training run"
            )
    ordered = sorted(found, key=lambda one: one.training_step or 0)
    return Series(checkpoints=tuple(ordered), backend=backend, device=device)


def _with_step(checkpoint: Checkpoint) -> Checkpoint:
    """With the step that the directory's name ends with, where its trainer noted none."""
    ending = re.search(r"\d+$", Path(checkpoint.path).name)
    if checkpoint.training_step is not None or ending is None:
        return checkpoint
    return checkpoint.model_copy(update={"training_step": int(ending[0])})


def mean_outcome(runs: Rollouts) -> Estimate:
    """The mean outcome of runs that have one, tasks weighed alike."""
    tasks: dict[str, list[float]] = {}
    for row in runs.rows("task", "outcome"):
        if row["outcome"] is not None:
            tasks.setdefault(row["task"], []).append(row["outcome"])
    means = np.array([np.mean(tasks[task]) for task in sorted(tasks)])
    return mean(means, reach=1.0, bounds=(0.0, 1.0))
