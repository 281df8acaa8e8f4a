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

import gc
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import rmtree
from typing import Any

from forensics.case import Budget, Case
from forensics.errors import MissingInput
from forensics.instruments import (
    LAYERS,
    Instrument,
    chosen_instruments,
    plain_config,
    run_instrument,
)
from forensics.investigation.costs import Costs, own_runs_are_there
from forensics.investigation.folder import (
    ABLATION,
    ANSWERS,
    CASE_FILES,
    EVIDENCE,
    FINDINGS,
    Location,
    complete_case,
    write_case,
)
from forensics.investigation.inputs import (
    CaseRequest,
    Inputs,
    check_case,
    require_location,
)
from forensics.policies import Given
from forensics.progress import Progress, silent
from forensics.protocols import Environment
from forensics.records import Evidence, Undefined, Verdict, canonical_json, content_hash
from forensics.records.case_file import AblationRow
from forensics.records.files import read_findings, write_json_lines
from forensics.records.record import SCHEMA_VERSION
from forensics.study import Folder, hold
from forensics.verdict import Rule, decide, read_rule, standard_rule, stated_rule
from forensics.version import code_version

FORMATS = ("html", "md")
ALLOCATIONS = 20_000  # more objects than before, until cycles are searched for
PACKAGES = ("torch", "transformers", "numpy", "scipy")
THROUGH = "ablation.runs_through"
MEASURED = ("gain", "gain_without", "before", "before_without", "after_without")
ENDS = (("estimate", ""), ("low", "_low"), ("high", "_high"))


def investigate(
    before: Given,
    after: Given | Sequence[Given],
    environment: Environment | str | None = None,
    *,
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
    objects. `progress(what, done, of)` hears how far it is. Raises `UserError` for bad input, or
    a folder of something else.
    """
    tools, judge = chosen_instruments(instruments), read_rule(rule)
    request = CaseRequest(
        before=before,
        after=after,
        environment=environment,
        environment_options=environment_options,
        budget=budget,
        training=training,
        trained_tasks=trained_tasks,
        recipe=recipe,
        allow=allow,
        accept=accept,
        instruments=[one for one in instruments or () if isinstance(one, str)],
        seed=seed,
        device=device,
        backend=backend,
        rule=rule,
    )
    with open_case(request, out, resume=resume, force=force, progress=progress) as (folder, inputs):
        case = inputs.case(folder.path, progress, allow)
        verdict = conclude(case, tools, inputs, accept, judge)
        report(folder.path, formats, progress)
        return verdict


def report(case: Path, formats: Sequence[str], progress: Progress) -> None:
    """Draw the reports of a finished case."""
    from forensics.report import write_reports

    progress("writing the report", 0, 1)
    write_reports(case, formats)
    progress("writing the report", 1, 1)


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
    folder = case.folder
    written = start_case(case, tools, inputs) | stated_rule(rule or standard_rule())
    with seldom_collecting():
        findings = measure(case, tools, case.progress)
    write_json_lines(folder / EVIDENCE, findings)
    write_json_lines(folder / FINDINGS, chain_findings(case))
    write_json_lines(folder / ABLATION, ablation_rows(findings))
    verdict = decide(findings, rule, allowed=case.allowed, accepted=accept)
    complete_case(folder, written, verdict)
    rmtree(folder / ANSWERS, ignore_errors=True)
    return verdict


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


def provenance(tools: Sequence[Instrument], case: Case, device: str) -> dict[str, Any]:
    """What is needed to replay a case: code, libraries, instruments with their
    settings, hashes. No times.
    """
    return {
        "code": code_version(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "device": device,
        "instruments": {
            tool.name: {
                "layer": tool.layer,
                "questions": list(tool.questions),
                "config": plain_config(tool.config),
            }
            for tool in tools
        },
        "hashes": case.input_hashes(),
        "tasks": len(case.tasks),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def measure(
    case: Case, tools: Sequence[Instrument], progress: Progress
) -> list[Evidence | Undefined]:
    """The answers of all instruments, in an order that depends on the answers alone.

    What reads the runs that there are comes before what plays further ones: by
    layer, then by name.
    """
    findings: list[Evidence | Undefined] = []
    ordered = sorted(tools, key=lambda tool: (LAYERS.index(tool.layer), tool.name))
    costs = Costs(case)
    closer = costs.say(ordered)
    for number, tool in enumerate(ordered):
        progress("measuring", number, len(tools))
        key = content_hash([canonical_json(tool.provenance(case)), case.tasks])
        stored = case.folder / ANSWERS / f"{tool.name}-{key}.jsonl"
        if not stored.exists():  # else it finished before this run was killed
            write_json_lines(stored, list(run_instrument(tool, case)))
        findings += read_findings(stored)
        if not closer and own_runs_are_there(case):
            closer = costs.say(ordered[number + 1 :])
    progress("measuring", len(tools), len(tools))
    return sorted(findings, key=_order)


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Rows and steps are made by the hundred thousand, and none is in a cycle. Python's
    search for cycles took a quarter of the time, so it looks more seldom meanwhile.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], ALLOCATIONS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _order(finding: Evidence | Undefined) -> tuple[str, ...]:
    """By layer, question, what it is about and which after; the content settles what is left."""
    details = finding.diagnostics if isinstance(finding, Evidence) else {}
    after = str(details.get("after", details.get("side", "")))
    return (
        finding.layer,
        finding.question,
        finding.about or "",
        after,
        finding.method,
        canonical_json(finding),
    )


def chain_findings(case: Case) -> Iterator[dict[str, Any]]:
    """The rows of `findings.jsonl`; none where the case has no logs to read."""
    from forensics.layers.evidence_chain import chain_rows

    try:
        yield from chain_rows(case)
    except MissingInput:
        return


def ablation_rows(findings: Iterable[Evidence | Undefined]) -> Iterator[dict[str, Any]]:
    """The rows of `ablation.jsonl`: one for each kind of action (or pair) that
    was refused to both policies.

    Scores and gains carry `estimate`, `low` and `high`. A kind that only a
    pilot saw, because the before policy needs it or too few runs go on without
    it, has no row; the evidence says so.
    """
    for finding in findings:
        if not isinstance(finding, Evidence) or finding.question != THROUGH:
            continue
        told = finding.diagnostics
        if "gain_without" not in told:
            continue
        row: dict[str, Any] = {
            "kind": finding.about,
            "runs_through": finding.estimate == 1,
            "summary": finding.summary,
            **{name: told[name] for name in ("contains_answer", "q_value", "missing")},
        }
        for name in MEASURED:
            ends = {end: told[f"{name}{suffix}"] for end, suffix in ENDS}
            row[name] = {"level": told["level"], **ends}
        yield AblationRow.model_validate(row).model_dump(mode="json")
