"""`investigate`: check, sample, measure, decide, report; at any moment it may
be killed and resumed.

1. The inputs are checked and hashed, and `case.json` states them before
   anything is measured. What is likely played, and at most, is said (`costs`).
2. Every instrument (all installed ones, or those that were chosen) answers its
   questions. Rollouts are stored in
   chunks by the case; the answers of an instrument that finished are stored
   too, so a resumed run does nothing twice.
3. `evidence.jsonl` is written in an order that depends on the findings alone,
   then `findings.jsonl` and `ablation.jsonl`.
4. The verdict is a function of the evidence; it goes into `case.json`, and the
   reports are drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forensics.case import Budget, Case
from forensics.errors import UserError
from forensics.instruments import (
    Instrument,
    chosen_instruments,
)
from forensics.investigation.concluded import (
    chain_findings,
    measure,
    provenance,
    report,
    seldom_collecting,
    settle,
)
from forensics.investigation.folder import (
    CASE_FILES,
    FINDINGS,
    Location,
    write_case,
)
from forensics.investigation.four_logs import investigate_logs
from forensics.investigation.inputs import (
    CaseRequest,
    Inputs,
    check_case,
    require_location,
)
from forensics.policies import Given
from forensics.progress import Progress, silent
from forensics.protocols import Environment
from forensics.records import Verdict
from forensics.records.files import write_json_lines
from forensics.records.record import SCHEMA_VERSION
from forensics.study import Folder, hold
from forensics.verdict import Rule, read_rule, standard_rule, stated_rule

FORMATS = ("html", "md")


def investigate(
    before: Given | None = None,
    after: Given | Sequence[Given] | None = None,
    environment: Environment | str | None = None,
    *,
    logs: Mapping[str, Location] | None = None,
    environment_options: Mapping[str, str] | None = None,
    budget: Budget | None = None,
    training: Location | None = None,
    trained_tasks: Location | None = None,
    recipe: Location | None = None,
    allow: Sequence[str] = (),
    accept: Sequence[str] = (),
    rule: Rule | Mapping[str, Any] | Location | None = None,
    instruments: Sequence[str | Instrument] | None = None,
    seed: int = 0,
    out: Location,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    backend: str = "huggingface",
    formats: Sequence[str] = FORMATS,
    progress: Progress = silent,
) -> Verdict:
    """Is the gain from `before` to `after` real? Answers in the case folder `out`.

    The options of `forensics investigate` (docs/verdict.md) say what each argument does. Beside
    names and paths, `before` and `after` (several: training seeds of one recipe) may be policies
    in memory, `environment` a world, `rule` a `Rule`, and `instruments` further `Instrument`
    objects. `logs`: runs of another harness in their place (`four_logs`).
    `progress(what, done, of)` hears how far it is. Raises `UserError` for bad input, or
    a folder of something else.
    """
    how: dict[str, Any] = {"resume": resume, "force": force, "progress": progress}
    if logs is not None:
        _require_alone(before, after, environment, environment_options, training, trained_tasks,
                       recipe, None if budget == Budget() else budget)  # fmt: skip
        said: dict[str, Any] = {"allow": allow, "accept": accept, "rule": rule, "seed": seed}
        return investigate_logs(
            logs, **said, instruments=instruments, out=out, formats=formats, **how
        )
    if before is None or after is None:
        raise _missing("before" if before is None else "after")
    tools, judge = chosen_instruments(instruments), read_rule(rule)
    request = CaseRequest(
        before=before, after=after, environment=environment,
        environment_options=environment_options, budget=budget, training=training,
        trained_tasks=trained_tasks, recipe=recipe, allow=allow, accept=accept,
        instruments=[one for one in instruments or () if isinstance(one, str)],
        seed=seed, device=device, backend=backend, rule=rule,
    )  # fmt: skip
    with open_case(request, out, **how) as (folder, inputs):
        case = inputs.case(folder.path, progress, allow)
        verdict = conclude(case, tools, inputs, accept, judge)
        report(folder.path, formats, progress)
        return verdict


def _missing(side: str) -> UserError:
    return UserError(
        f"{side} is missing: give the checkpoints with --before and --after, or logs with --logs"
    )


def _require_alone(*others: Any) -> None:
    """Raises `UserError` for what means nothing beside `--logs`."""
    names = ("before", "after", "env", "env-option", "training", "trained-tasks", "recipe", "tasks")
    if given := [name for name, value in zip(names, others, strict=True) if value]:
        raise UserError(
            f"--{given[0]} means nothing beside --logs, which has the runs already; leave one out"
        )


@contextmanager
def open_case(
    request: CaseRequest, out: Location, *, resume: bool, force: bool, progress: Progress
) -> Iterator[tuple[Folder, Inputs]]:
    """The case folder, held and ready to be written, and the checked inputs: for
    whatever writes a case. Raises `UserError` for bad input, a full disk, or a
    folder that holds something else.
    """
    request.check()
    require_location("out", out)
    path, how = Path(out).expanduser(), {"resume": resume, "force": force}
    with hold(Folder(path, "case", CASE_FILES, **how, progress=progress)) as folder:
        inputs = check_case(request, folder)
        folder.begin()
        yield folder, inputs


def conclude(
    case: Case,
    tools: Sequence[Instrument],
    inputs: Inputs,
    accept: Sequence[str] = (),
    rule: Rule | None = None,
) -> Verdict:
    """Measure a case with these instruments and decide; all but the report is
    written to its folder.
    """
    written = start_case(case, tools, inputs) | stated_rule(rule or standard_rule())
    with seldom_collecting():
        findings = measure(case, tools, case.progress)
    write_json_lines(case.folder / FINDINGS, chain_findings(case))
    return settle(case, written, findings, accept, rule)


def start_case(case: Case, tools: Sequence[Instrument], inputs: Inputs) -> dict[str, Any]:
    """Write what a case is started with, before anything is measured; returns it."""
    written = {
        "schema_version": SCHEMA_VERSION,
        "status": "running",
        "verdict": None,
        "inputs": inputs.stated(),
        "provenance": provenance(tools, case, inputs.device),
    }
    write_case(case.folder, written)
    return written
