"""One pass of both checkpoints over a case's runs, from which every instrument of this room reads.

1. The runs of the first checkpoint after training (the score layer has played them), on the first `TASKS` tasks by
   name, or on more where an instrument asks for more.
2. Everything that any of the instruments wants is taken down by the one that comes first, and kept beside the case
   (`probes.scoring.store`). The next one reads it back, and no model does anything.
3. Log-probabilities are stated at the sampling temperature without top-k and top-p: what a truncated policy shuts out
   has no ratio. Greedy sampling is looked at as temperature 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from forensics.case import Case, Rollouts
from forensics.errors import MissingInput, UserError
from forensics.protocols import SamplingSettings
from forensics.records import Trajectory
from probes.grades.confidence import TopConfidence
from probes.kl.book import Plan, plan_split
from probes.scored import Scored
from probes.scoring.store import scored_log

TASKS: Final = 300


@dataclass(frozen=True, kw_only=True)
class CasePass:
    """`plan` of the KL split, learnt from all runs of the pass. Iterating gives the runs that were asked for."""

    plan: Plan
    wanted: frozenset[str]
    scores: Iterator[Scored]
    side: str

    def __iter__(self) -> Iterator[Scored]:
        with_reason = _told(self.scores, self.side)
        return (scored for scored in with_reason if scored.trajectory.task in self.wanted)


def case_pass(case: Case, tasks: int) -> CasePass:
    """The pass, for runs of the first `tasks` tasks. Raises `MissingInput`, at once or while it is read."""
    side = case.afters[0]
    log = case.rollouts(side)
    names = sorted({row["task"] for row in log.rows("task")})
    read = frozenset(names[: max(TASKS, tasks)])
    policy = case.policy(side)
    try:
        plan = plan_split(Chosen(log=log, tasks=read), policy)
    except UserError as error:
        raise _missing(side, error) from error
    scores = scored_log(case, side, settings=whole(case.budget.settings), readouts=(TopConfidence(), plan.readout),
                        tasks=read)
    return CasePass(plan=plan, wanted=frozenset(names[:tasks]), scores=scores, side=side)


def _told(scores: Iterator[Scored], side: str) -> Iterator[Scored]:
    try:
        yield from scores
    except UserError as error:
        raise _missing(side, error) from error


def _missing(side: str, error: UserError) -> MissingInput:
    return MissingInput(f"The runs of `{side}` cannot be scored: {error}.", "Mend what it names.")


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The runs of some tasks; can be read again and again."""

    log: Rollouts
    tasks: frozenset[str]

    def __iter__(self) -> Iterator[Trajectory]:
        return (run for run in self.log if run.task in self.tasks)


def whole(settings: SamplingSettings) -> SamplingSettings:
    """The settings without what shuts tokens out; greedy sampling is looked at as temperature 1."""
    return replace(settings, top_k=0, top_p=1.0, temperature=settings.temperature or 1.0)
