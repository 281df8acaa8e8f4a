"""The files of a training record: `record/run.json`, and for each step a
Parquet shard and its marker.

A shard `step-000012.parquet` counts once its marker `step-000012.json`, written
last, lies beside it; without one it was cut off, and a resumed run writes it
again. Log-probabilities and entropies are stored as float32 (relative error
6e-8), rewards and advantages as float64, so that they are exact.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from forensics.errors import OutsideFailure, UserError
from forensics.records.case_checksum import file_hash
from forensics.records.files import read_json, write_atomically
from forensics.records.record import (
    SCHEMA_VERSION,
    Kind,
    canonical_json,
    content_hash,
    first_error,
)
from forensics.records.tables import arrow_schema, column
from forensics.records.train_rows import StepMarker, TrainingRow, TrainingRun

SCHEMA = arrow_schema(
    TrainingRow,
    "training",
    **dict.fromkeys(("step", "policy_step_first", "policy_step_last"), pa.int64()),
    token_advantages=pa.list_(pa.float64()),
)
ROWS_AT_ONCE = 256
# Written twice as fast as with the defaults and zstd, and as small. A dictionary of
# every number of a float column would cost more than it saves, and statistics find no
# row in a shard that is always read whole.
DICTIONARIES = ["token_ids.list.element"]
RECORD_FOLDER = "record"
# the folder of a TRL run's record in its output folder, unless it was given another
TRL = "forensics"


def shard_path(folder: Path, step: int) -> Path:
    """Where the rows of a step are stored."""
    return folder / RECORD_FOLDER / f"step-{step:06d}.parquet"


def marker_path(folder: Path, step: int) -> Path:
    """The file that says that a step's rows are whole."""
    return shard_path(folder, step).with_suffix(".json")


def write_shard(
    folder: Path, step: int, rows: Sequence[TrainingRow], report: dict[str, Any], code: str
) -> None:
    """Write a step's shard and then its marker, each atomically. A full disk is a `UserError`."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table_of(rows),
        sink,
        compression="snappy",
        use_dictionary=DICTIONARIES,
        write_statistics=False,
    )
    content = sink.getvalue().to_pybytes()
    marker = StepMarker(
        step=step,
        rows=len(rows),
        sha256=hashlib.sha256(content).hexdigest(),
        code=code,
        report=report,
    )
    marker_path(folder, step).unlink(
        missing_ok=True
    )  # an old marker must not vouch for the new shard
    write_atomically(shard_path(folder, step), content)
    write_atomically(marker_path(folder, step), canonical_json(marker) + "\n")


def table_of(rows: Sequence[TrainingRow]) -> pa.Table:
    """Rows as the columns of a shard."""
    cells = {name: list(map(attrgetter(name), rows)) for name in SCHEMA.names}
    cells["rewards"] = [list(row.rewards.items()) for row in rows]
    return pa.Table.from_arrays(
        [column(cells[field.name], field.type) for field in SCHEMA], schema=SCHEMA
    )


def warm_up() -> None:
    """Make the first array of the process, for which pyarrow loads what it
    finds installed (pandas: 0.3 s).
    """
    pa.array([0], pa.int32())


class TrainingRecord:
    """Read the record of a training run's folder (for TRL also its output
    folder, with the record in `forensics`).

    Raises `UserError` where there is none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        if (
            not (self.folder / RECORD_FOLDER).exists()
            and (self.folder / TRL / RECORD_FOLDER).exists()
        ):
            self.folder /= TRL
        if not (self.folder / RECORD_FOLDER / "run.json").is_file():
            raise UserError(
                f"{self.folder} holds no training record ({RECORD_FOLDER}/run.json is missing);"
                " give the folder of `forensics train --out`, or the out= (or output_dir) of"
                " ForensicsForTRL"
            )

    @cached_property
    def run(self) -> TrainingRun:
        """What holds for the whole run."""
        return _read(self.folder / RECORD_FOLDER / "run.json", TrainingRun)

    @property
    def key(self) -> str:
        """The content address of the record: its run and every complete step."""
        return content_hash(
            [canonical_json(self.run), *((step, self.marker(step).sha256) for step in self.steps())]
        )

    def steps(self) -> tuple[int, ...]:
        """The complete steps, in order: those whose marker and shard both exist."""
        markers = (self.folder / RECORD_FOLDER).glob("step-*.json")
        numbers = sorted(int(path.stem.removeprefix("step-")) for path in markers)
        return tuple(step for step in numbers if shard_path(self.folder, step).exists())

    def missing(self) -> tuple[int, ...]:
        """Steps between the first and the last complete one that have no complete shard."""
        complete = self.steps()
        return (
            tuple(sorted(set(range(complete[0], complete[-1])) - set(complete))) if complete else ()
        )

    def marker(self, step: int) -> StepMarker:
        """Raises `UserError` for a step that is not complete."""
        path = marker_path(self.folder, step)
        if not (path.exists() and shard_path(self.folder, step).exists()):
            raise UserError(
                f"step {step} is not complete in {self.folder / RECORD_FOLDER}; {self._range()}"
            )
        return _read(path, StepMarker)

    def report(self, step: int) -> dict[str, Any]:
        """What the step did, as its trainer said."""
        return self.marker(step).report

    def rows(self, step: int) -> Iterator[TrainingRow]:
        """Stream the rows of a complete step in the order of writing."""
        for row in self.values(step):
            row["rewards"] = dict(row["rewards"] or [])
            yield TrainingRow.model_validate(row)

    def values(self, step: int, *columns: str) -> Iterator[dict[str, Any]]:
        """Plain rows with only the named columns (all of them where none is named)."""
        for batch in self.batches(step, *columns):
            yield from batch.to_pylist()

    def batches(self, step: int, *columns: str) -> Iterator[pa.RecordBatch]:
        """Arrow batches of a few hundred rows. Raises `UserError` for a broken or cut shard."""
        marker, path = self.marker(step), shard_path(self.folder, step)
        try:
            self._require_bytes(path, marker)
            with pq.ParquetFile(path) as file:
                self._check(path, file, marker)
                yield from file.iter_batches(ROWS_AT_ONCE, columns=list(columns) or None)
        except (pa.ArrowException, OSError) as error:
            raise OutsideFailure(
                f"{path.name} cannot be read ({str(error).splitlines()[0]}); {self._cure(step)}"
            ) from None

    def prompts(self) -> dict[str, str]:
        """The prompts by task that are stored as texts: none here, where token ids tell them."""
        return {}

    def verify(self, step: int) -> None:
        """Raises `UserError` unless the shard has the very bytes that its marker tells of."""
        self._require_bytes(shard_path(self.folder, step), self.marker(step))

    def _require_bytes(self, path: Path, marker: StepMarker) -> None:
        if file_hash(path) != marker.sha256:
            raise OutsideFailure(
                f"{path.name} is not what its marker tells of; {self._cure(marker.step)}"
            )

    def _check(self, path: Path, file: pq.ParquetFile, marker: StepMarker) -> None:
        told = (file.schema_arrow.metadata or {}).get(b"forensics.schema", b"none").decode()
        if told != f"training/{SCHEMA_VERSION}":
            raise UserError(
                f"{path.name} has schema {told}, this version reads training/{SCHEMA_VERSION};"
                " upgrade"
            )
        if file.metadata.num_rows != marker.rows:
            raise UserError(
                f"{path.name} has {file.metadata.num_rows} rows, its marker tells of {marker.rows};"
                f" {self._cure(marker.step)}"
            )

    def _cure(self, step: int) -> str:
        marker = marker_path(self.folder, step).name
        return (
            f"delete {marker} to go on without that step, or train the run again from its start"
            " with --force"
        )

    def _range(self) -> str:
        complete = self.steps()
        return (
            f"complete are steps {complete[0]} to {complete[-1]}"
            if complete
            else "no step is complete yet"
        )


def _read(path: Path, kind: type[Kind]) -> Kind:
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        raise UserError(
            f"{path.name} is not a training record ({first_error(error)}); run the training again"
        ) from None
