"""What is found in some runs after the others, put together: lines of findings
in a file, marks and tallies by side.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self, TextIO

from forensics.investigation.scan_findings import Scanned, SideMarks, new_tally


class Gathered:
    """The findings of a case as they come, in order, written to `draft`."""

    def __init__(self, sides: Sequence[str], draft: Path) -> None:
        self.draft = draft
        self.told = {side: SideMarks() for side in sides}
        self.tallies = {side: new_tally() for side in sides}
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        self._file = open(self.draft, "w", encoding="utf-8", errors="backslashreplace")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, scanned: Scanned) -> None:
        """What was found in the runs that come next."""
        assert self._file is not None
        self._file.writelines(scanned.lines)
        self.told[scanned.side].merge(scanned.marks)
        self.tallies[scanned.side].merge(scanned.tally)

    @property
    def runs(self) -> int:
        """How many runs there were so far."""
        return sum(marks.runs for marks in self.told.values())
