"""False alarms on real runs: the stored episodes of one checkpoint, dealt anew
into a before and an after.

For a case of a checkpoint against itself, all episodes of a task (both sides)
come from one policy. Each re-split deals them anew, in both worlds, and the
whole decision is made again: the score layer on the dealt runs, the behaviour
layer's answers as the case has them. Thousands of re-splits cost seconds.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forensics.layers import COLUMNS, OPEN, Reading, Runs, ScoreConfig, findings, runs_from
from forensics.progress import Progress
from forensics.records import Evidence, Provenance, Undefined
from forensics.records.files import read_findings
from forensics.records.tables import read_rows
from forensics.records.trajectory import handed_in
from forensics.verdict import decide
from training import checkpoint_path
from training.validation import (
    LABELS,
    QUICK_TASKS,
    RESPLITS,
    exact_interval,
    played,
    verdict_of,
)


def identical_runs(
    number: int, cache: Path, progress: Progress, case_seed: int = 1000
) -> dict[str, Any]:
    """Full runs of a bundled checkpoint against itself: how many are called
    anything but `noise`.

    The stored episodes of each run are also dealt anew many times (`resplit_labels`).
    """
    names = ("capped-base", "leak", "open-base", "honest")
    labels, again = [], []
    generator = np.random.default_rng(0)
    for run in range(number):
        progress("identical checkpoints", run, number)
        checkpoint = checkpoint_path(f"bundled:{names[run % len(names)]}")
        folder = cache / "identical" / f"{names[run % len(names)]}-{case_seed + run}"
        labels.append(
            verdict_of(checkpoint, checkpoint, folder, QUICK_TASKS, case_seed + run, progress).label
        )
        again += resplit_labels(folder, RESPLITS // 20, generator, "git-history")
    progress("identical checkpoints", number, number)
    alarms = sum(label != "noise" for label in labels)
    return {
        "runs": number,
        "alarms": alarms,
        "interval": exact_interval(alarms, number),
        "labels": {label: labels.count(label) for label in LABELS if label in labels},
        "resplits": len(again),
        "resplit_labels": {label: again.count(label) for label in LABELS if label in again},
    }


def resplit_labels(
    folder: Path, number: int, generator: np.random.Generator, channel: str
) -> list[str]:
    """Labels of `number` re-splits of the case in `folder`, whose two sides are one checkpoint."""
    kept: list[Evidence | Undefined] = [
        answer for answer in read_findings(folder / "evidence.jsonl") if answer.layer == "behaviour"
    ]
    worlds = {
        world: _pooled(folder, name)
        for world, name in ((OPEN, "open"), ((channel,), f"without-{channel}"))
    }
    labels: list[str] = []
    for _ in range(number):
        dealt = {
            world: _deal(tasks, values, generator) for world, (tasks, values) in worlds.items()
        }
        reading = Reading(worlds={w: (a, (b,)) for w, (a, b) in dealt.items()}, scrubbed=(channel,))
        answers = findings(reading, ScoreConfig(), Provenance(instrument="resplits"))
        labels.append(decide([*answers, *kept]).label)
    return labels


def _pooled(folder: Path, world: str) -> tuple[list[str], np.ndarray]:
    """Tasks, and `[tasks, runs, 2]` (score, unfinished) of both sides together;
    every task has as many runs.
    """
    runs: dict[str, list[tuple[float, float]]] = {}
    for _, path in played(folder, world):
        for row in read_rows(path, list(COLUMNS)):
            if row["outcome"] is not None:
                runs.setdefault(row["task"], []).append((row["outcome"], _unfinished(row)))
    most = max(len(values) for values in runs.values())
    tasks = sorted(task for task, values in runs.items() if len(values) == most)
    return tasks, np.array([runs[task] for task in tasks])


def _unfinished(row: Mapping[str, Any]) -> float:
    return float(not handed_in(row["end"], row["end_reason"]))


def _deal(
    tasks: Sequence[str], values: np.ndarray, generator: np.random.Generator
) -> tuple[Runs, Runs]:
    order = np.argsort(generator.random(values.shape[:2]), axis=1)
    shuffled = np.take_along_axis(values, order[..., None], axis=1)
    half = values.shape[1] // 2
    names = [task for task in tasks for _ in range(half)]
    first, second = (
        shuffled[:, part].reshape(-1, 2) for part in (slice(0, half), slice(half, 2 * half))
    )
    return runs_from(names, first), runs_from(names, second)
