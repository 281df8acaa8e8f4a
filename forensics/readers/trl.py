"""Completions that TRL logs, and GRPO samples as JSON lines.

Format: trl 1.16 `trainer/grpo_trainer.py` (`log`,
`completions/completions_00010.parquet`).

1. A row is one run: `prompt` and `completion` as texts or messages, one column
   for each reward function, `advantage`. Which columns are rewards is not
   written down: all that hold numbers, except `step` and `advantage`. Other
   columns (answers, solutions) are not read.
2. JSON lines have the rewards in `rewards`, and may name `run` and `sample`.
3. The policy changes from step to step, so a step is a policy. The outcome is
   the reward that is named as one (`accuracy_reward` and the like), else the
   only one; weights of rewards are not in the log.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from forensics.readers.content import Unreadable, UnreadableContent, log_name, read_head
from forensics.readers.json_rows import (
    MAGIC,
    Row,
    columns_of,
    first_row,
    read_parquet,
    read_rows,
    trajectories_from,
)
from forensics.readers.log_reader import Reader
from forensics.readers.rollout_text import Seen, numbers, outcome_of, prompt_and_completion
from forensics.readers.values import as_mapping
from forensics.records import Trajectory

NAME = "trl"
PARQUET = {"step", "prompt", "completion"}
LINES = {"step", "prompt", "completion", "rewards"}
NUMBERS = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)
NO_REWARD = ("step", "advantage", "index", "__index_level_0__")


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    return set(columns_of(path, head)) >= PARQUET or first_row(head).keys() >= LINES


def read(path: Path) -> Iterator[Trajectory | Unreadable]:
    """Every completion of the file."""
    seen = Seen()
    rows = _rows(path) if _is_parquet(path) else read_rows(path)
    return trajectories_from(path, rows, lambda row: _run(row, log_name(path), seen))


reader = Reader(
    name=NAME,
    version="1 (trl 0.16 to 1.16)",
    recognises=recognises,
    reads=read,
)


def _is_parquet(path: Path) -> bool:
    try:
        return read_head(path).startswith(MAGIC)
    except UnreadableContent:
        return False


def _rows(path: Path) -> Iterator[Row | Unreadable]:
    """The rows with the columns that are read; the rewards together, as JSON lines have them."""
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        told = " ".join(str(error).split())[:200]
        yield Unreadable(
            path=path, where="the whole file", reason=f"it is no Parquet file ({told})"
        )
        return
    rewards = [
        column.name
        for column in schema
        if any(holds(column.type) for holds in NUMBERS) and column.name not in NO_REWARD
    ]
    for row in read_parquet(path, ["step", "prompt", "completion", *rewards]):
        if isinstance(row, Row):
            row = Row(
                where=row.where,
                value={**row.value, "rewards": {name: row.value.get(name) for name in rewards}},
            )
        yield row


def _run(row: Row, stem: str, seen: Seen) -> Trajectory:
    value: Mapping[str, Any] = row.value
    steps, task = prompt_and_completion(value["prompt"], value["completion"])
    run, step = str(value.get("run") or ""), str(value["step"])
    policy = f"{run} step {step}".strip()
    rewards = numbers(as_mapping(value.get("rewards")))
    sample = seen.sample(policy, task)
    return Trajectory(
        id=f"{stem} {row.where}",
        task=task,
        policy=policy,
        environment=NAME,
        seed=0,
        sample=sample,
        steps=steps,
        rewards=rewards,
        outcome=outcome_of({name: rewards[name] for name in rewards if name != "total"}),
        end="terminated",
    )
