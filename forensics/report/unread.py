"""`unreadable.jsonl` as the report reads it: what of each set of logs was not read, and why."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from forensics.errors import UserError
from forensics.readers.unread import shapes_tried, unread_listed
from forensics.records.files import require_written

UNREAD: Final = "unreadable.jsonl"
FIELDS: Final = ("side", "file", "where", "reason")


def unread_told(folder: Path, logs: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """A sentence for each set of which something was not read, the first of it by name, and one
    on what was tried. `logs`: the counts of each side in `case.json`.
    """
    rows = _read(folder)
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


def _read(folder: Path) -> list[dict[str, str]]:
    """The rows of the file; none without it."""
    path = folder / UNREAD
    if not path.is_file():
        return []
    require_written(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [{name: str(json.loads(line)[name]) for name in FIELDS} for line in lines]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"{UNREAD} cannot be read ({type(error).__name__}); run the command that wrote it again"
        ) from None
