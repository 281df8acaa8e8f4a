"""When a layer fires at an audit, and from which audit on. The rules are those of the README."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.degeneration.runs import Run
from forensics.layers import LINES, AlertLine, StepNumbers, parse_line, read_step
from forensics.records import Evidence
from forensics.records.files import read_findings
from forensics.records.train_tables import TrainingRecord
from training.live import AuditReport, read_reports

LAYERS = ("behaviour", "score", "signal")
TRAPS = ("behaviour.echo_trap", "behaviour.collapse")
STRETCH, MARGIN, WIN = 5, 0.02, 0.5


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One audit: whether each layer fires, and the figures by which the cause is judged."""

    step: int
    fires: dict[str, bool]
    alerts: tuple[str, ...]
    label: str
    turns_before: float
    turns_after: float
    gain: tuple[float, float, float]


def audits_of(run: Run) -> list[Audit]:
    """All audits of a run, in the order of their steps."""
    record = TrainingRecord(run.folder)
    steps = [read_step(record, step, 0.0, WIN) for step in record.steps()]
    return [_audit(run, report, steps) for report in read_reports(run.folder)]


def noticed(audits: Sequence[Audit], layer: str) -> int | None:
    """The first step from which the layer fires at every audit to the end;
    `None` where it does not at the last.
    """
    first = None
    for audit in reversed(audits):
        if not audit.fires[layer]:
            break
        first = audit.step
    return first


def ever(audits: Sequence[Audit], layer: str) -> bool:
    """Whether the layer fires at any audit."""
    return any(audit.fires[layer] for audit in audits)


def cause_is_there(run: Run, last: Audit) -> bool | None:
    """Echo: turns at least doubled while the score did not fall. Collapse: mean
    turns below 1.5. Controls: `None`.
    """
    if not run.planted:
        return None
    if run.branch == "collapse":
        return last.turns_after < 1.5
    return last.turns_after >= 2 * last.turns_before and last.gain[2] >= 0


def _audit(run: Run, report: AuditReport, steps: Sequence[StepNumbers]) -> Audit:
    found = {
        f.question: f
        for f in read_findings(run.folder / report.folder / "evidence.jsonl")
        if isinstance(f, Evidence)
    }
    gain, trap = report.gain, found["behaviour.echo_trap"]
    if gain is None:
        raise ValueError(f"the audit of {run.folder} after step {report.step} has no gain")
    phantom = report.phantom
    crossed = new_alerts([step for step in steps if step.step < report.step])
    return Audit(
        step=report.step,
        alerts=crossed,
        label=report.label,
        fires={
            "behaviour": any(name in found and found[name].estimate >= 0.5 for name in TRAPS),
            "score": gain.high < 0 or (phantom is not None and phantom.low > MARGIN),
            "signal": bool(crossed),
        },
        turns_before=_figure(trap, "turns before"),
        turns_after=_figure(trap, "turns after"),
        gain=(gain.estimate, gain.low, gain.high),
    )


def _figure(evidence: Evidence, name: str) -> float:
    value: Any = evidence.diagnostics[name]
    return float(value)


def new_alerts(steps: Sequence[StepNumbers]) -> tuple[str, ...]:
    """Alert lines that are crossed over the last steps of this stretch of the
    run and were not over the first.
    """
    first, last = steps[:STRETCH], steps[-STRETCH:]
    lines = [parse_line(text) for text in LINES]
    return tuple(f"{line.measure} {line.words}" for line in lines if _newly(line, first, last))


def _newly(line: AlertLine, first: Sequence[StepNumbers], last: Sequence[StepNumbers]) -> bool:
    start, end = level(first, line.measure), level(last, line.measure)
    return end is not None and line.crossed(end) and not (start is not None and line.crossed(start))


def level(steps: Sequence[StepNumbers], measure: str) -> float | None:
    """The mean of a measure over steps, `None` where no step has it. `turns of
    failed runs: ratio` is worked out.
    """
    if measure == "turns of failed runs: ratio":
        failed, won = (level(steps, f"turns of {which} runs") for which in ("failed", "successful"))
        return failed / won if failed and won else None
    known = [value for step in steps if (value := step.mean(measure)) is not None]
    return float(np.mean(known)) if known else None
