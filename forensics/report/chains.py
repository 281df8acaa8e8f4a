"""`findings.jsonl` as the report reads it: which runs carry a chain of
evidence, and the chains of a few of them.

The file is streamed twice, once to sort runs into kinds and once for the rows
of the runs that are shown. In between only the ids of runs with a complete or
an untold chain are kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from forensics.records.finding import Finding
from forensics.report.rows import as_record, rows_of

FINDINGS: Final = "findings.jsonl"
Key = tuple[str, str]  # (side, trajectory id); side "" where a row does not say


@dataclass
class ChainIndex:
    """What is known of all runs. `read`: whether the case has the file at all."""

    read: bool
    complete: dict[Key, str] = field(default_factory=dict)  # run -> channel
    untold: set[Key] = field(default_factory=set)

    def channel_of(self, side: str, trajectory: str) -> str | None:
        """The channel that a run's win is credited to, if one is."""
        return self.complete.get((side, trajectory), self.complete.get(("", trajectory)))

    def is_untold(self, side: str, trajectory: str) -> bool:
        """Whether a chain of the run may be complete, and nobody can tell."""
        return (side, trajectory) in self.untold or ("", trajectory) in self.untold


def index_chains(folder: Path) -> ChainIndex:
    """Stream every row once."""
    index = ChainIndex(read=(folder / FINDINGS).is_file())
    for row in read_chains(folder):
        if row.complete:
            index.complete.setdefault((row.side, row.trajectory), row.channel)
        elif row.untold:
            index.untold.add((row.side, row.trajectory))
    return index


def chains_of(folder: Path, wanted: set[str]) -> dict[str, list[Finding]]:
    """The rows of the runs with these ids, by id."""
    found: dict[str, list[Finding]] = {}
    for row in read_chains(folder):
        if row.trajectory in wanted:
            found.setdefault(row.trajectory, []).append(row)
    return found


def read_chains(folder: Path) -> Iterator[Finding]:
    """Stream the file; a missing one has no rows."""
    return rows_of(folder, FINDINGS, as_record(Finding))
