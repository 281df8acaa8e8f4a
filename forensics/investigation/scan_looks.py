"""What a scan could look at: a row for each run, counts for each side, and whether every
win after training was read.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.phrases import plural
from forensics.records import Evidence, Interval, Provenance, Trajectory, Undefined, canonical_json
from forensics.shortcuts.looks import Looks

Row = dict[str, Any]
READ = "logs.wins_read"  # a genuine gain takes an answer


@dataclass
class LookCounts:
    """How many runs each family has in each status, by family, status and reason.
    `open_runs`: those in which some family could not look; `open_wins`: those of them that
    won, with their `reasons`.
    """

    statuses: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    open_runs: int = 0
    open_wins: int = 0
    wins: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, looks: Looks | None, won: bool) -> None:
        """Count one run; `None`: a scanner of the caller's own looked at it."""
        self.wins += won
        if looks is None:
            return
        for status in ("found", "not_found"):
            self.statuses.update((name, status, "") for name in getattr(looks, status))
        for status in ("could_not_look", "does_not_apply"):
            stopped = getattr(looks, status).items()
            self.statuses.update((name, status, reason) for name, reason in stopped)
        self.open_runs += bool(looks.could_not_look)
        self.open_wins += bool(looks.could_not_look) and won
        self.reasons.update(set(looks.could_not_look.values()) if won else ())

    def merge(self, later: "LookCounts") -> None:
        """Add the counts of the runs that come next."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(later, one.name))

    def stated(self) -> Row:
        """As `case.json` states it."""
        families: dict[str, Row] = {}
        for (name, status, reason), count in self.statuses.items():
            empty = {"found": 0, "not_found": 0, "could_not_look": {}, "does_not_apply": {}}
            row = families.setdefault(name, empty)
            if reason:
                row[status][reason] = count
            else:
                row[status] = count
        return {
            "families": families,
            "runs_not_looked_at": self.open_runs,
            "wins_not_looked_at": self.open_wins,
        }


def look_line(side: str, trajectory: Trajectory, looks: Looks) -> str:
    """The row of `looks.jsonl` of one run."""
    row = {"side": side, "trajectory": trajectory.id, "task": trajectory.task}
    return canonical_json({**row, **origin_of(trajectory), **looks._asdict()}) + "\n"


def origin_of(trajectory: Trajectory) -> Row:
    """Which model did it, and in which file it stands."""
    return {"policy": trajectory.policy, "file": trajectory.file}


def wins_read(counts: Sequence[LookCounts], provenance: Provenance) -> Evidence | Undefined:
    """Whether every family of shortcuts that applies could look into each win after training.
    Undefined where one could not: what nobody read may have been won by anything.
    """
    make = AnswerMaker(layer="score", method="status of each family", provenance=provenance)
    wins = sum(one.wins for one in counts)
    left = sum(one.open_wins for one in counts)
    if left or not wins:
        reasons: Counter[str] = Counter()
        for one in counts:
            reasons.update(one.reasons)
        why = ", ".join(f"{reason} ({count:,})" for reason, count in reasons.most_common(3))
        said = (
            f"In {left:,} of {plural(wins, 'win')} after training something could not be looked"
            f" at: {why}."
            if left
            else "There is no win after training to look into."
        )
        cure = "Give logs that record what these runs did and handed in, or a reader for them."
        return make.undefined(READ, MissingInput(said, cure))
    return make.evidence(
        READ,
        1.0,
        interval=Interval(low=1.0, high=1.0, level=0.95),
        n=wins,
        clusters=wins,
        unit="share of wins",
        summary=f"Every family that applies could look into {plural(wins, 'win')} after training.",
    )
