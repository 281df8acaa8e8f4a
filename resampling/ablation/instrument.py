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
"""

from collections.abc import Iterator, Sequence
from shutil import rmtree
from typing import Any

from forensics.case import Case
from forensics.errors import MissingInput, UserError
from forensics.instruments import Instrument, instrument, run_instrument
from forensics.investigation.folder import ABLATION, ANSWERS, EVIDENCE, Location, started_case
from forensics.investigation.inputs import CaseRequest
from forensics.investigation.run import ablation_rows, measure, open_case, start_case
from forensics.layers.decomposition import OPEN, World
from forensics.progress import Progress, silent
from forensics.protocols import Environment
from forensics.records import Evidence, Undefined
from forensics.records.files import write_json_lines
from resampling.ablation import ablation_evidence as say
from resampling.ablation.ablation_evidence import QUESTIONS, AblationEvidence
from resampling.ablation.fresh_copy import fresh_copy
from resampling.ablation.gains import (
    MOST_TURNS,
    AblationConfig,
    certificate,
    require_gain,
)
from resampling.ablation.refusal import AblationStudy, scrubbed_world
from resampling.ablation.refused_runs import (
    Kinds,
    object_use,
    played_plainly,
    recurring,
)


def most_episodes(case: Case, config: AblationConfig) -> int:
    """Jointly, and once more without what was found; kinds, their objects and
    pairs by themselves; a pilot of *before* for each kind. How many kinds there
    are, and whether certificates clear them, is known once the plain runs are there.
    """
    world = scrubbed_world(case) if config.scrubbed else OPEN
    kinds, objects = config.most_kinds, 2 * config.most_objects
    if case.has_played(world):
        suspects = _suspects(case, config, world)
        if suspects is None:
            return 0
        kinds, use = min(kinds, len(suspects)), object_use(case, world, suspects)
        objects = min(objects, len(recurring(use, config.recur, objects)))
    tasks = len(case.tasks)
    jointly = (2 if kinds else 1) * MOST_TURNS * tasks
    singly = kinds + objects + min(objects, config.most_objects)  # and once more beside them
    singly += config.most_pairs if kinds else 0
    sides = (1 + len(case.afters)) * (jointly + singly * min(config.tasks, tasks))
    return case.budget.samples * (sides + kinds * min(config.pilot, tasks))


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


@instrument(
    name="ablation",
    layer="ablation",
    questions=QUESTIONS,
    config=AblationConfig(),
    episodes=most_episodes,
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
    if not case.policies:
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
