"""From a case to its verdict, whatever gave its runs: measure, decide, report.

The answers of an instrument that finished are stored, so a resumed run does nothing twice.
`evidence.jsonl` is in an order that depends on the findings alone. The verdict is a function of
the evidence.
"""

import gc
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import rmtree
from typing import Any

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import (
    LAYERS,
    Instrument,
    installed_instruments,
    not_installed,
    plain_config,
    run_instrument,
)
from forensics.investigation.costs import Costs, own_runs_are_there
from forensics.investigation.folder import ABLATION, ANSWERS, EVIDENCE, complete_case
from forensics.investigation.leftovers import withhold_leaky
from forensics.played_elsewhere import PlayedElsewhere
from forensics.progress import Progress
from forensics.records import Evidence, Undefined, Verdict, canonical_json, content_hash
from forensics.records.case_file import AblationRow
from forensics.records.files import read_findings, write_json_lines
from forensics.records.finding import Finding
from forensics.verdict import Rule, decide
from forensics.version import code_version, today

ALLOCATIONS = 20_000  # more objects than before, until cycles are searched for
PACKAGES = ("torch", "transformers", "numpy", "scipy")
THROUGH = "ablation.runs_through"
MEASURED = ("gain", "gain_without", "before", "before_without", "after_without")
ENDS = (("estimate", ""), ("low", "_low"), ("high", "_high"))


def report(case: Path, formats: Sequence[str], progress: Progress) -> None:
    """Draw the reports of a finished case."""
    from forensics.report import write_reports

    progress("writing the report", 0, 1)
    write_reports(case, formats)
    progress("writing the report", 1, 1)


def settle(
    case: Case,
    written: Mapping[str, Any],
    findings: Sequence[Evidence | Undefined],
    accept: Sequence[str] = (),
    rule: Rule | None = None,
) -> Verdict:
    """Decide on what was measured, and write it. `written`: what `case.json` says so far."""
    folder = case.folder
    if isinstance(case.environment, PlayedElsewhere):
        findings = withhold_leaky(findings, case)
    write_json_lines(folder / EVIDENCE, findings)
    write_json_lines(folder / ABLATION, ablation_rows(findings))
    verdict = decide(findings, rule, allowed=case.allowed, accepted=accept)
    complete_case(folder, written, verdict)
    rmtree(folder / ANSWERS, ignore_errors=True)
    return verdict


def provenance(tools: Sequence[Instrument], case: Case, device: str) -> dict[str, Any]:
    """What is needed to replay a case: code, libraries, instruments with their
    settings, hashes; and the day (that of `SOURCE_DATE_EPOCH`, where it is set), but no times.
    `left_out`: what is usually measured, and was not to be.
    """
    chosen = {tool.name for tool in tools}
    return {
        "day": today(),
        "left_out": [
            *(one.name for one in installed_instruments() if one.usual and one.name not in chosen),
            *not_installed(),
        ],
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
    return sorted(findings, key=order_of)


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


def order_of(finding: Evidence | Undefined) -> tuple[str, ...]:
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


def chain_findings(case: Case) -> Iterator[Finding]:
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
