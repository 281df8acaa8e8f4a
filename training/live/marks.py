"""Which saved checkpoints are promotable: the marks, by content.

A mark names what was audited by the hash of its weights and of the config that they
are opened with, never by a step or a path alone: a checkpoint that was moved keeps its
mark, and other weights in its place have none. A trainer's callback writes one into
each saved folder, `forensics watch` all of a run into one file of its own.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from forensics.errors import UserError
from forensics.phrases import point_range, points
from forensics.policies import identify_folder
from forensics.records import Record, read_json, write_json
from training.live.audit_report import AuditReport, as_written

MARKS: Final = "promotable.json"
CONFIGS: Final = ("adapter_config.json", "config.json")  # what weights are opened with


def content_of(folder: Path) -> dict[str, str | None]:
    """What a saved policy is: SHA-256 of its weights, and of the config that lies with
    them (`None`: none does). Raises `UserError` for weights that cannot be read.
    """
    config = next((folder / name for name in CONFIGS if (folder / name).is_file()), None)
    return {
        "weights": identify_folder(folder).sha256,
        "config": None if config is None else hashlib.sha256(config.read_bytes()).hexdigest(),
    }


State = Literal["waiting", "due", "audited", "left out", "broken", "failed", "vanished"]
JUDGED: Final = ("audited", "broken", "failed")


class Mark(Record):
    """What `forensics watch` says of one checkpoint. `checkpoint`: its folder below the
    watched one, or its path; `files`: what its files looked like when that was said;
    `policy`: as of the audit's report.
    """

    checkpoint: str
    step: int | None
    state: State = "waiting"
    weights: str | None = None
    config: str | None = None
    policy: str | None = None
    promotable: bool = False
    reason: str
    audit: str | None = None
    files: str = ""

    @property
    def content(self) -> dict[str, str | None]:
        """As `content_of` says it."""
        return {"weights": self.weights, "config": self.config}


def read_marks(folder: Path) -> list[Mark]:
    """The marks that a watch wrote into its folder; none where it has not begun."""
    path = folder / MARKS
    with as_written(path):
        told = read_json(path)["checkpoints"] if path.is_file() else []
        return [Mark.model_validate(one) for one in told]


def write_marks(folder: Path, marks: Iterable[Mark]) -> None:
    """All marks, in the order of steps, and `last`: the one that decides."""
    ordered = sorted(marks, key=lambda one: (one.step is None, one.step or 0, one.checkpoint))
    last = last_judged(ordered)
    told = [one.model_dump(mode="json") for one in ordered]
    write_json(folder / MARKS, {"last": last and last.model_dump(mode="json"), "checkpoints": told})


def last_judged(marks: Iterable[Mark]) -> Mark | None:
    """Of the checkpoints that were audited, or cannot be, the one of the highest step: an
    earlier one does not speak for a last one that is broken.
    """
    judged = [one for one in marks if one.state in JUDGED and one.step is not None]
    return max(judged, key=lambda one: one.step or 0, default=None)


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
        against = report.alarm or report.doubt or _not_shown(report, ceiling)
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


def promotable(folder: Path | str, watched: Path | str | None = None) -> bool:
    """Whether a saved checkpoint is marked as promotable and still holds the very
    weights and config that the mark speaks of, by content. `watched`: the folder that
    `forensics watch` wrote; without it the mark lies in the checkpoint's own. One
    without a mark is not, nor one whose weights cannot be read. Reads the weights: about
    a second a gigabyte.
    """
    path = Path(folder if watched is None else watched) / MARKS
    with as_written(path):
        said = read_json(path) if path.is_file() else {}
        good = [one for one in said.get("checkpoints", [said]) if one.get("promotable") is True]
    if not good:
        return False
    try:
        content = content_of(Path(folder))
    except UserError:
        return False
    return any({**content, **one}.items() >= content.items() for one in good if "weights" in one)
