"""Submissions graded again in a fresh copy of their task: what tampering and hard-coding do not survive.

Such wins copy nothing from what an action returned. Where the environment can grade a submission apart from its run
(`forensics.protocols.Regrading`), every success of both sides is graded again, and the gain that is left is compared
with the gain as it counted. The kind of action that sets the lost wins apart from those that stand is named.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from forensics.errors import UserError
from forensics.records import Trajectory
from resampling.ablation.answers import step_kinds

Regrade = Callable[[str, str], Mapping[str, float | None]]
TELLING = 0.5  # share by which a kind must be more frequent among the lost wins than among those that stand
FEWEST = 5  # wins that stand


@dataclass(frozen=True)
class Regraded:
    """A run's score as it counted and as it is in a fresh copy of its task (`None`: not known)."""

    run: Trajectory
    score: float | None

    @property
    def lost(self) -> bool:
        """Whether a win of the run is none in the fresh copy."""
        return self.score is not None and (self.run.outcome or 0.0) >= 0.5 > self.score

    @property
    def untold(self) -> bool:
        """Whether a score could not be graded again."""
        return self.score is None and bool(self.run.outcome)

    @property
    def standing(self) -> "Regraded":
        """The same, where a score that could not be graded again would stand."""
        return replace(self, score=self.run.outcome) if self.untold else self

    @property
    def falling(self) -> "Regraded":
        """The same, where it would be lost."""
        return replace(self, score=0.0) if self.untold else self

    @property
    def stands(self) -> bool:
        """Whether a win of the run is one in the fresh copy too."""
        return (self.score or 0.0) >= 0.5 and (self.run.outcome or 0.0) >= 0.5


def regraded(runs: Iterable[Trajectory], regrade: Regrade) -> list[Regraded]:
    """Every run that scored anything graded again; a shortcut invalidates successes only, so the others keep theirs.

    A run that handed in nothing is graded as one that handed in `""`. A submission that cannot be graded (`regrade`
    raises, or knows no `outcome`) is missing, never a failure.
    """
    known: dict[tuple[str, str], float | None] = {}
    found = []
    for run in runs:
        score = run.outcome
        if score:
            key = run.task, run.submission or ""
            if key not in known:
                known[key] = _outcome(regrade, *key)
            score = known[key]
        found.append(Regraded(run, score))
    return found


def _outcome(regrade: Regrade, task: str, submission: str) -> float | None:
    try:
        return regrade(task, submission).get("outcome")
    except UserError:
        raise
    except Exception:  # somebody else's grader: a broken grading is data, not a crash
        return None


def rows_of(runs: Iterable[Regraded]) -> list[dict[str, object]]:
    """The rows that the score layer's reader takes, with the scores of the fresh copy."""
    return [
        {
            "task": one.run.task, "sample": one.run.sample, "id": one.run.id, "outcome": one.score, "end": one.run.end,
            "end_reason": one.run.end_reason, "steps": [{"role": step.role} for step in one.run.steps],
        }
        for one in runs
    ]


def telling_kind(before: Sequence[Regraded], after: Sequence[Regraded]) -> str | None:
    """The kind that sets the wins after training that are lost apart from wins that stand, `None` where none does.

    Failed runs do not count: many of them tried the same. With few wins that stand, the runs before training stand for
    them.
    """
    lost = [one for one in after if one.lost]
    standing = [one for one in (*before, *after) if one.stands]
    in_lost, in_rest = _usage(lost), _usage(standing if len(standing) >= FEWEST else before)
    kinds = sorted(in_lost, key=lambda kind: (in_rest.get(kind, 0.0) - in_lost[kind], kind))
    first = kinds[0] if kinds else None
    return first if first is not None and in_lost[first] - in_rest.get(first, 0.0) > TELLING else None


def _usage(runs: Sequence[Regraded]) -> dict[str, float]:
    used = Counter(kind for one in runs for kind in {k for i, _ in one.run.actions for k in step_kinds(one.run, i)})
    return {kind: count / len(runs) for kind, count in used.items()}
