"""Action ablation as a function: a case, or a pair of checkpoints and a world,
in; rows by kind of action out.

1. A pair is checked and opened exactly as `investigate` does, in a folder that
   `investigate` can go on with.
2. The ablation instrument runs on it; everything that was played stays in the
   folder.
3. A folder that holds a finished investigation keeps its verdict and its
   evidence; only `ablation.jsonl` is new.
"""

from collections.abc import Sequence
from shutil import rmtree
from typing import Any

from forensics.case import Case
from forensics.errors import UserError
from forensics.instruments import Instrument, run_instrument
from forensics.investigation.folder import ABLATION, ANSWERS, EVIDENCE, Location, started_case
from forensics.investigation.inputs import CaseRequest
from forensics.investigation.run import ablation_rows, measure, open_case, start_case
from forensics.progress import Progress, silent
from forensics.protocols import Environment
from forensics.records import Evidence, Undefined
from forensics.records.files import write_json_lines
from resampling.ablation.instrument import ablation

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
