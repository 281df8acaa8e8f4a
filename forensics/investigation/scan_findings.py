"""Every run through the scanner: rows of `findings.jsonl` as they come, and per run only a few marks in memory.

1. Where the log itself marks what a channel showed (our own environments do), that chain of evidence counts.
2. For every other channel the scanner's findings count: it looks at actions and answers, never at the target.
3. A run is *attempted* where a row says that something was tried or obtained, and *credited* where all links hold.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from forensics.acts import acts_of
from forensics.case import Case, Progress
from forensics.investigation.folder import FINDINGS
from forensics.layers.bounds import ScoredRun
from forensics.layers.credits import Marks
from forensics.layers.survey import chain_row, survey
from forensics.layers.use import ChainRule
from forensics.records import ChainRow, Trajectory, canonical_json

Row = dict[str, Any]
Scan = Callable[[Trajectory], Iterable[Any]]
DEFAULTS: Row = {
    "attempt_steps": (), "obtained_steps": (), "used": None, "credited": None, "overlap": None,
    "control_overlap": None, "explanation": "",
}


@dataclass
class SideMarks:
    """What was found on one side: marks by channel, and the runs that have a score."""

    marks: dict[str, Marks] = field(default_factory=dict)
    scored: list[ScoredRun] = field(default_factory=list)
    dropped: int = 0
    runs: int = 0
    found: int = 0


def installed_scan() -> Scan:
    """The scanner with its own settings."""
    scanning = import_module("forensics.scanning")
    config = scanning.ScanConfig()

    def scan(trajectory: Trajectory) -> Iterable[Any]:
        found: Iterable[Any] = scanning.scan_trajectory(trajectory, acts_of(trajectory), config)
        return found

    return scan


def write_findings(case: Case, scan: Scan, of: int, progress: Progress) -> dict[str, SideMarks]:
    """Scan all sides of a case into `findings.jsonl`, atomically; `of`: how many runs there are."""
    sides = sorted({side for side, _ in case.stored}, key=lambda side: (side != "before", side))
    known = survey(case, sides, tasks=16)
    path = case.folder / FINDINGS
    draft = path.with_name(f".{path.name}.draft")
    done, told = 0, {side: SideMarks() for side in sides}
    with open(draft, "w", encoding="utf-8", errors="backslashreplace") as file:
        for side in sides:
            for trajectory in case.rollouts(side):
                progress("scanning", done, of)
                done += 1
                rows = [*rows_of(side, trajectory, known.chains(trajectory, ChainRule()), scan)]
                file.writelines(canonical_json(row) + "\n" for row in rows)
                mark(told[side], trajectory, rows)
    progress("scanning", of, of)
    _settle(draft, path)
    return told


def _settle(draft: Path, path: Path) -> None:
    draft.replace(path)


def rows_of(side: str, trajectory: Trajectory, chains: Iterable[Any], scan: Scan) -> Iterator[Row]:
    """The rows of one run: chains that the log's own marks give, then the scanner's for other channels."""
    marked = set()
    for chain in chains:
        marked.add(chain.channel)
        if chain.found:
            yield chain_row(side, chain)
    for finding in scan(trajectory):
        row = _plain(finding)
        if row["channel"] not in marked:
            yield _complete(side, trajectory, row)


def _plain(finding: Any) -> Row:
    if isinstance(finding, Mapping):
        return dict(finding)
    if is_dataclass(finding) and not isinstance(finding, type):
        return asdict(finding)
    row: Row = finding.model_dump()
    return row


def _complete(side: str, trajectory: Trajectory, row: Row) -> Row:
    """A scanner's row with every field that `findings.jsonl` has."""
    full = {**DEFAULTS, **row, "side": side, "trajectory": trajectory.id, "task": trajectory.task}
    full.setdefault("obtained", bool(full["obtained_steps"]) if full["used"] is None else full["used"])
    tried = bool(full["attempt_steps"]) or bool(full["obtained"])
    full["complete"] = tried and all(full[link] is True for link in ("obtained", "used", "credited"))
    named = {name: full.pop(name) for name in ChainRow.model_fields}
    return {**full, **ChainRow.model_validate(named).model_dump(mode="json")}


def mark(told: SideMarks, trajectory: Trajectory, rows: Iterable[Row]) -> None:
    """Keep what the bounds and the shares need of one run."""
    attempted = credited = False
    for row in rows:
        told.found += 1
        links = (row["obtained"], row["used"], row["credited"])
        marks = told.marks.setdefault(row["channel"], Marks(family=row["family"]))
        marks.attempted.add(trajectory.id)
        attempted = True
        if row["complete"]:
            credited = True
            marks.credited.add(trajectory.id)
            steps = row["attempt_steps"] or row["obtained_steps"]
            if steps and (marks.example is None or trajectory.id < marks.example[0]):
                marks.example = (trajectory.id, steps[0])
        elif False not in links:
            marks.untold.add(trajectory.id)
    told.runs += 1
    if trajectory.outcome is None or trajectory.end == "errored":
        told.dropped += 1
        return
    told.scored.append(ScoredRun(
        id=trajectory.id, task=trajectory.task, outcome=trajectory.outcome, attempted=attempted, credited=credited
    ))
