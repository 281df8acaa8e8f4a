"""Submissions graded again in a fresh copy of their task: what tampering and
hard-coding do not survive.

Such wins copy nothing from what an action returned. Where the environment can
grade a submission apart from its run (`forensics.protocols.Regrading`), every
success of both sides is graded again, and the gain that is left is compared
with the gain as it counted. The kind of action that sets the lost wins apart
from those that stand is named.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from forensics.case import Case
from forensics.errors import UserError
from forensics.layers.decomposition import Runs, World, read_runs
from forensics.phrases import percent, printable
from forensics.protocols import Regrading
from forensics.records import Evidence, Trajectory, Undefined
from resampling.ablation.ablation_evidence import AblationEvidence
from resampling.ablation.gains import Bars, Gains, compare
from resampling.ablation.refused_runs import Played
from resampling.ablation.returned_answers import step_kinds

Regrade = Callable[[str, str], Mapping[str, float | None]]
# share by which a kind must be more frequent among the lost wins than among those that
# stand
TELLING = 0.5
FEWEST = 5  # wins that stand
MOST_UNTOLD = 0.05  # of the wins that cannot be graded again


@dataclass(frozen=True)
class Regraded:
    """A run's score as it counted and as it is in a fresh copy of its task (`None`: not known)."""

    run: Trajectory
    score: float | None

    @property
    def won(self) -> bool:
        """Whether the run was a win, as it counted."""
        return (self.run.outcome or 0.0) >= 0.5

    @property
    def lost(self) -> bool:
        """Whether a win of the run is none in the fresh copy."""
        return self.won and self.score is not None and self.score < 0.5

    @property
    def untold(self) -> bool:
        """Whether a score could not be graded again."""
        return self.score is None and bool(self.run.outcome)

    def supposing(self, score: float | None) -> "Regraded":
        """The same, with this score where its own could not be graded again."""
        return replace(self, score=score) if self.untold else self

    @property
    def stands(self) -> bool:
        """Whether a win of the run is one in the fresh copy too."""
        return self.won and (self.score or 0.0) >= 0.5


def fresh_copy(
    case: Case, world: World, plain: Played, bars: Bars, evidence: AblationEvidence
) -> Iterator[Evidence | Undefined]:
    """The gain that is left when hand-ins are graded again, and whether that
    makes a shortcut. `plain`: the case's own runs in this world.
    """
    environment = case.environment
    if not isinstance(environment, Regrading):
        why = "The case has no environment that could grade a hand-in apart from its run."
        if environment is not None:
            name = printable(environment.name)
            why = f"The environment {name} cannot grade a hand-in apart from its run."
        yield from evidence.not_regraded(
            why,
            "Give the environment a method `regrade(task, submission)` that returns the rewards"
            " in a fresh copy.",
        )
        return
    runs = [list(case.rollouts(side, without=world)) for side in ("before", *case.afters)]
    if all(run.submission is None for side in runs for run in side):
        yield from evidence.not_regraded(
            "No run says what was handed in, so nothing could be graded again.",
            "Let the last step of the environment tell the `submission`.",
        )
        return
    before, *afters = (regraded(side, environment.regrade) for side in runs)
    after = [one for side in afters for one in side]
    wins, lost = sum(one.won for one in after), sum(one.lost for one in after)
    untold = sum(one.untold for one in after)
    scored = max(sum(bool(one.run.outcome) for one in after), 1)

    def as_scored(side: list[Regraded]) -> list[Regraded]:
        return [one.supposing(one.run.outcome) for one in side]

    def gains_by(before: list[Regraded], afters: list[list[Regraded]]) -> Gains:
        return compare(plain.pair, (_runs(before), tuple(map(_runs, afters))), bars)

    def untold_decides() -> bool:
        """Whether the wins stand only as long as those that could not be graded again do."""
        if not gains.carried.cleared or not any(one.untold for one in (*before, *after)):
            return False
        worst = [[one.supposing(0.0) for one in side] for side in afters]
        return not gains_by(as_scored(before), worst).carried.cleared

    gains = gains_by(before, afters)
    if untold > MOST_UNTOLD * scored or untold_decides():
        gains = gains_by(before, [as_scored(side) for side in afters])
        if not gains.carried.found:  # whatever they are worth
            yield from evidence.not_regraded(
                f"{percent(untold / scored)} of the wins after training could not be graded again.",
                "See that `regrade` knows an outcome for every hand-in.",
            )
            return
    yield from evidence.regraded(gains, lost, wins)
    if gains.p_value < 1 - bars.level:
        yield evidence.bent(telling_kind(before, after), gains, lost, wins)


def regraded(runs: Iterable[Trajectory], regrade: Regrade) -> list[Regraded]:
    """Every run that scored anything graded again; a shortcut invalidates
    successes only, so the others keep theirs.

    A run that handed in nothing is graded as one that handed in `""`. A
    submission that cannot be graded (`regrade` raises, or knows no `outcome`)
    is missing, never a failure.
    """
    scores: dict[tuple[str, str], float | None] = {}
    graded = []
    for run in runs:
        key = run.task, run.submission or ""
        if run.outcome and key not in scores:
            try:
                scores[key] = regrade(*key).get("outcome")
            except UserError:
                raise
            except Exception:  # somebody else's grader: a broken grading is data, not a crash
                scores[key] = None
        graded.append(Regraded(run, scores[key] if run.outcome else run.outcome))
    return graded


def _runs(graded: Iterable[Regraded]) -> Runs:
    """The runs with the scores of the fresh copy."""
    return read_runs(
        {
            "task": one.run.task,
            "sample": one.run.sample,
            "id": one.run.id,
            "outcome": one.score,
            "end": one.run.end,
            "end_reason": one.run.end_reason,
            "steps": [{"role": step.role} for step in one.run.steps],
        }
        for one in graded
    )


def telling_kind(before: Sequence[Regraded], after: Sequence[Regraded]) -> str | None:
    """The kind that sets the wins after training that are lost apart from wins
    that stand, `None` where none does.

    Failed runs do not count: many of them tried the same. With few wins that
    stand, the runs before training stand for them.
    """
    lost = [one for one in after if one.lost]
    standing = [one for one in (*before, *after) if one.stands]
    in_lost, in_rest = _usage(lost), _usage(standing if len(standing) >= FEWEST else before)
    apart = {kind: share - in_rest.get(kind, 0.0) for kind, share in in_lost.items()}
    first = min(apart, key=lambda kind: (-apart[kind], kind), default=None)
    return first if first is not None and apart[first] > TELLING else None


def _usage(runs: Sequence[Regraded]) -> dict[str, float]:
    used = Counter(
        kind
        for one in runs
        for kind in {k for i, _ in one.run.actions for k in step_kinds(one.run, i)}
    )
    return {kind: count / len(runs) for kind, count in used.items()}
