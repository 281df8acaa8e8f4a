"""`findings.jsonl` as the report reads it: which runs carry a chain of
evidence, and the chains of a few of them.

The file is streamed twice, once to sort runs into kinds and once for the rows
of the runs that are shown. In between only the ids of runs with a complete or
an untold chain are kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forensics.records.case_file import BrokenRule, Quote
from forensics.records.given_files import parse_json
from forensics.report.rows import rows_of

FINDINGS: Final = "findings.jsonl"
Key = tuple[str, str]  # (side, trajectory id); side "" where a row does not say
LINKS: Final = ("attempt", "obtained", "used", "credited")


@dataclass(frozen=True, kw_only=True)
class ChainRow:
    """One run against one channel. `None`: cannot be told. Steps count from 0. `broken`: the
    rule of the prompt that it breaks. `evidence`: the code that shows it.
    """

    trajectory: str
    side: str
    task: str
    family: str
    channel: str
    attempt_steps: tuple[int, ...]
    obtained_steps: tuple[int, ...]
    obtained: bool | None
    used: bool | None
    credited: bool | None
    explanation: str
    broken: BrokenRule | None = None
    file: str | None = None
    policy: str | None = None
    patterns: tuple[str, ...] = ()
    evidence: Quote | None = None

    @property
    def links(self) -> tuple[tuple[str, bool | None, tuple[int, ...]], ...]:
        """Each link in order: its name, whether it holds, the steps it cites."""
        tried = bool(self.attempt_steps) or bool(self.obtained)
        holds = (tried, self.obtained, self.used, self.credited)
        steps = (self.attempt_steps, self.obtained_steps, (), ())
        return tuple(zip(LINKS, holds, steps, strict=True))

    @property
    def level(self) -> str:
        """The furthest link that is known to hold."""
        if self.complete:
            return "credited"
        return "used" if self.used else "obtained" if self.obtained else "attempt"

    @property
    def complete(self) -> bool:
        """Whether a win is credited to the channel: that link holds, and none before it fails.
        An empty hand-in uses nothing, so `used` may stay open.
        """
        tried = bool(self.attempt_steps) or bool(self.obtained)
        return bool(tried and self.credited) and False not in (self.obtained, self.used)

    @property
    def untold(self) -> bool:
        """Whether no link fails and one cannot be told."""
        return not self.complete and all(holds is not False for _, holds, _ in self.links)


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


def chains_of(folder: Path, wanted: set[str]) -> dict[str, list[ChainRow]]:
    """The rows of the runs with these ids, by id."""
    found: dict[str, list[ChainRow]] = {}
    for row in read_chains(folder):
        if row.trajectory in wanted:
            found.setdefault(row.trajectory, []).append(row)
    return found


def read_chains(folder: Path) -> Iterator[ChainRow]:
    """Stream the file; a missing one has no rows."""
    return rows_of(folder, FINDINGS, _chain_row)


def _chain_row(line: str) -> ChainRow:
    row: dict[str, Any] = parse_json(line, halves=True)
    attempts, shown = (
        tuple(int(step) for step in row[name] or ()) for name in ("attempt_steps", "obtained_steps")
    )
    return ChainRow(
        trajectory=str(row["trajectory"]),
        side=str(row.get("side") or ""),
        task=str(row["task"]),
        family=str(row["family"]),
        channel=str(row["channel"]),
        attempt_steps=attempts,
        obtained_steps=shown,
        obtained=row.get("obtained", bool(shown)),
        used=row["used"],
        credited=row["credited"],
        explanation=str(row["explanation"] or ""),
        broken=BrokenRule.model_validate(rule) if (rule := row.get("broken")) else None,
        file=row.get("file"),
        policy=row.get("policy"),
        patterns=tuple(map(str, row.get("patterns") or ())),
        evidence=Quote.model_validate(quote) if (quote := row.get("evidence")) else None,
    )
