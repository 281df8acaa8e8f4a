"""`candidates.jsonl` as the report reads it: what one group of runs does more often than
comparable ones. To be read beside the findings; never one of them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from forensics.errors import UserError
from forensics.phrases import percent
from forensics.records.case_file import CandidateRow
from forensics.records.files import require_written
from forensics.report.escape import short
from forensics.report.places import place_told

CANDIDATES: Final = "candidates.jsonl"
SHOWN: Final = 10
ACTIONS_SHOWN: Final = 4
COLUMNS: Final = ("actions", "more often in", "share there", "share elsewhere", "example")


def read_candidates(folder: Path) -> tuple[CandidateRow, ...]:
    """The surest candidates first, without variants of surer ones; none without the file."""
    path = folder / CANDIDATES
    if not path.is_file():
        return ()
    require_written(path)
    try:
        with open(path, encoding="utf-8") as file:
            rows = [CandidateRow.model_validate_json(line) for line in file]
    except ValueError as error:
        raise UserError(
            f"{CANDIDATES} cannot be read ({str(error).splitlines()[0]}); run the command that"
            " wrote it again"
        ) from None
    return tuple(sorted((row for row in rows if row.variant_of is None), key=lambda row: row.q))


def candidate_rows(rows: Sequence[CandidateRow]) -> Iterator[tuple[str, ...]]:
    """A row of cells for each of the first candidates."""
    for row in rows[:SHOWN]:
        here, there = row.share_first, row.share_second
        if row.more != row.first:
            here, there = there, here
        actions = [short(action, 80) for action in row.actions[:ACTIONS_SHOWN]]
        example = next(iter(row.examples), None)
        where = ""
        if example is not None:
            where = f"{place_told(example.trajectory, example.file)}, step {example.step}"
        yield (
            "; then ".join(actions),
            short(row.more, 80),
            percent(here),
            percent(there),
            short(where, 160),
        )
