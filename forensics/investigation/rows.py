"""Rows of files that repeat some of the evidence in a plainer form."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from forensics.records import AblationRow, Evidence, Undefined

THROUGH: Final = "ablation.runs_through"
MEASURED: Final = ("gain", "gain_without", "before", "before_without", "after_without")
ENDS: Final = (("estimate", ""), ("low", "_low"), ("high", "_high"))


def ablation_rows(findings: Iterable[Evidence | Undefined]) -> Iterator[dict[str, Any]]:
    """The rows of `ablation.jsonl`: one for each kind of action (or pair) that was refused to both policies.

    Scores and gains carry `estimate`, `low` and `high`. A kind that only a pilot saw, because the before policy needs
    it or too few runs go on without it, has no row; the evidence says so.
    """
    for finding in findings:
        if isinstance(finding, Evidence) and finding.question == THROUGH and "gain_without" in finding.diagnostics:
            yield _row(finding)


def _row(finding: Evidence) -> dict[str, Any]:
    told = finding.diagnostics
    measured = {
        name: {"level": told["level"], **{end: told[f"{name}{suffix}"] for end, suffix in ENDS}} for name in MEASURED
    }
    others = {name: told[name] for name in ("contains_answer", "q_value", "missing")}
    row = {"kind": finding.about, "runs_through": finding.estimate == 1, "summary": finding.summary}
    return AblationRow.model_validate({**row, **others, **measured}).model_dump(mode="json")
