"""One pass of both checkpoints over a case's runs, from which every instrument
of this room reads.

1. The runs of the first checkpoint after training (the score layer has played
   them), on the first `TASKS` tasks by name, or on more where an instrument
   asks for more.
2. Everything that any of the instruments wants is taken down by the one that
   comes first, and kept beside the case (`probes.scores.score_store`). The next one
   reads it back, and no model does anything.
3. Log-probabilities are stated at the sampling temperature without top-k and
   top-p: what a truncated policy shuts out has no ratio. Greedy sampling is
   looked at as temperature 1.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from forensics.case import Case, Rollouts
from forensics.errors import MissingInput, UserError
from forensics.protocols import SamplingSettings
from forensics.records import Trajectory
from probes.grades.step_grades import TopConfidence
from probes.kl.kl_split import KlPlan, plan_kl
from probes.scores.score_store import scored_log
from probes.scores.token_scores import TokenScores

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
    policy = case.policy(side)
    with _as_missing(side):
        plan = plan_kl(RunsOfTasks(log=log, tasks=read), policy)
    readouts = (TopConfidence(), plan.readout)
    settings = untruncated(case.budget.settings)

    def scores() -> Iterator[TokenScores]:
        with _as_missing(side):
            for scored in scored_log(case, side, settings=settings, readouts=readouts, tasks=read):
                if scored.trajectory.task in wanted:
                    yield scored

    return plan, scores()


@contextmanager
def _as_missing(side: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise MissingInput(
            f"The runs of `{side}` cannot be scored: {error}.", "Mend what it names."
        ) from error


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
