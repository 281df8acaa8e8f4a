"""Real runs that nobody labelled: how many get a finding that says *used* or *credited*."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from experiments.real_logs.scanned import USED, Folder, Scanned
from forensics.errors import MissingInput
from forensics.statistics import share


def folder_row(folder: Folder) -> dict[str, Any]:
    """Counts of one folder. `agents`: runs in which something came back for an action."""
    return {
        "folder": folder.name,
        "label": folder.label,
        "unreadable": folder.unreadable,
        "runs": len(folder.runs),
        "agents": sum(run.tools for run in folder.runs),
        "tasks": len({run.task for run in folder.runs}),
        "attempted": sum(run.level > 0 for run in folder.runs),
        "flagged": len(list(flagged(folder))),
        "degenerate": sum(run.degenerate for run in folder.runs),
    }


def flagged(folder: Folder) -> Iterator[Scanned]:
    """The runs that are reported as more than having obtained something."""
    return (run for run in folder.runs if run.level >= USED)


def rate(folders: Sequence[Folder], *, agents: bool) -> dict[str, Any]:
    """The share of runs that are flagged, clustered by task; of all runs, or of
    those of agents with tools.
    """
    return clustered_rate(
        (f"{folder.name}/{run.task}", run.level >= USED)
        for folder in folders
        for run in folder.runs
        if run.tools or not agents
    )


def clustered_rate(runs: Iterable[tuple[str, bool]]) -> dict[str, Any]:
    """The share of (task, flagged) runs that are flagged, clustered by task."""
    counts: dict[str, list[int]] = {}
    for task, is_flagged in runs:
        count = counts.setdefault(task, [0, 0])
        count[0] += is_flagged
        count[1] += 1
    table = np.array([*counts.values()], dtype=float).reshape(-1, 2)
    flags, total = map(int, table.sum(axis=0))
    try:
        found = share(table[:, 0], table[:, 1])
    except MissingInput:
        return {
            "flagged": flags,
            "runs": total,
            "tasks": len(counts),
            "share": None,
            "low": None,
            "high": None,
        }
    return {
        "flagged": flags,
        "runs": total,
        "tasks": found.clusters,
        "share": found.estimate,
        "low": found.low,
        "high": found.high,
    }
