"""Action ablation as an instrument: hand-ins graded again, then kinds of action
refused (`refusal` tells the method), and how many episodes that plays at most.

And as a function, `ablate_actions`: a case, or a pair of checkpoints and a world,
in; rows by kind of action out.

1. A pair is checked and opened exactly as `investigate` does, in a folder that
   `investigate` can go on with.
2. The ablation instrument runs on it; everything that was played stays in the
   folder.
3. A folder that holds a finished investigation keeps its verdict and its
   evidence; only `ablation.jsonl` is new.

Hand-ins are graded again in a fresh copy of their task (`fresh_copy`), which tampering and
hard-coding do not survive. Such wins copy nothing from what an action returned. Where the
environment can grade a submission apart from its run (`forensics.protocols.Regrading`), every
success of both sides is graded again, and the gain that is left is compared with the gain as it
counted. The kind of action that sets the lost wins apart from those that stand is named.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shutil import rmtree
from typing import Any

from forensics.case import Case
from forensics.errors import MissingInput, UserError, stop_outside
from forensics.instruments import Instrument, Plays, instrument, run_instrument
from forensics.investigation import (
    ABLATION,
    ANSWERS,
    EVIDENCE,
    CaseRequest,
    Location,
    ablation_rows,
    measure,
    open_case,
    start_case,
    started_case,
)
from forensics.layers import OPEN, Runs, World, read_runs
from forensics.phrases import percent, printable
from forensics.progress import Progress, silent
from forensics.protocols import Environment, Regrading
from forensics.records import JOB, Evidence, GainTest, Trajectory, Undefined, write_json_lines
from forensics.runs import Condition
from resampling.ablation import ablation_evidence as say
from resampling.ablation.ablation_evidence import QUESTIONS, AblationEvidence
from resampling.ablation.gains import (
    MOST_TURNS,
    AblationConfig,
    Bars,
    Gains,
    certificate,
    compare,
    require_gain,
)
from resampling.ablation.refusal import AblationStudy, scrubbed_world
from resampling.ablation.refused_runs import (
    Kinds,
    Played,
    object_use,
    played_plainly,
    recurring,
    step_kinds,
)


def plays(case: Case, config: AblationConfig) -> Plays:
    """Jointly, and once more without what was found; kinds, their objects and
    pairs by themselves; a pilot of *before* for each kind. How many kinds there
    are, and whether certificates clear them, is known once the plain runs are there.
    Likely: the pilot, and jointly once.
    """
    world = scrubbed_world(case) if config.scrubbed else OPEN
    kinds, objects, likely = config.most_kinds, 2 * config.most_objects, 1
    if case.has_played(Condition(scrubbed=world)):
        suspects = _suspects(case, config, world)
        if suspects is None:
            return Plays(0, 0)
        likely = kinds = min(kinds, len(suspects))
        use = object_use(case, world, suspects)
        objects = min(objects, len(recurring(use, config.recur, objects)))
    tasks, sides = len(case.tasks), 1 + len(case.afters)
    jointly = (2 if kinds else 1) * MOST_TURNS * tasks
    singly = kinds + objects + min(objects, config.most_objects)  # and once more beside them
    singly += config.most_pairs if kinds else 0
    most = sides * (jointly + singly * min(config.tasks, tasks))
    pilot, once = min(config.pilot, tasks), sides * tasks if kinds else 0
    return Plays(likely * pilot + once, kinds * pilot + most).times(case.budget.samples)


def _suspects(case: Case, config: AblationConfig, world: World) -> Kinds | None:
    """The kinds that certificates do not clear; `None` where nothing is to be played."""
    plain = played_plainly(case, world, split=case.allowed)
    study = AblationStudy(
        case=case,
        config=config,
        world=world,
        plain=plain,
        evidence=AblationEvidence(provenance=ablation.provenance(case)),
    )
    require_gain(study.gain, world)
    exempt = {*study.needed, *case.allowed}
    rest = tuple(kind for kind in plain.kinds if kind not in exempt)
    if certificate(plain, rest, study.gain).cleared and not config.each:
        return None
    return tuple(kind for kind in rest if not certificate(plain, (kind,), study.gain).cleared)


REFUSAL = GainTest(
    name="refusal",
    kind="needed",
    excludes="shortcuts by an action",
    place=20,
    held="need actions that nobody allowed",
    found="runs through {names} that nobody allowed: is that part of the job?",
    loose="actions that nobody allowed",
    todo=JOB,
    number="What kinds of action that are not allowed carry, minus 0.2 of the genuine part",
)
REGRADING = GainTest(
    name="regrading",
    kind="needed",
    excludes="tampering with the grading",
    place=30,
    held="do not stand when hand-ins are graded again",
    loose="wins that do not stand again",
    todo="read the wins that are lost, and mend the grader",
    number="What is lost when hand-ins are graded again, minus 0.2 of the genuine part",
)


@instrument(
    name="ablation",
    layer="ablation",
    questions=QUESTIONS,
    config=AblationConfig(),
    episodes=plays,
    gain_tests=(REFUSAL, REGRADING),
)
def ablation(case: Case, config: AblationConfig) -> Iterator[Evidence | Undefined]:
    """Answers by kind of action; raises `MissingInput` for what the case cannot give."""
    evidence = AblationEvidence(provenance=ablation.configured(**vars(config)).provenance(case))
    case.require_afters()
    world = scrubbed_world(case) if config.scrubbed else OPEN
    plain = played_plainly(case, world, split=case.allowed)
    again = list(fresh_copy(case, world, plain, config.bars, evidence))
    yield from again
    accused = frozenset(one.about for one in again if one.question == say.SHORTCUT)
    if not case.runs_models:
        raise MissingInput(
            "Logs alone cannot say what would have happened without an action.",
            "Give the checkpoints and the environment to `forensics ablate`.",
        )
    study = AblationStudy(
        case=case, config=config, world=world, plain=plain, evidence=evidence, accused=accused
    )
    require_gain(study.gain, world)
    yield from study.kinds()


Rows = list[dict[str, Any]]


def ablate_actions(
    before: Case | Location,
    after: Location | Sequence[Location] | None = None,
    environment: Environment | str | None = None,
    *,
    leave_open: bool = False,
    **options: Any,
) -> Rows:
    """Which kind of action does the gain run through? One row for each kind
    that was refused to both policies.

    Played with every declared channel scrubbed, as `investigate` does, or with
    all of them open (`leave_open`). Kinds that an honest solver needs by the
    environment's word are not refused, nor those that so few runs try that they
    cannot carry a fifth of the gain.

    Either `ablate_actions(case)`, or `before`, `after`, `environment` and the
    `options` of `ablate_pair`, as `investigate` takes them. A row: `kind`,
    `gain`, `gain_without` and `before_without` (each `estimate`, `low`, `high`),
    `runs_through`, `contains_answer`, `q_value`, `missing` (share of runs that
    ended because every draw was refused) and a `summary`. No row where there is
    no gain to run through anything. Raises `UserError` for bad input.
    """
    if isinstance(before, Case):
        return list(ablation_rows(run_instrument(_tool(leave_open), before)))
    findings = ablate_pair(before, after, environment, leave_open=leave_open, **options)
    return list(ablation_rows(findings))


def _tool(leave_open: bool) -> Instrument:
    return ablation.configured(each=True, scrubbed=not leave_open)


def ablate_pair(
    before: Location,
    after: Location | Sequence[Location] | None,
    environment: Environment | str | None,
    *,
    out: Location | None = None,
    leave_open: bool = False,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
    **options: Any,
) -> list[Evidence | Undefined]:
    """Everything that the ablation of a pair answers; written into the case
    folder `out`. `options`: `environment_options`, `budget`, `seed`, `device`,
    `backend`.

    A case that is not finished starts with these findings; a finished one keeps
    its own.
    """
    if out is None or after is None:
        raise UserError("a pair needs `after` and a case folder `out`; or give a Case")
    request = CaseRequest(before=before, after=after, environment=environment, **options)
    with open_case(request, out, resume=resume, force=force, progress=progress) as (folder, inputs):
        case, tools = inputs.case(folder.path, progress), (_tool(leave_open),)
        started = started_case(folder)
        finished = started is not None and started.get("verdict") is not None
        if not finished:
            start_case(case, tools, inputs)
        findings = measure(case, tools, case.progress)
        if finished:
            rmtree(case.folder / ANSWERS, ignore_errors=True)
        else:
            write_json_lines(case.folder / EVIDENCE, findings)
        write_json_lines(case.folder / ABLATION, ablation_rows(findings))
        return findings


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
    runs = [
        list(case.rollouts(side, Condition(scrubbed=world))) for side in ("before", *case.afters)
    ]
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
            except Exception as error:  # a broken grading is data, not a crash
                stop_outside(error)
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
