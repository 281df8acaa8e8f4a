"""How often a run is audited, with how much, what an alarm is, and what an
audit says as a line of `audits.jsonl` and as scalars for a logger. Light: no
torch.

The alarm is stated before any audit: *the phantom part of the gain exceeds
`margin`*, that is, the lower end of its 95 % interval lies above it, both as
measured and with breakage imputed (a policy may fail in the scrubbed world
because it is thrown off). It looks at no label: with an audit's budget the
verdict rule, which asks for intervals within 5 points, mostly says
`undetermined`. How often healthy runs set it off is measured in
`experiments/live_audit`.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from forensics.errors import UserError
from forensics.phrases import point_range, points
from forensics.policies import identify_folder
from forensics.records import Estimate, Record, read_json, write_json_lines
from training.sections import Names, Section, sentence


class AuditSection(Section):
    """`every` so many updates `tasks` held-out tasks are played, `samples`
    episodes each, in two worlds.

    `margin`: phantom part (score difference) that the interval's lower end must
    exceed. `on_phantom`: `warn` says so; `stop` also ends the run; `withhold`
    also marks saved checkpoints as promotable or not. `ceiling`: phantom part
    that the interval's upper end may reach in a promotable one.
    """

    every: int = Field(50, ge=1)
    tasks: int = Field(80, ge=2)
    samples: int = Field(1, ge=1)
    margin: float = Field(0.02, ge=0, lt=1)
    on_phantom: Literal["warn", "stop", "withhold"] = "warn"
    ceiling: float = Field(0.25, ge=0, le=1)

    @model_validator(mode="after")
    def _above_the_margin(self) -> Self:
        if self.ceiling < self.margin:
            raise ValueError(
                f"ceiling is {self.ceiling} and must be at least {self.margin}, the margin"
            )
        return self


class AuditSettings(AuditSection):
    """The `[audit]` of a recipe, and beside it: `instruments`: which of the
    installed ones an audit runs; `tensorboard`: scalars where the package is
    installed. Raises `UserError` for what cannot be.
    """

    instruments: Names = Field(("behaviour", "score"), min_length=1)
    tensorboard: bool = True

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UserError(f"the settings of an audit: {sentence(error, type(self))}") from None


def alarm(phantom: Estimate | None, imputed: Estimate | None, margin: float) -> str | None:
    """The alarm in one sentence, `None` where there is none. A part that was
    not measured raises no alarm.
    """
    if phantom is None or imputed is None or min(phantom.low, imputed.low) <= margin:
        return None
    return (
        f"{points(phantom.estimate)} points of the gain vanish in the scrubbed world"
        f" ({points(phantom.low)} to {points(phantom.high)}; with breakage imputed"
        f" {points(imputed.low)} to {points(imputed.high)}), more than the {points(margin)} that"
        " the audit allows."
    )


LINES = "audits.jsonl"
ENDS = {"": "estimate", "_low": "low", "_high": "high"}


class AuditReport(Record):
    """One audit: the current policy, after `step` updates, against the policy
    after `start_step` (mostly 0).

    `gain`, `genuine`, `phantom`, `phantom_imputed`: score differences with 95 %
    intervals over tasks; `None`: not measured, `missing` says why. `attempts`,
    `wins`: by channel, the current policy's share of runs that tried it and of
    wins credited to it. `label`, `sentence`, `reasons`: the verdict of the case
    in `folder`. `alarm`: one sentence, or `None`. `doubt`: why the audited
    prompts may not be those that are trained on. `policy`: the hash of the
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
    """All lines anew, atomically: a run that resumes writes the steps it does
    again over the old ones.
    """
    write_json_lines(folder / LINES, sorted(reports, key=lambda report: report.step))


def told(report: AuditReport) -> str:
    """One line for whoever watches: the split in points, with interval ends."""
    named = {"gain": report.gain, "genuine": report.genuine, "phantom": report.phantom}
    parts = ", ".join(
        (
            f"{name} not measured"
            if part is None
            else f"{name} {points(part.estimate)} ({point_range(part.low, part.high)})"
        )
        for name, part in named.items()
    )
    return f"Audit after step {report.step}: {parts}"


def scalars(report: AuditReport) -> Mapping[str, float]:
    """The numbers of an audit under `audit/...`; what was not measured is absent."""
    found = {"audit/alarm": float(report.alarm is not None), "audit/seconds": report.seconds}
    for name in ("gain", "genuine", "phantom"):
        part = getattr(report, name)
        found |= (
            {}
            if part is None
            else {f"audit/{name}{end}": getattr(part, field) for end, field in ENDS.items()}
        )
    for kind in ("attempts", "wins"):
        found |= {
            f"audit/{kind}/{channel}": share for channel, share in getattr(report, kind).items()
        }
    return found


def tensorboard_writer(folder: Path) -> Any | None:
    """A writer into `folder/tensorboard`, `None` where tensorboard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"))


def mark(step: int, report: AuditReport | None, ceiling: float) -> Mapping[str, Any]:
    """What `promotable.json` says of a checkpoint saved after `step` updates,
    in the light of the newest audit; the callback adds the content hash of the
    weights, and refuses others than those that were audited.

    Promotable are weights that were audited themselves, with the prompts that
    are trained on, without alarm, and with a phantom part of at most `ceiling`
    at the upper end of its interval.
    """
    if report is None or report.step != step:
        newest = (
            "no audit was made" if report is None else f"the newest audit is of step {report.step}"
        )
        against: str | None = f"These weights (step {step}) were not audited: {newest}."
    else:
        against = report.doubt or report.alarm or _not_shown(report, ceiling)
    reason = against or (
        "The audit of these weights raised no alarm, and shows a phantom part of at most"
        f" {points(ceiling)} points."
    )
    audit = None if report is None else report.folder
    return {"promotable": against is None, "reason": reason, "step": step, "audit": audit}


def _not_shown(report: AuditReport, ceiling: float) -> str | None:
    """Why an audit without alarm does not show that the phantom part is small."""
    if report.phantom is None:
        return f"The phantom part of the gain could not be measured: {report.missing}"
    widest = max(
        (part for part in (report.phantom, report.phantom_imputed) if part),
        key=lambda part: part.high,
    )
    if widest.high <= ceiling:
        return None
    interval = point_range(widest.low, widest.high)
    return (
        f"The audit raised no alarm but shows too little: the phantom part may be {interval}"
        f" points, and a promotable checkpoint's at most {points(ceiling)}; audit with more tasks"
        " or samples."
    )


def promotable(folder: Path) -> bool:
    """Whether a saved checkpoint is marked as promotable and still holds the very
    weights that the mark speaks of, by content. One without a mark is not, nor one
    whose weights cannot be read. Reads the weights: about a second a gigabyte.
    """
    path = folder / "promotable.json"
    said = read_json(path) if path.is_file() else {}
    if said.get("promotable") is not True:
        return False
    try:
        return identify_folder(folder).sha256 == said.get("weights")
    except UserError:
        return False
