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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from forensics.errors import UserError
from forensics.phrases import point_range, points
from forensics.records import Estimate, Record, write_json_lines
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


class MissedAudit(Record):
    """A checkpoint that was seen and never audited: `missed` says why, in one sentence."""

    checkpoint: str
    step: int | None
    missed: str


@contextmanager
def as_written(path: Path) -> Iterator[None]:
    """Raises `UserError` where what is read within is not what this package wrote."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = str(error).splitlines()[0]
        raise UserError(
            f"{path} is not as it was written ({told}); move it away, and what it told of is"
            " judged anew"
        ) from None


def read_reports(folder: Path) -> list[AuditReport]:
    """The audits of a run in the order of their steps; none where the run has not been audited."""
    with as_written(folder / LINES):
        return [AuditReport.model_validate(line) for line in _lines(folder) if "missed" not in line]


def read_missed(folder: Path) -> list[MissedAudit]:
    """The checkpoints of a run that were seen and are gone, or are none."""
    with as_written(folder / LINES):
        return [MissedAudit.model_validate(line) for line in _lines(folder) if "missed" in line]


def _lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / LINES
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.exists()
        else []
    )


def write_reports(
    folder: Path, reports: Iterable[AuditReport], missed: Iterable[MissedAudit] | None = None
) -> None:
    """All lines anew, atomically: a run that resumes writes the steps it does
    again over the old ones. What was `missed` stays unless it is given.
    """
    gone = read_missed(folder) if missed is None else missed
    lines: list[AuditReport | MissedAudit] = [*reports, *gone]
    write_json_lines(folder / LINES, sorted(lines, key=lambda line: (line.step is None, line.step)))


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
