"""What another trainer wrote while it trained, read as a training record.

1. `open_record` takes a folder: our own record, or one of `FORMATS`: what verl, TRL
   and prime-rl dump. Nothing is converted on disk: a step is read when it is asked
   for, row by row, and its rows are those of our own record.
2. A format says which of its files tell of which step, and what its dumps do not hold
   (`gaps`); these columns are `None`, never 0. Steps keep the trainer's own numbers.
3. What identifies the record is the content of the files, not where they lie.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from forensics.errors import UserError
from forensics.phrases import plural
from forensics.progress import Progress, silent
from forensics.readers import prime_rl, trl, verl
from forensics.readers.content import Unreadable
from forensics.readers.step_rows import Broken, Found
from forensics.records import RECORD_FOLDER, TrainingRow, TrainingRun, content_hash
from forensics.records.case_checksum import file_hash
from forensics.records.train_rows import StepMarker
from forensics.records.train_tables import (
    ROWS_AT_ONCE,
    TRL,
    TrainingRecord,
    table_of,
)
from forensics.version import code_version

logger = logging.getLogger("forensics")
UNKNOWN = "unknown"  # the start and the tokenizer, which no dump names


class Dump(Protocol):
    """A trainer's dump in one folder. `files`: those that tell of a step, by step;
    `gaps`: what they do not hold, each a phrase.
    """

    @property
    def trainer(self) -> str: ...
    @property
    def gaps(self) -> tuple[str, ...]: ...
    @property
    def files(self) -> Mapping[int, tuple[Path, ...]]: ...

    def rows(self, step: int, broken: Broken) -> Iterator[Found]:
        """The rows of a step; what cannot be read is handed to `broken`."""
        ...


FORMATS: Sequence[Callable[[Path], Dump | None]] = (
    verl.find,
    trl.find,
    prime_rl.find,
)


def open_record(folder: Path, progress: Progress = silent) -> TrainingRecord:
    """The record in a folder, ours or another trainer's dump. Raises `UserError` where
    there is neither.
    """
    place = Path(folder)
    ours = (place / RECORD_FOLDER, place / TRL / RECORD_FOLDER)
    if any((record / "run.json").is_file() for record in ours) or not place.is_dir():
        return TrainingRecord(place)
    for find in FORMATS:
        if (dump := find(place)) is not None:
            return DumpedRecord(place, dump, progress)
    raise UserError(
        f"{place} holds no training record: neither ours ({RECORD_FOLDER}/run.json, of `forensics"
        " train --out` or ForensicsForTRL) nor a dump of verl (rollout_data_dir), TRL"
        " (completions/*.parquet of log_completions), prime-rl (rollouts/, token_exports/) or"
        " verifiers (traces.jsonl); give the folder that holds one"
    )


class DumpedRecord(TrainingRecord):
    """Another trainer's dump with the questions of a training record."""

    def __init__(self, folder: Path, dump: Dump, progress: Progress = silent) -> None:
        self.folder, self.dump = folder, dump
        self._progress = progress
        self._told: set[tuple[str, str]] = set()

    @cached_property
    def run(self) -> TrainingRun:
        """What is known of the whole run: the trainer, and what its dump lacks."""
        return TrainingRun(
            code=code_version(),
            recipe={"trainer": self.dump.trainer, "record": "dump", "gaps": list(self.dump.gaps)},
            estimator={},
            seed=None,
            start=UNKNOWN,
            tokenizer=UNKNOWN,
            environment={},
        )

    @cached_property
    def key(self) -> str:
        """The content of the dump's files, by step."""
        return content_hash([self.dump.trainer, *sorted(self._hashes.items())])

    @cached_property
    def _hashes(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for step in self._watched(f"hashing the {self.dump.trainer} dump"):
            found[step] = [file_hash(path) for path in self.dump.files[step]]
        return found

    def steps(self) -> tuple[int, ...]:
        """The steps that the dump tells of, in order."""
        return tuple(sorted(self.dump.files))

    def marker(self, step: int) -> StepMarker:
        """A step's report, counted from its rows."""
        rows = sum(1 for _ in self.rows(step))
        sha256 = content_hash(self._hashes[step])
        return StepMarker(step=step, rows=rows, sha256=sha256, code=self.run.code)

    def rows(self, step: int) -> Iterator[TrainingRow]:
        """The rows of a step in the order of the dump."""
        if step not in self.dump.files:
            raise UserError(f"step {step} is not in {self.folder}; {self._range()}")
        yield from (row for row, _ in self.dump.rows(step, self._broken))

    def values(self, step: int, *columns: str) -> Iterator[dict[str, Any]]:
        """Plain rows with only the named columns (all of them where none is named)."""
        for row in self.rows(step):
            yield {name: getattr(row, name) for name in columns or type(row).model_fields}

    def batches(self, step: int, *columns: str) -> Iterator[pa.RecordBatch]:
        """Arrow batches of a few hundred rows."""
        steps = self.steps()
        self._progress(f"reading the {self.dump.trainer} dump", steps.index(step), len(steps))
        waiting: list[TrainingRow] = []
        for row in self.rows(step):
            waiting.append(row)
            if len(waiting) == ROWS_AT_ONCE:
                yield from self._batch(waiting, columns)
                waiting.clear()
        yield from self._batch(waiting, columns)
        self._progress(f"reading the {self.dump.trainer} dump", steps.index(step) + 1, len(steps))

    def prompts(self) -> dict[str, str]:
        """The prompts by task, where the dump has texts."""
        found: dict[str, str] = {}
        for step in self._watched(f"reading the prompts of the {self.dump.trainer} dump"):
            for row, text in self.dump.rows(step, self._broken):
                if text is not None:
                    found.setdefault(row.task, text)
        return found

    def verify(self, step: int) -> None:
        """Nothing vouches for the bytes of a dump."""

    def told(self) -> str:
        """One sentence: what was found, and what is not in it."""
        steps = self.steps()
        return (
            f"{self.folder} is read as a {self.dump.trainer} dump of {plural(len(steps), 'step')}"
            f" ({steps[0]} to {steps[-1]}); it does not hold: {'; '.join(self.dump.gaps)}"
        )

    def _batch(
        self, rows: Sequence[TrainingRow], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        table = table_of(rows)
        yield from (table.select(columns) if columns else table).to_batches()

    def _watched(self, what: str) -> Iterator[int]:
        steps = self.steps()
        for done, step in enumerate(steps):
            self._progress(what, done, len(steps))
            yield step
        self._progress(what, len(steps), len(steps))

    def _broken(self, one: Unreadable) -> None:
        place = (str(one.path), str(one.where))
        if place not in self._told:
            self._told.add(place)
            logger.warning("%s of %s is left out: %s", one.where, one.path.name, one.reason)
