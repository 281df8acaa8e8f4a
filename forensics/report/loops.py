"""`loops.jsonl` as the report reads it: the runs of logs that loop, and what repeats."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from forensics.errors import UserError
from forensics.phrases import capital
from forensics.records.case_file import LoopRow
from forensics.records.files import require_written
from forensics.report.escape import short
from forensics.report.places import place_told

LOOPS: Final = "loops.jsonl"
SHOWN: Final = 10  # lines
ACTIONS_SHOWN: Final = 3


def read_loops(folder: Path) -> tuple[LoopRow, ...]:
    """The runs that loop, the longest loop first; none where the case has no such file."""
    path = folder / LOOPS
    if not path.is_file():
        return ()
    require_written(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [LoopRow.model_validate_json(line) for line in lines]
    except ValueError as error:
        raise UserError(
            f"{LOOPS} cannot be read ({str(error).splitlines()[0]}); run the command that wrote"
            " it again"
        ) from None
    return tuple(sorted(rows, key=lambda row: (-row.turns, row.side, row.trajectory)))


def loop_lines(rows: Sequence[LoopRow]) -> Iterator[str]:
    """A line for each of the first runs."""
    for row in rows[:SHOWN]:
        place = capital(place_told(row.trajectory, row.file))
        yield f"{place} (task {row.task}, {row.policy}) loops, {loop_told(row)}"
    if (more := len(rows) - SHOWN) > 0:
        yield f"and {more:,} more that loop ({LOOPS})"


def loop_told(row: LoopRow) -> str:
    """`steps 3 to 17, 5 times: make; then ls`."""
    actions = [short(" ".join(action.split()), 120) for action in row.actions[:ACTIONS_SHOWN]]
    if (more := len(row.actions) - ACTIONS_SHOWN) > 0:
        actions.append(f"{more} more")
    return (
        f"steps {row.first_step} to {row.last_step}, {row.times} times: {'; then '.join(actions)}"
    )
