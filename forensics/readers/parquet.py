"""Parquet files of strangers, row by row, with the columns that are asked for."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from forensics.readers.parsing import Row
from forensics.readers.reading import Unreadable

MAGIC = b"PAR1"
ROWS_AT_ONCE = 32  # a row may be a whole run


def columns_of(path: Path, head: bytes) -> tuple[str, ...]:
    """The names of a file's columns, in order; none where it is no Parquet file."""
    return tuple(schema.names) if (schema := _schema(path, head)) is not None else ()


def metadata_of(path: Path, head: bytes) -> dict[bytes, bytes]:
    """What a file says about itself; empty where it is no Parquet file."""
    schema = _schema(path, head)
    return dict(schema.metadata or {}) if schema is not None else {}


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Iterator[Row | Unreadable]:
    """The rows of a file, counted from 0; columns that it does not have are left out."""
    done = 0
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            chosen = None if columns is None else [name for name in columns if name in names]
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=chosen):
                for value in batch.to_pylist():
                    yield Row(where=f"row {done}", value=value)
                    done += 1
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        yield Unreadable(path=path, where=f"from row {done}", reason=f"the file is broken ({reason})")


def _schema(path: Path, head: bytes) -> pa.Schema | None:
    if not head.startswith(MAGIC):
        return None
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError):
        return None
