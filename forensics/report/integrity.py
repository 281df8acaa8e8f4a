"""`integrity.jsonl` as the report reads it: what cannot be relied on in the record of each run,
and what an agent named that nothing had shown. Told beside the findings; never one of them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from forensics.errors import UserError
from forensics.phrases import plural
from forensics.records.case_file import IntegrityRow
from forensics.records.files import require_written
from forensics.report.escape import short
from forensics.report.places import place_told

INTEGRITY: Final = "integrity.jsonl"
SHOWN: Final = 20
COLUMNS: Final = ("run", "what", "steps", "quoted", "why")
RECALL: Final = "recall: "
ROUTINE: Final = "cut outputs"  # told last: most harnesses cut


def read_integrity(folder: Path) -> tuple[IntegrityRow, ...]:
    """Every row, the rarest check first; none where the case has no such file."""
    path = folder / INTEGRITY
    if not path.is_file():
        return ()
    require_written(path)
    try:
        with open(path, encoding="utf-8") as file:
            rows = [IntegrityRow.model_validate_json(line) for line in file]
    except ValueError as error:
        raise UserError(
            f"{INTEGRITY} cannot be read ({str(error).splitlines()[0]}); run the command that"
            " wrote it again"
        ) from None
    counts = Counter(row.check for row in rows)
    return tuple(sorted(rows, key=lambda row: _order(row.check, counts)))


def _order(check: str, counts: Counter[str]) -> tuple[bool, int, str]:
    return check == ROUTINE, counts[check], check


def integrity_lines(rows: Sequence[IntegrityRow]) -> Iterator[str]:
    """Two lines at most: in how many runs the record does not hold, and in how many the agent
    named what nothing had shown.
    """
    recall = [row for row in rows if row.check.startswith(RECALL)]
    record = [row for row in rows if not row.check.startswith(RECALL)]
    if record:
        yield f"What cannot be relied on in the record: {_counts(record)} ({INTEGRITY})"
    if recall:
        yield (
            "Named although nothing before in the log had shown it, perhaps known from training:"
            f" {_counts(recall)} ({INTEGRITY})"
        )


def _counts(rows: Sequence[IntegrityRow]) -> str:
    """`tests without a call in 4 runs, cut outputs in 20 runs`."""
    counts = Counter(row.check.removeprefix(RECALL) for row in rows)
    return ", ".join(f"{short(check, 60)} in {plural(n, 'run')}" for check, n in counts.items())


def integrity_rows(rows: Sequence[IntegrityRow]) -> Iterator[tuple[str, ...]]:
    """A row of cells for each of the first rows."""
    for row in rows[:SHOWN]:
        yield (
            short(f"{place_told(row.trajectory, row.file)}, {row.policy}", 160),
            short(row.check, 60),
            ", ".join(map(str, row.steps[:6])),
            short(row.quote, 200),
            short(row.why, 200),
        )
