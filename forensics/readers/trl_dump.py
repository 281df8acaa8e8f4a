"""The completions that TRL logs while it trains (`log_completions=True`), as rows of a
training record.

Format: trl 1.16 `trainer/grpo_trainer.py` (`log`), `completions/completions_00010.parquet`
in the output folder, whose rows the reader `trl` describes.

1. The file of a step holds the generations that were logged last. Its number is the one
   of the update that they were logged after. A file with the completions of the one
   before tells of the same generations again (`steps_per_generation` above 1) and is no step.
2. Rows come in the order of the batch, a group's next to each other: equal prompts in a
   row are groups, the size of which is what divides all of these stretches.
3. Weights of rewards are not in the file. The total is the plain sum where the logged
   advantages are proportional to it within every group; else it is missing.
4. An evaluation at a step overwrites the file of that step with its own completions, and
   nothing in the file says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, groupby, pairwise
from math import gcd
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forensics.readers import trl
from forensics.readers.content import Unreadable, UnreadableContent
from forensics.readers.json_rows import MALFORMED, Row
from forensics.readers.step_rows import Broken, Found, row_of
from forensics.readers.values import number
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


@dataclass(frozen=True)
class TrlDump:
    """The files of one folder of completions."""

    paths: tuple[Path, ...]
    trainer: str = "TRL"
    gaps: tuple[str, ...] = GAPS

    @cached_property
    def files(self) -> dict[int, tuple[Path, ...]]:
        """The files by step, without those that repeat the one before."""
        said = [None, *map(_said, self.paths)]
        new = [now != before for before, now in pairwise(said)]
        return {number_of(path): (path,) for path in compress(self.paths, new)}

    def rows(self, step: int, broken: Broken) -> Iterator[Found]:
        """The completions of a step in the order of its file."""
        (path,) = self.files[step]
        runs: list[tuple[Trajectory, float | None, str]] = []
        for row in trl.rows(path, beside=("advantage",)):
            if isinstance(row, Unreadable):
                broken(row)
                continue
            try:
                run = trl.run(Row(row.where, row.value, path))
            except (UnreadableContent, *MALFORMED) as error:
                broken(Unreadable(path, str(error), row.where))
                continue
            prompt = content_hash(row.value["prompt"], 16)
            runs.append((run, number(row.value.get("advantage")), prompt))
        size = group_size([prompt for _, _, prompt in runs])
        totals = plain_totals([(run.rewards, advantage) for run, advantage, _ in runs], size)
        for at, ((run, advantage, _), total) in enumerate(zip(runs, totals, strict=True)):
            group, sample = str(at // size), at % size
            yield row_of(
                run,
                step=step,
                group=group,
                sample=sample,
                reward=total,
                advantage=advantage,
                end=None,
            )


def find(folder: Path) -> TrlDump | None:
    """The dump in a folder or its `completions`, `None` where there is none."""
    for place in (folder, folder / "completions"):
        paths = [path for path in place.glob(NAME) if path.stem.rpartition("_")[2].isdecimal()]
        if paths:
            return TrlDump(tuple(sorted(paths, key=number_of)))
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


def plain_totals(
    rows: Sequence[tuple[Mapping[str, float | None], float | None]], size: int
) -> list[float | None]:
    """The sum of the rewards of each row, or `None` for all where the advantages of one
    group of `size` rows are not proportional to it.
    """
    sums = [_sum(rewards) for rewards, _ in rows]
    advantages = [advantage for _, advantage in rows]
    if None in advantages:  # nothing to hold a sum against
        one = all(len(rewards) == 1 for rewards, _ in rows)
        return sums if one else [None] * len(rows)
    told = all(
        _proportional(sums[at : at + size], advantages[at : at + size])
        for at in range(0, len(rows), size)
    )
    return sums if told else [None] * len(rows)


def _sum(rewards: Mapping[str, float | None]) -> float | None:
    """Over the rewards that are known, as TRL takes it."""
    known = [reward for reward in rewards.values() if reward is not None]
    return sum(known) if known else None


def _proportional(sums: Sequence[float | None], advantages: Sequence[float | None]) -> bool:
    """Whether advantages are the centred sums times one positive number."""
    if None in sums:
        return False
    total, given = np.array(sums, float), np.array(advantages, float)
    centred = total - total.mean()
    largest = float(np.abs(centred).max()), float(np.abs(given).max())
    if min(largest) < FLAT:
        return max(largest) < FLAT
    return bool(np.abs(centred / largest[0] - given / largest[1]).max() <= CLOSE)


def _said(path: Path) -> str:
    """What identifies the completions of a file; of one that cannot be read, its name."""
    try:
        table = pq.read_table(path, columns=["prompt", "completion"])
    except (pa.ArrowException, OSError):
        return path.name
    return content_hash(table.to_pylist(), 16)
