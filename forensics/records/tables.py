"""Trajectories in Parquet: streaming in both directions, one explicit schema.

Log-probabilities are stored as float32 (relative error 6e-8); everything else
is exact.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from forensics.errors import CURE, OutsideFailure, UserError
from forensics.records.checksum import PLACE, require_whole, seal, source, tell_unchecked
from forensics.records.files import as_user_error
from forensics.records.record import SCHEMA_VERSION, Record, first_error
from forensics.records.trajectory import Step, Trajectory

_PLAIN = {str: pa.string(), int: pa.int32(), float: pa.float64(), bool: pa.bool_()}


def arrow_schema(record: type[Record], name: str, **wide: pa.DataType) -> pa.Schema:
    """A column for each field of a record. `wide`: fields whose type is not the usual one."""
    columns = [(field, wide.get(field, kind)) for field, kind in _columns_of(record)]
    version = f"{name}/{SCHEMA_VERSION}".encode()
    return pa.schema(columns, metadata={b"forensics.schema": version})


def _columns_of(record: type[Record]) -> list[tuple[str, pa.DataType]]:
    return [(name, _arrow(field.annotation)) for name, field in record.model_fields.items()]


def _arrow(kind: Any) -> pa.DataType:
    """The type of a column for a field of this kind; one that may be `None` may be null."""
    origin, (first, *_) = get_origin(kind), get_args(kind) or (kind,)
    if origin is tuple:
        return pa.list_(pa.float32() if first is float else _arrow(first))
    if origin is dict:
        return pa.map_(pa.string(), pa.float64())
    if origin is Literal:
        return _PLAIN[type(first)]
    if origin is not None:  # `float | None`
        return _arrow(first)
    return _PLAIN[kind] if kind in _PLAIN else pa.struct(_columns_of(kind))


SCHEMA = arrow_schema(Trajectory, "trajectory", seed=pa.int64())
STEP = SCHEMA.field("steps").type.value_type
NAME, RUNS = b"forensics.schema", b"trajectory/"
ENDING = ".parquet"
ROWS_AT_ONCE = 256
Row = TypeVar("Row")
# columns that hold few different values; a dictionary of the others would cost time for
# nothing
REPEATING = [
    "task",
    "policy",
    "environment",
    "end",
    "end_reason",
    "file",
    "steps.list.element.role",
    "steps.list.element.kinds.list.element",
    "steps.list.element.channels.list.element",
    "steps.list.element.tool_calls.list.element.name",
]


def write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Stream trajectories into one file, atomically; returns how many."""
    return write_table(path, SCHEMA, trajectories, _table, use_dictionary=REPEATING)


def write_table(
    path: Path,
    schema: pa.Schema,
    rows: Iterable[Row],
    table: Callable[[list[Row]], pa.Table] | None = None,
    *,
    at_once: int = ROWS_AT_ONCE,
    **options: Any,
) -> int:
    """Stream rows into a Parquet file that is whole or not there, `at_once` in
    memory at a time; returns how many. `table`: makes a table of some rows, which
    are plain ones otherwise; `options`: the writer's.
    """
    remaining, count = iter(rows), 0
    make = table or (lambda batch: pa.Table.from_pylist(batch, schema))
    with whole_file(path, schema, **options) as writer:
        while batch := list(islice(remaining, at_once)):
            writer.write_table(make(batch))
            count += len(batch)
    return count


@contextmanager
def whole_file(path: Path, schema: pa.Schema, **options: Any) -> Iterator[pq.ParquetWriter]:
    """One Parquet file that is there whole, with a checksum of its bytes, or not at all. A
    full disk is an `OutsideFailure`.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_writer(draft, schema, **options) as writer:
            yield writer
            writer.add_key_value_metadata(PLACE)
        seal(draft)
        draft.replace(path)
    except OSError as error:
        raise as_user_error(error, path) from error
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def open_writer(path: Path, schema: pa.Schema, **options: Any) -> Iterator[pq.ParquetWriter]:
    """A writer that is closed once. pyarrow's own is closed again when it is collected, and
    prints the traceback of a full disk after what was said of it.
    """
    writer = pq.ParquetWriter(path, schema, compression="zstd", **options)
    try:
        yield writer
    finally:
        try:
            writer.close()
        finally:
            writer.is_open = False


def _table(runs: Sequence[Trajectory]) -> pa.Table:
    """Some trajectories as a table, column by column: several times as fast as row by row."""
    columns = _columns(runs, [name for name in SCHEMA.names if name != "steps"])
    columns["rewards"] = [list(run.rewards.items()) for run in runs]
    steps = [step for run in runs for step in run.steps]
    starts = pa.array([0, *accumulate(len(run.steps) for run in runs)], pa.int32())
    made = {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    made["steps"] = pa.ListArray.from_arrays(starts, _steps(steps), type=SCHEMA.field("steps").type)
    return pa.Table.from_arrays([made[name] for name in SCHEMA.names], schema=SCHEMA)


def _columns(records: Sequence[Record], names: Sequence[str]) -> dict[str, list[Any]]:
    """Fields of records, each as a list."""
    columns = map(list, zip(*map(attrgetter(*names), records), strict=True))
    return dict(zip(names, columns, strict=True)) if records else {name: [] for name in names}


def _steps(steps: Sequence[Step]) -> pa.StructArray:
    columns = _columns(steps, [field.name for field in STEP])
    columns["tool_calls"] = [[dict(call) for call in calls] for calls in columns["tool_calls"]]
    made = [column(columns[field.name], field.type) for field in STEP]
    return pa.StructArray.from_arrays(made, fields=list(STEP))


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array. Lists of numbers go through numpy, which is several
    times faster than item by item.
    """
    if not pa.types.is_list(kind) or not pa.types.is_primitive(kind.value_type):
        return pa.array(values, kind)
    parts = [() if cell is None else cell for cell in values]
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int32)
    number = kind.value_type.to_pandas_dtype()
    flat = np.fromiter(chain.from_iterable(parts), number, int(offsets[-1]))
    return pa.ListArray.from_arrays(
        pa.array(offsets),
        pa.array(flat, kind.value_type),
        type=kind,
        mask=pa.array([cell is None for cell in values], pa.bool_()),
    )


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """Stream trajectories of one file, a few hundred in memory at a time.
    Raises `OutsideFailure` at one that is broken.
    """
    for number, row in enumerate(read_rows(path)):
        row["rewards"] = dict(row["rewards"] or [])
        try:
            trajectory = Trajectory.model_validate(row)
        except ValidationError as error:
            raise OutsideFailure(
                f"row {number} of {path} is no run ({first_error(error)}); make it again"
            ) from None
        yield trajectory


def read_rows(path: Path, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Stream plain rows with only the named columns: what a count needs, without the steps.
    Raises `UserError` for a file that is missing, `OutsideFailure` for one that is broken.
    """
    done = 0
    with open_whole(path) as file:
        batches = file.iter_batches(ROWS_AT_ONCE, columns=columns)
        while (batch := _next(path, batches, done)) is not None:
            yield from batch
            done += len(batch)


def _next(path: Path, batches: Iterator[Any], done: int) -> list[dict[str, Any]] | None:
    """The next rows, `None` at the end."""
    try:
        batch = next(batches, None)
        return None if batch is None else batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: no UTF-8
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OutsideFailure(
            f"{path} is broken from row {done} on ({reason[:200]}); {CURE}"
        ) from error


def holds_values(path: Path, column: str) -> bool:
    """Whether a column of a file (`steps.list.element.text`) holds a value that
    is not null, told without reading it.

    Where the file does not say, `True`.
    """
    with open_whole(path) as file:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            for place in range(group.num_columns):
                part = group.column(place)
                if part.path_in_schema == column and (
                    part.statistics is None or part.statistics.num_values
                ):
                    return True
    return False


def open_whole(path: Path) -> pq.ParquetFile:
    """A Parquet file of ours whose checksum is right; that one carries none is said.
    Raises `UserError` for a file that is missing, `OutsideFailure` for one that is broken.
    """
    try:
        require_stored(path)
        return pq.ParquetFile(source(path))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except (pa.ArrowException, OSError) as error:
        raise OutsideFailure(
            f"{path} is not a Parquet file, or was cut off; give another one, or make it again"
        ) from error


def require_stored(path: Path) -> bool:
    """Whether a Parquet file is one of ours. Raises `OutsideFailure` where its checksum is
    wrong; that stored runs carry none is said. A file that cannot be opened raises as it does.
    """
    if require_whole(path):
        return True
    schema = (pq.read_schema(source(path)).metadata or {}).get(NAME, b"")
    if schema.startswith(RUNS):
        tell_unchecked(path)
    return bool(schema)
