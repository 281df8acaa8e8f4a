"""One cell, investigated: what the verdict says, as a row of plain values."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.dose_grid.cells import Cell
from forensics import Budget, investigate
from forensics.instruments import installed_instruments
from forensics.policies import scripted_policy
from forensics.records import Evidence, Undefined, Verdict
from forensics.records.files import read_findings

BUDGET = Budget(tasks=300, samples=4)
BESIDE = ("score", "behaviour", "ablation")  # what the rule reads beside the families
ACCUSING = "ablation.shortcut"


def instruments() -> tuple[str, ...]:
    """Every family of tests, and what the clauses of the rule read beside."""
    families = (tool.name for tool in installed_instruments() if tool.layer == "sources")
    return (*BESIDE, *families)


def judged(cell: Cell) -> dict[str, Any]:
    """A row of `cases.jsonl`. A cell whose investigation fails says why."""
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "case"
        try:
            verdict = investigate(
                scripted_policy(cell.pair.before),
                scripted_policy(cell.pair.after),
                cell.world,
                budget=BUDGET,
                seed=cell.seed,
                allow=cell.allow,
                instruments=instruments(),
                out=out,
                device="cpu",
                formats=(),
            )
        except Exception as error:
            return {"cell": cell.key, "failed": f"{type(error).__name__}: {error}"[:500]}
        findings = list(read_findings(out / "evidence.jsonl"))
    seconds = round(time.process_time() - started, 2)
    return {"cell": cell.key, **told(verdict), **measured(findings), "seconds": seconds}


def measured(findings: Sequence[Evidence | Undefined]) -> dict[str, Any]:
    """What was called a shortcut, and what each family carries over its bar."""
    found = [one for one in findings if isinstance(one, Evidence)]
    over = [one for one in found if one.question.endswith("over_bar") and one.interval]
    return {
        "shortcuts": sorted(
            one.about or "" for one in found if one.question == ACCUSING and one.estimate == 1
        ),
        "over_bar": {
            one.question: [round(x, 4) for x in (one.estimate, one.interval.low, one.interval.high)]
            for one in over
            if one.about is None and one.interval
        },
    }


def told(verdict: Verdict) -> dict[str, Any]:
    """What the tables are made of."""
    return {
        "label": verdict.label,
        "reason_code": verdict.reason_code,
        "decided_by": verdict.decided_by,
        "rule": verdict.rule,
        "gain": ends(verdict.gain),
        "genuine_gain": ends(verdict.genuine_gain),
        "parts": parts(verdict),
        "sources": [
            {
                "family": one.family,
                "source": one.source,
                "status": one.status,
                "carried": ends(one.carried),
                "reason": one.reason[:160],
            }
            for one in verdict.sources
        ],
        "first_gap": verdict.gaps[0].text[:240] if verdict.gaps else None,
    }


def parts(verdict: Verdict) -> Mapping[str, list[float] | None]:
    """The parts of the gain, those that are known; `{}` where a verdict has none."""
    found = getattr(verdict, "parts", None)
    return {name: ends(value) for name, value in found if value} if found else {}


def ends(value: Any) -> list[float] | None:
    if value is None:
        return None
    return [round(number, 4) for number in (value.estimate, value.low, value.high)]
