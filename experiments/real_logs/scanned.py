"""`forensics scan` on one folder of logs, as a user runs it, and what it found run by run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from forensics import scan
from forensics.records import Trajectory
from forensics.records.files import read_json
from forensics.records.tables import read_trajectories
from forensics.shortcuts import LEVELS, degenerate

USED = LEVELS.index("used")


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """One run: `findings` are its rows of `findings.jsonl`. `tools`: whether
    anything came back for an action.

    `log`: the run as it was read.
    """

    id: str
    task: str
    outcome: float | None
    tools: bool
    degenerate: bool
    actions: tuple[int, ...]
    findings: tuple[Mapping[str, Any], ...]
    log: Trajectory

    @property
    def level(self) -> int:
        """The furthest link of any finding, as a place in `LEVELS`."""
        return max((level_of(row) for row in self.findings), default=0)

    def cited(self, family: str) -> tuple[int, ...]:
        """The actions that findings of a family cite, counted from 1 as the labels count them."""
        steps = {
            step
            for row in self.findings
            if row["family"] == family
            for step in row["attempt_steps"]
        }
        return tuple(number for number, step in enumerate(self.actions, 1) if step in steps)


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A scanned folder. `unreadable`: how many files and rows no reader could read."""

    name: str
    label: str
    unreadable: int
    runs: tuple[Scanned, ...]


def level_of(row: Mapping[str, Any]) -> int:
    """The furthest link of a row of `findings.jsonl` that is known to hold, as
    a place in `LEVELS`.
    """
    if row["used"] or row["credited"]:
        return LEVELS.index("credited" if row["credited"] else "used")
    return LEVELS.index("obtained" if row["obtained"] else "attempt")


def scan_folder(folder: Path) -> Folder:
    """Scan a folder without a flag. Raises `UserError` where nothing in it can be read."""
    with TemporaryDirectory() as place:
        case = Path(place) / "case"
        verdict = scan(folder, out=case, formats=())
        counts = read_json(case / "case.json")["provenance"]["logs"]["after-0"]
        rows = [json.loads(line) for line in (case / "findings.jsonl").read_text().splitlines()]
        paths = sorted((case / "trajectories").glob("*.parquet"))
        runs = tuple(_scanned(run, rows) for path in paths for run in read_trajectories(path))
    unreadable = counts["unreadable"] + counts["no_logs"]
    return Folder(name=folder.name, label=verdict.label, unreadable=unreadable, runs=runs)


def _scanned(run: Trajectory, rows: Sequence[Mapping[str, Any]]) -> Scanned:
    return Scanned(
        id=run.id,
        task=f"{run.environment}/{run.task}",
        outcome=run.outcome,
        tools=any(step.role == "tool" for step in run.steps),
        degenerate=bool(degenerate(run).above),
        actions=tuple(step for step, _ in run.actions),
        findings=tuple(row for row in rows if row["trajectory"] == run.id),
        log=run,
    )
