"""What a scan found, read back from its case folder: findings, their reviews, and the runs that they are about."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from forensics.case import Rollouts
from forensics.errors import UserError
from forensics.records import Trajectory
from forensics.scanning.finding import Level

FINDINGS: Final = "findings.jsonl"
REVIEW: Final = "review.jsonl"
Key = tuple[str, str, str, str]  # side, trajectory, family, channel
_COLUMNS: Final = (
    "id", "task", "policy", "environment", "seed", "sample", "outcome", "submission", "patch", "end", "end_reason",
    "steps.list.element.role", "steps.list.element.text",
    "steps.list.element.tool_calls.list.element.name", "steps.list.element.tool_calls.list.element.arguments",
)


def key_of(row: dict[str, Any]) -> Key:
    """What a finding is of. A run has one finding for each family and channel."""
    return row["side"], row["trajectory"], row["family"], row["channel"]


def findings_of(folder: Path) -> Iterator[dict[str, Any]]:
    """Stream the rows of `findings.jsonl`, in its order."""
    with open(folder / FINDINGS, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                key_of(row)
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{FINDINGS} line {number} is not a row about a run; scan the logs again") from None
            yield row


def reviews_of(folder: Path) -> dict[Key, dict[str, Any]]:
    """The reviews of a case, by finding; empty for a case without any."""
    if not (folder / REVIEW).is_file():
        return {}
    rows = map(json.loads, (folder / REVIEW).read_text(encoding="utf-8").splitlines())
    return {key_of(row): row for row in rows}


def level_of(row: dict[str, Any]) -> Level:
    """The furthest link that is known to hold; nothing is credited that is not known to be used."""
    if row["used"]:
        return "credited" if row["credited"] else "used"
    return "obtained" if row["obtained"] else "attempt"


def runs_of(rollouts: Rollouts, wanted: Collection[str]) -> Iterator[Trajectory]:
    """The stored runs with these ids, without their tokens. Row groups that hold none of them are not decoded."""
    import pyarrow.parquet as pq

    for path in rollouts.paths if wanted else ():
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                ids = file.read_row_group(group, columns=["id"]).column("id").to_pylist()
                places = [place for place, name in enumerate(ids) if name in wanted]
                if not places:
                    continue
                table = file.read_row_group(group, columns=list(_COLUMNS)).take(places)
                for batch in table.to_batches(16):
                    yield from map(Trajectory.model_validate, batch.to_pylist())
