"""What an audit says, as one line of `audits.jsonl` and as scalars for a logger."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from forensics.records import Estimate, Record
from forensics.records.files import read_json, write_json_lines
from forensics.wording import point_range, points

LINES = "audits.jsonl"
ENDS = {"": "estimate", "_low": "low", "_high": "high"}


class AuditReport(Record):
    """One audit: the current policy, after `step` updates, against the policy after `start_step` (mostly 0).

    `gain`, `genuine`, `phantom`, `phantom_imputed`: score differences with 95 % intervals over tasks; `None`: not
    measured, `missing` says why. `attempts`, `wins`: by channel, the current policy's share of runs that tried it and
    of wins credited to it. `label`, `sentence`, `reasons`: the verdict of the case in `folder`. `alarm`: one sentence,
    or `None`. `doubt`: why the audited prompts may not be those that are trained on. `policy`: the hash of the
    weights. `episodes` played and `seconds` taken, the start not included.
    """

    step: int
    start_step: int
    policy: str
    label: str
    sentence: str
    reasons: tuple[str, ...]
    gain: Estimate | None
    genuine: Estimate | None
    phantom: Estimate | None
    phantom_imputed: Estimate | None
    missing: str | None = None
    doubt: str | None = None
    attempts: dict[str, float] = {}
    wins: dict[str, float] = {}
    alarm: str | None = None
    folder: str
    episodes: int
    seconds: float


def read_reports(folder: Path) -> list[AuditReport]:
    """The audits of a run in the order of their steps; none where the run has not been audited."""
    path = folder / LINES
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [AuditReport.model_validate(json.loads(line)) for line in lines]


def write_reports(folder: Path, reports: Iterable[AuditReport]) -> None:
    """All lines anew, atomically: a run that resumes writes the steps it does again over the old ones."""
    write_json_lines(folder / LINES, sorted(reports, key=lambda report: report.step))


def told(report: AuditReport) -> str:
    """One line for whoever watches: the split in points, with interval ends."""
    named = {"gain": report.gain, "genuine": report.genuine, "phantom": report.phantom}
    parts = ", ".join(
        f"{name} not measured" if part is None
        else f"{name} {points(part.estimate)} ({point_range(part.low, part.high)})"
        for name, part in named.items()
    )
    return f"Audit after step {report.step}: {parts}"


def scalars(report: AuditReport) -> Mapping[str, float]:
    """The numbers of an audit under `audit/...`; what was not measured is absent."""
    found = {"audit/alarm": float(report.alarm is not None), "audit/seconds": report.seconds}
    for name in ("gain", "genuine", "phantom"):
        part = getattr(report, name)
        found |= {} if part is None else {f"audit/{name}{end}": getattr(part, field) for end, field in ENDS.items()}
    for kind in ("attempts", "wins"):
        found |= {f"audit/{kind}/{channel}": share for channel, share in getattr(report, kind).items()}
    return found


def tensorboard_writer(folder: Path) -> Any | None:
    """A writer into `folder/tensorboard`, `None` where tensorboard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"))


def mark(step: int, report: AuditReport | None, ceiling: float) -> Mapping[str, Any]:
    """What `promotable.json` says of a checkpoint saved after `step` updates, in the light of the newest audit.

    Promotable are weights that were audited themselves, with the prompts that are trained on, without alarm, and with
    a phantom part of at most `ceiling` at the upper end of its interval.
    """
    if report is None or report.step != step:
        newest = "no audit was made" if report is None else f"the newest audit is of step {report.step}"
        against: str | None = f"These weights (step {step}) were not audited: {newest}."
    else:
        against = report.doubt or report.alarm or _not_shown(report, ceiling)
    reason = against or (
        f"The audit of these weights raised no alarm, and shows a phantom part of at most {points(ceiling)} points."
    )
    audit = None if report is None else report.folder
    return {"promotable": against is None, "reason": reason, "step": step, "audit": audit}


def _not_shown(report: AuditReport, ceiling: float) -> str | None:
    """Why an audit without alarm does not show that the phantom part is small."""
    if report.phantom is None:
        return f"The phantom part of the gain could not be measured: {report.missing}"
    widest = max((part for part in (report.phantom, report.phantom_imputed) if part), key=lambda part: part.high)
    if widest.high <= ceiling:
        return None
    interval = point_range(widest.low, widest.high)
    return (
        f"The audit raised no alarm but shows too little: the phantom part may be {interval} points, and a promotable "
        f"checkpoint's at most {points(ceiling)}; audit with more tasks or samples."
    )


def promotable(folder: Path) -> bool:
    """Whether a saved checkpoint is marked as promotable; one without a mark is not."""
    path = folder / "promotable.json"
    return path.is_file() and read_json(path).get("promotable") is True
