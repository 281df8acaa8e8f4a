"""Every run through the scanner: rows of findings as they come, and per run
only a few marks and numbers in memory.

1. Where the log itself marks what a channel showed (our own environments do),
   that chain of evidence counts.
2. For every other channel the scanner's findings count: it looks at actions and
   answers, never at the target.
3. A run is *attempted* where something was tried or obtained, and *credited* where a
   finding is complete.
4. What the behaviour layer asks of a run is counted on the way
   (`layers.tally`), so that each run is read once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

from forensics.actions import actions_of
from forensics.investigation.folder import INTEGRITY, LOOKS
from forensics.investigation.scan_record import COPIED, Copies, RecordRead, read_record
from forensics.layers.behaviour import BehaviourConfig
from forensics.layers.bounds import ScoredRun
from forensics.layers.channels import ACCIDENT, RULE_BROKEN, Marks
from forensics.layers.evidence_chain import Survey
from forensics.layers.run_shape import shape_of
from forensics.layers.tally import Log
from forensics.records import Trajectory, canonical_json
from forensics.records.finding import Coverage, Finding
from forensics.shortcuts.looks import CoverageCounts, unread_families
from forensics.shortcuts.scanner import look_at

Scan = Callable[[Trajectory], Iterable[Any]]
SETTINGS = BehaviourConfig()


@dataclass
class SideMarks:
    """What was found on one side: marks by channel, and the runs that have a score. `odd`: of the
    `dropped` ones, those in which a reward is no finite number.
    """

    marks: dict[str, Marks] = field(default_factory=dict)
    scored: list[ScoredRun] = field(default_factory=list)
    dropped: int = 0
    odd: int = 0
    runs: int = 0
    looks: CoverageCounts = field(default_factory=CoverageCounts)
    record: Counter[str] = field(default_factory=Counter)

    def merge(self, later: "SideMarks") -> None:
        """Add what was found in the runs that come next."""
        for channel, marks in later.marks.items():
            own = self.marks.setdefault(channel, Marks(family=marks.family))
            own.attempted |= marks.attempted
            own.credited |= marks.credited
            own.untold |= marks.untold
            own.example = min(filter(None, (own.example, marks.example)), default=None)
        self.scored += later.scored
        self.dropped += later.dropped
        self.odd += later.odd
        self.runs += later.runs
        self.looks += later.looks
        self.record.update(later.record)


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """What came out of some runs of one side: findings as JSON lines, of each run what could
    be looked at and what its record does not bear out (JSON lines, too), marks, and the behaviour
    layer's tally.
    """

    side: str
    lines: tuple[str, ...]
    looks: tuple[str, ...]
    record: tuple[RecordRead, ...]
    marks: SideMarks
    tally: Log


def scan_runs(
    side: str, runs: Iterable[Trajectory], found: Survey, scan: Scan | None = None
) -> Scanned:
    """Scan some runs of one side, one after the other. `scan`: the caller's own (`None`: the
    shortcut scanner).
    """
    lines: list[str] = []
    looks: list[str] = []
    record: list[RecordRead] = []
    marks, tally = SideMarks(), new_tally()
    for trajectory in runs:
        actions = actions_of(trajectory)
        chains = tuple(found.chains(trajectory, SETTINGS.chain_rule))
        looked = None if scan else look_at(trajectory, actions)
        told = scan(trajectory) if scan else (looked.findings if looked else ())
        rows = [*findings_of(side, trajectory, chains, told)]
        lines += (canonical_json(row) + "\n" for row in rows)
        if looked:
            row = looked.looks.model_copy(update={"side": side})
            looks.append(canonical_json(row) + "\n")
        mark(marks, trajectory, rows, looked.looks if looked else None)
        if (read := read_record(side, trajectory, actions)) is not None:
            record.append(read)
            marks.record.update(one.check for one in read.gaps)
        tally.add(trajectory, chains)
    return Scanned(
        side=side,
        lines=tuple(lines),
        looks=tuple(looks),
        record=tuple(record),
        marks=marks,
        tally=tally,
    )


def new_tally() -> Log:
    """A tally by the behaviour layer's own settings."""
    return Log(rule=SETTINGS.chain_rule, most=SETTINGS.examples)


def findings_of(
    side: str, trajectory: Trajectory, chains: Iterable[Finding], told: Iterable[Any]
) -> Iterator[Finding]:
    """The findings of one run: chains that the log's own marks give, then what the scanner
    `told` of other channels.
    """
    marked = set()
    for chain in chains:
        marked.add(chain.channel)
        if chain.level != "none":
            yield chain.model_copy(update={"side": side})
    for one in told:
        row = one if isinstance(one, Mapping) else vars(one)
        if row["channel"] not in marked:
            yield Finding.model_validate({**row, **trajectory.origin, "side": side})


def mark(
    told: SideMarks, trajectory: Trajectory, rows: Iterable[Finding], looks: Coverage | None
) -> None:
    """Keep what the bounds and the shares need of one run. A run in which something could not
    be looked at is in doubt, as one that tried something is. `looks`: `None` where a scanner of
    the caller's own looked.
    """
    unread = looks is not None and bool(unread_families(looks))
    attempted, credited, untold = unread, False, unread
    flagged: set[str] = set()
    outcome = trajectory.outcome
    told.looks.add(looks, outcome is not None and outcome >= SETTINGS.chain_rule.win)
    for row in rows:
        marks = told.marks.setdefault(row.channel, Marks(family=row.family))
        marks.attempted.add(trajectory.id)
        attempted = attempted or row.family != RULE_BROKEN  # which wins nothing by itself
        if row.family not in (ACCIDENT, RULE_BROKEN) and row.level in ("used", "credited"):
            flagged.add(row.channel)
        if row.complete:
            credited = True
            marks.credited.add(trajectory.id)
            steps = row.attempt_steps or row.obtained_steps
            if steps and (marks.example is None or trajectory.id < marks.example[0]):
                marks.example = (trajectory.id, steps[0], trajectory.task)
        elif row.untold:
            untold = True
            marks.untold.add(trajectory.id)
    told.runs += 1
    if trajectory.outcome is None or trajectory.end == "errored":
        told.dropped += 1
        told.odd += trajectory.end != "errored" and None in trajectory.rewards.values()
        return
    told.scored.append(
        ScoredRun(
            id=trajectory.id,
            task=trajectory.task,
            outcome=trajectory.outcome,
            attempted=attempted,
            credited=credited,
            untold=untold and not credited,
            flagged=tuple(sorted(flagged)),
            shape=shape_of(trajectory),
        )
    )


class Gathered:
    """The findings of a case as they come, in order, written to `draft`, and beside it what
    could be looked at.
    """

    def __init__(self, sides: Sequence[str], draft: Path) -> None:
        self.draft = draft
        self.told = {side: SideMarks() for side in sides}
        self.tallies = {side: new_tally() for side in sides}
        self.looks = draft.with_name(f".{LOOKS}.draft")
        self.integrity = draft.with_name(f".{INTEGRITY}.draft")
        self._copies = Copies()
        self._files: list[TextIO] = []

    def __enter__(self) -> Self:
        for path in (self.draft, self.looks, self.integrity):
            file = open(path, "w", encoding="utf-8", errors="backslashreplace")
            self._files.append(file)
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def add(self, scanned: Scanned) -> None:
        """What was found in the runs that come next."""
        findings, looks, integrity = self._files
        findings.writelines(scanned.lines)
        looks.writelines(scanned.looks)
        self.told[scanned.side].merge(scanned.marks)
        self.tallies[scanned.side].merge(scanned.tally)
        for read in scanned.record:
            integrity.writelines(read.lines)
            if (copied := self._copies.line(read)) is not None:
                integrity.write(copied)
                self.told[scanned.side].record.update((COPIED,))

    @property
    def runs(self) -> int:
        """How many runs there were so far."""
        return sum(marks.runs for marks in self.told.values())
