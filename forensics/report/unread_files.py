"""`unreadable.jsonl` as the report reads it: what of each set of logs was not read, and why."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from forensics.readers.unread_files import shapes_tried, unread_listed
from forensics.report.rows import rows_of

UNREAD: Final = "unreadable.jsonl"
FIELDS: Final = ("side", "file", "where", "reason")


def unread_told(folder: Path, logs: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """A sentence for each set of which something was not read, the first of it by name, and one
    on what was tried. `logs`: the counts of each side in `case.json`.
    """
    rows = [*rows_of(folder, UNREAD, _row)]
    sides = sorted(logs, key=lambda side: (side == "before", side))
    for side in sides:
        broken, others = (logs[side].get(name, 0) for name in ("unreadable", "no_logs"))
        own = [row for row in rows if row["side"] == side]
        if not own:
            continue
        when = ""
        if len(sides) > 1:
            when = " before training" if side == "before" else " after training"
        many = "1 file or row" if broken + others == 1 else f"{broken + others:,} files or rows"
        were = "was" if broken + others == 1 else "were"
        listed = unread_listed(own, max(broken + bool(others) - len(own), 0))
        yield f"{many}{when} {were} not read (all are named in {UNREAD}): {listed}."
    if told := shapes_tried(rows):
        yield told


def _row(line: str) -> dict[str, str]:
    told = json.loads(line)
    return {name: str(told[name]) for name in FIELDS}
