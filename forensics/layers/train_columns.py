"""A training record as columns: a few numbers a run and a few a group, streamed
shard by shard.

Memory grows by some twenty numbers a run, whatever the length of the runs. Rows
are put in the order of their group and sample, so the order in which a shard
holds them changes no bit.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from forensics.layers.score_scale import ScoreScale
from forensics.records.train_tables import TrainingRecord

Floats = NDArray[np.float64]
PLAIN = (
    *("task", "group", "sample", "reward", "outcome", "advantage", "dropped", "end", "turns"),
    "rewards",
)
TOKENS = ("sampler_logprobs", "old_logprobs", "reference_logprobs", "entropies")


@dataclass(frozen=True, kw_only=True)
class StepNumbers:
    """One step: for each measure, the mean of each task that has it, `{measure: {task: mean}}`."""

    step: int
    means: dict[str, dict[str, float]]
    runs: int

    def mean(self, measure: str) -> float | None:
        """The mean over the step's tasks, `None` where no task has the measure."""
        tasks = self.means.get(measure)
        return float(np.mean(list(tasks.values()))) if tasks else None


def read_step(
    record: TrainingRecord, step: int, tolerance: float, win: float, scale: ScoreScale | None
) -> StepNumbers:
    """All measures of one complete step. `tolerance`: rewards this close count
    as equal; `win`: score of a success; `scale`: of the scores of the whole record.
    """
    runs = sorted(_runs(record, step), key=lambda run: (run["group"], run["sample"], run["task"]))
    if scale is not None:
        runs = [run | {"outcome": scale.outcome(run)} for run in runs]
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        groups[run["group"]].append(run)
    numbers = [(run["task"], run_numbers(run, win)) for run in runs]
    numbers += [
        (members[0]["task"], group_numbers(members, tolerance, win)) for members in groups.values()
    ]
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for task, measures in numbers:
        for name, value in measures.items():
            if value is not None:
                values[name][task].append(value)
    means = {
        name: {task: float(np.mean(of_task)) for task, of_task in sorted(tasks.items())}
        for name, tasks in values.items()
    }
    return StepNumbers(step=step, means=means, runs=len(runs))


def run_numbers(run: dict[str, Any], win: float) -> dict[str, float | None]:
    """The measures of one run; `None` where its row does not tell. Errored
    runs say nothing of the policy.
    """
    if run["end"] == "errored":
        return {}
    own = run["old_logprobs"] if run["old_logprobs"] is not None else run["sampler_logprobs"]
    won = None if run["outcome"] is None else run["outcome"] >= win
    turns = None if run["turns"] is None else float(run["turns"])
    return {
        "reward": run["reward"],
        "success": run["outcome"],
        "token entropy": run["entropies"],
        "mean log-probability": run["sampler_logprobs"],
        "KL to the start": None
        if None in (own, run["reference_logprobs"])
        else own - run["reference_logprobs"],
        "truncated share": None if run["end"] is None else float(run["end"] == "truncated"),
        "length": run["length"],
        "turns": turns,
        "turns of failed runs": turns if won is False else None,
        "turns of successful runs": turns if won else None,
    }


def group_numbers(
    members: Sequence[dict[str, Any]], tolerance: float, win: float
) -> dict[str, float | None]:
    """The measures of one group. Without two known rewards its spread is
    not known, and neither is its life; without an advantage or the reason why
    there is none, neither is whether it was trained on.
    """
    rewards = [run["reward"] for run in members if run["reward"] is not None]
    outcomes = [run["outcome"] for run in members if run["outcome"] is not None]
    told = [run["dropped"] for run in members if run["dropped"] or run["advantage"] is not None]
    drawn = [run["drawn"] for run in members if run["drawn"] is not None]
    numbers: dict[str, float | None] = {
        "kept share": float(None in told) if told else None,
        "diversity": len(set(drawn)) / len(drawn) if len(drawn) > 1 else None,
    }
    if len(rewards) < 2:
        return numbers
    dead = is_dead(rewards, tolerance)
    numbers |= {"dead share": float(dead), "reward spread": float(np.std(rewards))}
    if outcomes:
        numbers["dead, all successes"] = float(dead and all(value >= win for value in outcomes))
        numbers["dead, all failures"] = float(dead and all(value < win for value in outcomes))
    return numbers


def is_dead(rewards: Sequence[float], tolerance: float) -> bool:
    """Whether all rewards of a group are equal, within a tolerance of the whole group."""
    return max(rewards) - min(rewards) <= tolerance


def _runs(record: TrainingRecord, step: int) -> Iterator[dict[str, Any]]:
    for batch in record.batches(step, *PLAIN, *TOKENS, "token_ids", "sampled"):
        columns = {name: batch.column(name).to_pylist() for name in PLAIN}
        columns |= {name: _row_means(batch.column(name)) for name in TOKENS}
        columns["drawn"], columns["length"] = _drawn(batch)
        for index in range(batch.num_rows):
            yield {name: values[index] for name, values in columns.items()}


def _row_means(column: Any) -> list[float | None]:
    """The mean of each row's list; `None` for a missing or empty one."""
    rows = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
    numbers = column.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    sizes = np.bincount(rows, minlength=len(column))
    sums = np.bincount(rows, weights=numbers, minlength=len(column))
    return [float(total / size) if size else None for total, size in zip(sums, sizes, strict=True)]


def _drawn(batch: pa.RecordBatch) -> tuple[list[bytes | None], list[float | None]]:
    """What the policy drew in each row, as bytes to compare, and how many tokens it is."""
    texts: list[bytes | None] = []
    for ids, mask in zip(batch.column("token_ids"), batch.column("sampled"), strict=True):
        if ids.values is None or mask.values is None:
            texts.append(None)
            continue
        flags = mask.values.to_numpy(zero_copy_only=False).astype(bool)
        texts.append(ids.values.to_numpy(zero_copy_only=False)[flags].astype(np.int32).tobytes())
    return texts, [None if text is None else len(text) / 4 for text in texts]
