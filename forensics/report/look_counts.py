"""`looks.jsonl` as the report reads it: of how many runs each kind of shortcut was looked for,
and why it could not be elsewhere (`shortcuts.looks`). A case without the file claims nothing of
the kind.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from forensics.phrases import joined, printable
from forensics.records.finding import Coverage
from forensics.report.report_words import WORDING
from forensics.report.rows import as_record, rows_of
from forensics.shortcuts.looks import CoverageCounts

LOOKS: Final = "looks.jsonl"
MOST_NAMED: Final = 3  # kinds of shortcut that a sentence names


def read_looks(folder: Path) -> dict[str, CoverageCounts]:
    """The counts of each side; none where the case has no such file. A file is read once while
    it stays as it is.
    """
    path = folder / LOOKS
    if not path.is_file():
        return {}
    now = path.stat()
    return _read(path, now.st_mtime_ns, now.st_size)


@lru_cache(maxsize=2)
def _read(path: Path, _: int, __: int) -> dict[str, CoverageCounts]:
    sides: dict[str, CoverageCounts] = {}
    for row in rows_of(path.parent, path.name, as_record(Coverage)):
        sides.setdefault(row.side, CoverageCounts()).add(row)
    return sides


def looks_of(sides: Mapping[str, CoverageCounts], side: str | None) -> CoverageCounts | None:
    """The counts of one side, or of all together (`None`)."""
    if side is not None or not sides:
        return sides.get(side or "")
    return sum(sides.values(), start=CoverageCounts())


def looked_for(families: Collection[str]) -> str:
    """`words to a grader and empty answers`; of more than three how many kinds of shortcut."""
    order = (*WORDING["looked_for"], *families)
    names = [family_told(name) for name in sorted(families, key=order.index)]
    if len(names) > MOST_NAMED:
        return f"{len(names)} kinds of shortcut"
    return joined(names, "nothing")


def family_told(family: str) -> str:
    """What a family looks for, in words."""
    return WORDING["looked_for"].get(family, printable(family, 60))


def why(reasons: Mapping[str, int]) -> str:
    """`30: actions in a form nobody reads; 10: no submission`, the commonest first."""
    listed = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    if len(listed) == 1:
        return printable(listed[0][0], 120)
    return "; ".join(f"{count:,}: {printable(reason, 120)}" for reason, count in listed)


COLUMNS: Final = ("shortcut", "found", "not found", "not checked", "does not apply")


def look_rows(looks: CoverageCounts) -> Iterator[tuple[str, ...]]:
    """A row for each family: in how many runs it was found, not found, and so on, with why."""
    for name, counts in sorted(looks.families().items(), key=lambda one: -one[1]["found"]):
        numbers = (f"{counts[status]:,}" for status in ("found", "not_found"))
        reasons = (_counted(counts[status]) for status in ("could_not_look", "does_not_apply"))
        yield (family_told(name), *numbers, *reasons)


def _counted(reasons: Mapping[str, int]) -> str:
    """`40 (30: actions in a form nobody reads; 10: no submission)`."""
    return f"{sum(reasons.values()):,} ({why(reasons)})" if reasons else "0"


def looks_json(looks: CoverageCounts) -> dict[str, Any]:
    """The counts for machines."""
    return {
        "runs": looks.runs,
        "runs_not_looked_at": looks.not_looked_at,
        "runs_where_nothing_could_look": dict(sorted(looks.blind.items())),
        "runs_where_something_could_not_look": dict(sorted(looks.partial.items())),
        "runs_that_called_unknown_tools": dict(sorted(looks.tools.items())),
        "families": looks.families(),
    }
