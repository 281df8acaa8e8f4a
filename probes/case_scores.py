"""One pass of both checkpoints over a case's runs, from which every instrument
of this room reads.

1. The runs of the first checkpoint after training (the score layer has played
   them), on the first `TASKS` tasks by name, or on more where an instrument
   asks for more.
2. Everything that any of the instruments wants is taken down by the one that
   comes first, and kept beside the case (`forensics.policies.score_store`). The next one
   reads it back, and no model does anything.
3. Log-probabilities are stated at the sampling temperature without top-k and
   top-p: what a truncated policy shuts out has no ratio. Greedy sampling is
   looked at as temperature 1.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from forensics.case import Case, Rollouts
from forensics.errors import MissingInput, refused_as_missing
from forensics.policies import PolicyRef, TokenScores, policy_ref, stored_scores
from forensics.protocols import SamplingSettings
from forensics.records import Trajectory, content_hash
from probes.grades.step_grades import TopConfidence
from probes.kl.kl_split import KlPlan, plan_kl

TASKS: Final = 300


def case_scores(case: Case, tasks: int) -> tuple[KlPlan, Iterator[TokenScores]]:
    """The plan of the KL split, learnt from all runs of the pass, and the
    scored runs of the first `tasks` tasks.

    Raises `MissingInput`, at once or while they are read.
    """
    side = case.afters[0]
    log = case.rollouts(side)
    names = sorted({row["task"] for row in log.rows("task")})
    read, wanted = frozenset(names[: max(TASKS, tasks)]), frozenset(names[:tasks])
    policy, cannot = case.policy(side), f"The runs of `{side}` cannot be scored"
    with refused_as_missing(cannot):
        plan = plan_kl(RunsOfTasks(log=log, tasks=read), policy)
    readouts = (TopConfidence(), plan.readout)
    settings = untruncated(case.budget.settings)

    def scores() -> Iterator[TokenScores]:
        with refused_as_missing(cannot):
            sides = [_policy_ref(case, name) for name in (side, "before")]
            for scored in stored_scores(
                case.folder / "scores",
                Rollouts(key=content_hash([_digest(path) for path in log.paths]), paths=log.paths),
                *sides,
                settings=settings,
                readouts=readouts,
                tasks=read,
                progress=lambda done, of: case.progress(
                    f"scoring runs {case.said(side)}", done, of
                ),
            ):
                if scored.trajectory.task in wanted:
                    yield scored

    return plan, scores()


def _policy_ref(case: Case, name: str) -> PolicyRef:
    """A side of the case. Both models are wanted at once, so only *after* is
    the one that the case keeps.
    """
    if not case.opens(name, "logprobs"):
        raise MissingInput(f"There is no policy `{name}` to score with.", "Give its checkpoint.")
    subject = case.subject(name)
    if subject.stated is None:
        return policy_ref(subject.open())
    load = subject.open if name == "before" else lambda: case.policy(name)
    return PolicyRef(identity=subject.identity, load=load)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, kw_only=True)
class RunsOfTasks:
    """The runs of some tasks; can be read again and again."""

    log: Rollouts
    tasks: frozenset[str]

    def __iter__(self) -> Iterator[Trajectory]:
        return (run for run in self.log if run.task in self.tasks)


def untruncated(settings: SamplingSettings) -> SamplingSettings:
    """The settings without what shuts tokens out; greedy sampling is looked at as temperature 1."""
    return replace(settings, top_k=0, top_p=1.0, temperature=settings.temperature or 1.0)
