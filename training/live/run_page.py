"""The page of a watched run: the gain and its parts by step, and what is said of each
checkpoint. Drawn from `audits.jsonl` and `promotable.json` alone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from forensics.phrases import plural
from forensics.records import Estimate, Figure, Page, Section, Series, Table, write_atomically
from forensics.report import draw_page
from training.live.audit_report import AuditReport, read_reports
from training.live.marks import Mark, last_judged, read_marks

PAGE: Final = "watch.html"
PARTS: Final = ("gain", "genuine", "phantom")
HINT: Final = (
    "Score differences to the start on held-out tasks, with 95 % intervals over tasks. The phantom"
    " part is what vanishes in the world that is scrubbed of every declared shortcut."
)
LIMITS: Final = (
    "Whether the audited prompts are those that the trainer trains on cannot be seen from"
    " checkpoints. An audit refuses no action and grades nothing again, so it never says that a"
    " gain is genuine: run `forensics investigate` on the checkpoint that is to be used."
)


def write_page(folder: Path) -> None:
    """Draw the page of a watch into its folder."""
    write_atomically(folder / PAGE, draw_page(run_page(read_reports(folder), read_marks(folder))))


def run_page(reports: Sequence[AuditReport], marks: Sequence[Mark]) -> Page:
    """The page as data."""
    last = last_judged(marks)
    waiting = sum(one.state in ("waiting", "due") for one in marks)
    alarms = [f"Step {report.step}: {report.alarm}" for report in reports if report.alarm]
    curves = (by_step(reports),) if len(reports) > 1 else ()
    return Page(
        eyebrow="Audits of a run",
        title=title_of(last),
        sentences=(*([last.reason] if last else []), *alarms, LIMITS),
        facts=(
            plural(len(reports), "audit"),
            plural(len(marks), "checkpoint"),
            *([f"{waiting} waited for"] if waiting else []),
        ),
        sections=(
            Section(title="The gain by step", hint=HINT, blocks=(*curves, audit_table(reports))),
            Section(
                title="Checkpoints",
                hint="Promotable are weights that were audited themselves, known by content.",
                blocks=(mark_table(marks),) if marks else (),
                empty="None has been seen.",
            ),
        ),
        command=f"forensics report DIR/{last.audit} --format html" if last and last.audit else "",
    )


def title_of(last: Mark | None) -> str:
    """What is said of the last checkpoint that was judged."""
    if last is None:
        return "No checkpoint has been audited"
    return f"{last.checkpoint} is {'' if last.promotable else 'not '}promotable"


def by_step(reports: Sequence[AuditReport]) -> Figure:
    """The gain and its parts over the steps of the run."""
    return Figure(
        title="Gain, genuine and phantom part by step",
        form="lines",
        x_label="step",
        y_label="score difference",
        series=tuple(
            Series(
                name=name,
                x=tuple(float(report.step) for report in reports),
                y=tuple(None if part is None else part.estimate for part in parts),
                low=tuple(None if part is None else part.low for part in parts),
                high=tuple(None if part is None else part.high for part in parts),
            )
            for name in PARTS
            for parts in [[getattr(report, name) for report in reports]]
        ),
    )


def audit_table(reports: Sequence[AuditReport]) -> Table:
    """A row an audit."""
    rows: list[tuple[int | str | Estimate | None, ...]] = [
        (
            report.step,
            *(getattr(report, name) for name in PARTS),
            report.label,
            "yes" if report.alarm else "no",
            report.folder,
        )
        for report in reports
    ]
    return Table(
        title="Audits",
        columns=("step", *PARTS, "label", "alarm", "case folder"),
        rows=tuple(rows),
        units=dict.fromkeys(PARTS, "score difference"),
    )


def mark_table(marks: Sequence[Mark]) -> Table:
    """A row a checkpoint, with the start of its weights' hash."""
    return Table(
        title="What is said of each",
        columns=("checkpoint", "step", "weights", "state", "promotable", "why"),
        rows=tuple(
            (
                one.checkpoint,
                one.step,
                None if one.weights is None else one.weights[:16],
                one.state,
                "yes" if one.promotable else "no",
                one.reason,
            )
            for one in marks
        ),
    )
