"""The rows of a case's JSON-lines files, one at a time.

`findings.jsonl` is streamed twice, once to sort runs into kinds and once for the rows of the runs
that are shown. In between only the ids of runs with a complete or an untold chain are kept.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from forensics.errors import UserError
from forensics.records.files import require_written
from forensics.records.finding import Finding
from forensics.records.given_files import parse_json
from forensics.records.record import Kind

FINDINGS: Final = "findings.jsonl"
Key = tuple[str, str]  # (side, trajectory id); side "" where a row does not say
T = TypeVar("T")
WRONG = (KeyError, TypeError, ValueError, AttributeError, RecursionError)


def rows_of(folder: Path, name: str, read: Callable[[str], T]) -> Iterator[T]:
    """What `read` makes of each line of a file; nothing where the case has no such file.

    Raises `UserError` with the number of a line that `read` cannot make anything of.
    """
    path = folder / name
    if not path.is_file():
        return
    require_written(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                yield read(line)
            except WRONG as error:
                why = " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:1]])
                raise UserError(
                    f"{name} line {number} is not a row about a run ({why}); run the command that"
                    " wrote it again"
                ) from None


def as_record(kind: type[Kind]) -> Callable[[str], Kind]:
    """What reads a line as a record. Halves of surrogate pairs stay; whoever shows them escapes."""
    return lambda line: kind.model_validate(parse_json(line, halves=True))


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
