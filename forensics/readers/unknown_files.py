"""What a file holds that no reader knows, so that its owner sees which name or shape is missing:
how many rows, the fields of the first one, and the shapes that a row of a run may have; of a
log that is text, how many lines.
"""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import from_json

from forensics.phrases import plural, printable
from forensics.readers.content import Line, UnreadableContent, read_lines
from forensics.readers.json_rows import MALFORMED, MARKS, PARQUET, Row, first_value, read_elements

FIELDS, LONGEST_FIELD = 8, 30  # of a row, as they are told
MOST_ROWS = 10_000  # that are counted
ROWS = " with the field"
TEXTS = ("", ".txt", ".log", ".out", ".cast", ".ansi")  # endings of texts that may be logs
TEXT = "text of "


def seen_in(path: Path, head: bytes) -> str:
    """`50 rows with the fields step, loss, lr`, or `text of 210 lines`; `""` for what
    is neither. Never raises.
    """
    try:
        if head.startswith(PARQUET):
            with pq.ParquetFile(path) as file:
                names = dict.fromkeys(file.schema_arrow.names, 0)
                return _told(file.metadata.num_rows, names)
        start = head.removeprefix(MARKS).lstrip()
        return _json(path, start) if start[:1] in (b"{", b"[") else _text(path, head)
    except (*MALFORMED, UnreadableContent, OSError, pa.ArrowException):
        return ""


def _json(path: Path, head: bytes) -> str:
    value = first_value(head)
    if isinstance(value, list):
        rows = sum(isinstance(row, Row) for row in islice(read_elements(path), MOST_ROWS + 1))
        return _told(rows, value[0] if value else None)
    if not isinstance(value, Mapping):
        return ""
    lines = islice(read_lines(path), MOST_ROWS + 1)
    rows = sum(isinstance(line, Line) for line in lines) if _is_whole(head) else 1
    return _told(rows, value) if rows > 1 else f"one object{_fields(value)}"


def _text(path: Path, head: bytes) -> str:
    if path.suffix.lower() not in TEXTS or b"\0" in head:
        return ""
    found = sum(isinstance(line, Line) for line in islice(read_lines(path), MOST_ROWS + 1))
    count = f"more than {MOST_ROWS:,} lines" if found > MOST_ROWS else plural(found, "line")
    return f"{TEXT}{count}" if found > 1 else ""


def _is_whole(head: bytes) -> bool:
    """Whether the first line holds a whole value, so that others may follow."""
    try:
        from_json(head.split(b"\n", 1)[0])
    except ValueError:
        return False
    return True


def _told(rows: int, first: Any) -> str:
    count = f"more than {MOST_ROWS:,} rows" if rows > MOST_ROWS else plural(rows, "row")
    return count + _fields(first)


def _fields(row: Any) -> str:
    if not isinstance(row, Mapping) or not row:
        return " without fields"
    names = [
        printable(str(name), LONGEST_FIELD) + (" (null)" if value is None else "")
        for name, value in islice(row.items(), FIELDS)
    ]
    more = f" and {len(row) - FIELDS} more" if len(row) > FIELDS else ""
    return f"{ROWS}{'s' if len(row) > 1 else ''} {', '.join(names)}{more}"
