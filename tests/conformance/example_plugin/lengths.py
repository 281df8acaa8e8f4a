"""How long are the runs of a log? A study in one file, and its command."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import typer

from forensics.cli import Run, study_command
from forensics.records import Table
from forensics.records.page import Page, Section, estimate_cell
from forensics.rollout_logs import OpenedLog, open_rollouts
from forensics.statistics import mean
from forensics.study import Folder, Result


@dataclass(frozen=True, kw_only=True)
class Lengths:
    log: Path
    name: ClassVar = "lengths"
    files: ClassVar = ("lengths.parquet",)

    def check(self, folder: Folder) -> OpenedLog:
        return open_rollouts(self.log, copies=folder.copies)

    def inputs(self, log: OpenedLog) -> dict[str, Any]:
        return {"log": log.rollouts.key}

    def run(self, log: OpenedLog, folder: Folder) -> list[tuple[str, int]]:
        return [(run.task, run.turns) for run in log.rollouts]

    def write(self, rows: list[tuple[str, int]], folder: Folder) -> Result:
        schema = pa.schema([("task", pa.string()), ("turns", pa.int32())])
        folder.table("lengths.parquet", ({"task": t, "turns": n} for t, n in rows), schema)
        found = mean(np.array([turns for _, turns in rows], float))
        cells = ((len(rows), estimate_cell(found)),)
        table = Table(title="Turns", columns=("runs", "mean turns"), rows=cells)
        page = Page(
            eyebrow="Logs",
            title="How long runs are",
            sections=(Section(title="All", blocks=(table,)),),
        )
        said = f"{found.estimate:.1f} turns a run."
        return Result(summary=found.row(), sentences=(said,), tables=(table,), page=page)


@study_command
def lengths(log: Annotated[Path, typer.Argument()], *, run: Run) -> None:
    """How long are the runs of a log?"""
    run.carry_out(Lengths(log=log))
