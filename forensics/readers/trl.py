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

The completions that TRL logs while it trains (`log_completions=True`), as rows of a
training record.

1. The file of a step holds the generations that were logged last. Its number is the one
   of the update that they were logged after. A file with the completions of the one
   before tells of the same generations again (`steps_per_generation` above 1) and is no step.
2. Rows come in the order of the batch, a group's next to each other: equal prompts in a
   row are groups, the size of which is what divides all of these stretches.
3. Weights of rewards are not in the files. The total is the plain sum where the logged
   advantages are proportional to it in every group of the run; else it is missing.
4. An evaluation at a step overwrites the file of that step with its own completions, and
   nothing in the file says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, groupby, pairwise
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
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
from forensics.readers.step_rows import Broken, Found, each_row, row_of
from forensics.readers.values import as_mapping, field_names, number, run_of
from forensics.records import Trajectory, content_hash

NAME = "completions_*.parquet"
GAPS = (
    "token ids, masks, log-probabilities and entropies",
    "weights of rewards: a total is their plain sum where the advantages agree with it",
    "how a run ended",
    "policy versions",
    "the start of the run, its tokenizer and its settings",
    "steps that were not logged (`logging_steps`), and those that an evaluation wrote over",
)
CLOSE = 1e-3  # of the largest advantage of a group; they are float32
FLAT = 1e-6  # a reward or advantage that is none
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


@dataclass(frozen=True)
class TrlDump:
    """The files of one folder of completions."""

    paths: tuple[Path, ...]
    trainer: str = "TRL"
    gaps: tuple[str, ...] = GAPS

    @cached_property
    def files(self) -> dict[int, tuple[Path, ...]]:
        """The files by step, without those that repeat the one before."""
        said = [None, *(said for said, _ in self._looks)]
        new = [now != before for before, now in pairwise(said)]
        return {number_of(path): (path,) for path in compress(self.paths, new)}

    @cached_property
    def _looks(self) -> list[tuple[str, bool]]:
        return [_look(path) for path in self.paths]

    def rows(self, step: int, broken: Broken) -> Iterator[Found]:
        """The completions of a step in the order of its file."""
        plain = all(plain for _, plain in self._looks)
        (path,) = self.files[step]
        logged = rows(path, beside=("advantage",))
        runs = list(each_row(logged, path, broken, lambda row: (run(row), row.value)))
        size = group_size([one.task for one, _ in runs])
        for at, (one, value) in enumerate(runs):
            yield row_of(
                one,
                step=step,
                group=str(at // size),
                sample=at % size,
                reward=plain_sum(one.rewards) if plain else None,
                advantage=number(value.get("advantage")),
                end=None,
            )


def find(folder: Path) -> TrlDump | None:
    """The dump in a folder or its `completions`, `None` where there is none."""
    for place in (folder, folder / "completions"):
        found = [path for path in place.glob(NAME) if path.stem.rpartition("_")[2].isdecimal()]
        paths = tuple(sorted(found, key=number_of))
        if paths and recognises(paths[0], read_head(paths[0])):
            return TrlDump(paths)
    return None


def number_of(path: Path) -> int:
    """The step in a file's name."""
    return int(path.stem.rpartition("_")[2])


def group_size(prompts: Sequence[str]) -> int:
    """How many samples a prompt has, from equal prompts in a row.

    >>> group_size("aabbbbcc")
    2
    """
    return gcd(*(sum(1 for _ in same) for _, same in groupby(prompts))) or 1


def plain_sum(rewards: Mapping[str, float | None]) -> float | None:
    """Over the rewards that are known, as TRL takes it."""
    known = [reward for reward in rewards.values() if reward is not None]
    return sum(known) if known else None


def are_plain(
    rewards: Sequence[Mapping[str, float | None]],
    advantages: Sequence[float | None],
    size: int,
) -> bool:
    """Whether a total may be the plain sum of the rewards: the advantages of every group of
    `size` rows are proportional to it. Without advantages only a single reward is its own total.
    """
    if None in advantages:
        return all(len(one) == 1 for one in rewards)
    sums = [plain_sum(one) for one in rewards]
    return all(
        _proportional(sums[at : at + size], advantages[at : at + size])
        for at in range(0, len(sums), size)
    )


def _proportional(sums: Sequence[float | None], advantages: Sequence[float | None]) -> bool:
    """Whether advantages are the centred sums times one positive number. A completion that no
    reward could score has no sum, and TRL leaves it out of the baseline.
    """
    known = [pair for pair in zip(sums, advantages, strict=True) if pair[0] is not None]
    if not known:
        return True
    total, given = np.array(known, float).T
    centred = total - total.mean()
    largest = float(np.abs(centred).max()), float(np.abs(given).max())
    if min(largest) < FLAT:
        return max(largest) < FLAT
    return bool(np.abs(centred / largest[0] - given / largest[1]).max() <= CLOSE)


def _look(path: Path) -> tuple[str, bool]:
    """What identifies the completions of a file (of one that is broken, also its name), and
    whether its rewards are plain.
    """
    read = list(rows(path, beside=("advantage",)))
    values = [as_mapping(row.value) for row in read if isinstance(row, Row)]
    said = [[value.get("prompt"), value.get("completion")] for value in values]
    size = group_size([content_hash(prompt, 16) for prompt, _ in said])
    advantages = [number(value.get("advantage")) for value in values]
    plain = are_plain(
        [numbers(as_mapping(value.get("rewards"))) for value in values], advantages, size
    )
    broken = path.name if len(values) < len(read) else ""
    return content_hash([said, broken], 16), plain
