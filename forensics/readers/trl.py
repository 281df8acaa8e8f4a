"""Completions that TRL logs, and GRPO samples as JSON lines.

Format: trl 1.16 `trainer/grpo_trainer.py` (`log`,
`completions/completions_00010.parquet`).

1. A row is one run: `prompt` and `completion` as texts or messages, one column
   for each reward function, `advantage`. Which columns are rewards is not
   written down: all that hold numbers, except `step` and `advantage`. Other
   columns (answers, solutions) are not read.
2. JSON lines have the rewards in `rewards`, or each as an entry of its own as the
   Parquet files have them, and may name `run` and `sample`.
3. The policy changes from step to step, so a step is a policy. The outcome is
   the reward that is named as one (`accuracy_reward` and the like), else the
   only one: the mean of several is no success.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from forensics.readers.content import JsonObject, UnreadableContent, log_name, read_head
from forensics.readers.json_rows import (
    Row,
    Rows,
    first_row,
    parquet_schema,
    read_parquet,
    read_rows,
)
from forensics.readers.log_reader import Reader
from forensics.readers.rollout_text import numbers, outcome_of, prompt_and_completion
from forensics.readers.values import as_mapping, field_names, run_of
from forensics.records import Trajectory

FIELDS = {"step", "prompt", "completion"}
NUMBERS = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)
_REWARDS = field_names("rewards")


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    row = first_row(head)
    lines = row.keys() >= FIELDS and ("rewards" in row or "advantage" in row or bool(_flat(row)))
    return lines or set(parquet_schema(path, head).names) >= FIELDS


def _flat(row: JsonObject) -> dict[str, Any]:
    """The rewards that stand in a row by themselves."""
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, int | float)
        and name not in (*_REWARDS.not_of_trl, *_REWARDS.not_of_a_line)
    }


def rows(path: Path, beside: Sequence[str] = ()) -> Rows:
    """The rows with the columns that are read; the rewards together, as JSON lines have them.
    `beside`: further columns of a Parquet file.
    """
    try:
        schema = parquet_schema(path, read_head(path))
    except UnreadableContent:
        schema = ()
    rewards = [
        column.name
        for column in schema
        if any(holds(column.type) for holds in NUMBERS) and column.name not in _REWARDS.not_of_trl
    ]
    for row in read_parquet(path, [*FIELDS, *beside, *rewards]) if schema else read_rows(path):
        if schema and isinstance(row, Row):
            given = {name: row.value[name] for name in rewards}
            row = Row(row.where, {**row.value, "rewards": given})
        yield row


def run(row: Row) -> Trajectory:
    """The run of a completion."""
    value: JsonObject = row.value
    steps, task = prompt_and_completion(value["prompt"], value["completion"])
    held = value.get("rewards")
    rewards = numbers(_flat(value) if held is None else as_mapping(held))
    outcome = outcome_of({name: rewards[name] for name in rewards if name != "total"})
    return run_of(
        steps,
        id=f"{log_name(row.path)} {row.where}",
        task=task,
        policy=f"{value.get('run') or ''} step {value['step']}".strip(),
        environment="trl",
        rewards=rewards,
        outcome=outcome,
    )


reader = Reader(
    name="trl",
    version="1 (trl 0.16 to 1.16)",
    recognises=recognises,
    rows=rows,
    run=run,
    counted=True,
)
