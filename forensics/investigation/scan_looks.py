"""What a scan could look at: a row for each run, counts for each side, and whether every
win after training was read.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
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
    """How many runs each family has in each status: of `could_not_look` and
    `does_not_apply` by reason. `open_runs`: those in which some family could not look;
    `open_wins`: those of them that won, with their `reasons`.
    """

    families: dict[str, dict[str, Any]] = field(default_factory=dict)
    open_runs: int = 0
    open_wins: int = 0
    wins: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, looks: Looks | None, won: bool) -> None:
        """Count one run; `None`: a scanner of the caller's own looked at it."""
        self.wins += won
        if looks is None:
            return
        for name in looks.found:
            self._of(name)["found"] += 1
        for name in looks.not_found:
            self._of(name)["not_found"] += 1
        for status in ("could_not_look", "does_not_apply"):
            for name, reason in getattr(looks, status).items():
                reasons = self._of(name)[status]
                reasons[reason] = reasons.get(reason, 0) + 1
        self.open_runs += bool(looks.could_not_look)
        self.open_wins += bool(looks.could_not_look) and won
        self.reasons.update(set(looks.could_not_look.values()) if won else ())

    def _of(self, family: str) -> dict[str, Any]:
        if family not in self.families:
            empty = {"found": 0, "not_found": 0, "could_not_look": {}, "does_not_apply": {}}
            self.families[family] = empty
        return self.families[family]

    def merge(self, later: "LookCounts") -> None:
        """Add the counts of the runs that come next."""
        for name, counts in later.families.items():
            own = self._of(name)
            for status in ("found", "not_found"):
                own[status] += counts[status]
            for status in ("could_not_look", "does_not_apply"):
                for reason, count in counts[status].items():
                    own[status][reason] = own[status].get(reason, 0) + count
        self.open_runs += later.open_runs
        self.open_wins += later.open_wins
        self.wins += later.wins
        self.reasons.update(later.reasons)

    def stated(self) -> Row:
        """As `case.json` states it."""
        return {
            "families": dict(sorted(self.families.items())),
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
