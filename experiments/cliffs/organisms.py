"""Part (b): do the reported tokens decide? Ours and the published rule on the
same runs, judged by fresh samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cliffs.collecting import Collected
from experiments.cliffs.random_traces import published_rule
from forensics.records.files import read_json, write_json
from resampling import Request, Sampler, Trace, draw_branches
from resampling.samplers import StoredSampler
from resampling.study import DeleteKeep, DeleteKeepConfig, delete_and_keep

PUBLISHED_RUNS = 40


@dataclass(frozen=True)
class Reported:
    """A token that a rule called a cliff."""

    trace: str
    token: int
    kind: str | None = None


def judged_rules(found: Collected, seed: int, folder: Path) -> dict[str, Any]:
    """For both rules: what they report, what it cost, and what deletion
    restores, by task. Kept in the folder.
    """
    path = folder / "rules.json"
    if not path.exists():
        write_json(path, {"ours": _ours(found), "published": _published(found, seed, folder)})
    judged: dict[str, Any] = read_json(path)
    return judged


def _ours(found: Collected) -> dict[str, Any]:
    report = found.study.report
    return {
        "runs": len(report.traces),
        "reported": len(report.cliffs),
        "rollouts": report.rollouts,
        "tokens": report.tokens,
        "restored": _restored(found.study.causation),
        "kinds": _kinds(cliff.kind for cliff in report.cliffs),
    }


def _published(found: Collected, seed: int, folder: Path) -> dict[str, Any]:
    traces = found.opened.traces[:PUBLISHED_RUNS]
    sampler = StoredSampler(folder / "published", found.opened.sampler)
    rule = published_rule(traces, sampler)
    reported = [Reported(trace, token) for trace, token in sorted(rule.cliffs)]
    potentials = {trace.id: estimated(trace, sampler) for trace in traces}
    tasks = {trace.id: trace.task for trace in traces}
    rows = delete_and_keep(reported, potentials, tasks, sampler, DeleteKeepConfig(seed=seed))
    free = {trace.id: 1 - trace.probabilities for trace in traces}
    return {
        "runs": len(traces),
        "reported": len(reported),
        "rollouts": rule.rollouts,
        "tokens": rule.tokens,
        "restored": _restored(rows),
        "impossible": sum(bool(free[one.trace][one.token] < 0.1) for one in reported),
    }


def estimated(trace: Trace, sampler: Sampler) -> np.ndarray:
    """The published estimate at every prefix `[N + 1]` (read from what is
    stored), for choosing controls.
    """
    requests = [Request(trace=trace.id, kept=kept, n=64) for kept in range(len(trace) + 1)]
    return np.array([drawn.scores.mean() for drawn in draw_branches(sampler, requests).values()])


def _restored(rows: Sequence[DeleteKeep]) -> list[dict[str, Any]]:
    return [
        {
            "task": row.task,
            "kind": row.kind,
            "cliff": row.cliff.restored,
            "control": None if row.control is None else row.control.restored,
        }
        for row in rows
    ]


def _kinds(kinds: Any) -> dict[str, int]:
    counted: dict[str, int] = {}
    for kind in kinds:
        counted[str(kind)] = counted.get(str(kind), 0) + 1
    return counted
