"""The Parquet tables of a scan as Inspect Scout keeps them, written in a stream."""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_AT_ONCE: Final = 512
LETTERS_AT_ONCE: Final = 8_000_000  # over all tables
_TEXT: Final = pa.large_string()
_OTHERS: Final = {
    "transcript_task_repeat": pa.int64(), "transcript_success": pa.bool_(), "transcript_message_count": pa.int64(),
    "transcript_total_time": pa.float64(), "transcript_total_tokens": pa.int64(),
    "transcript_trust_content": pa.bool_(), "scanner_version": pa.int64(), "scan_total_tokens": pa.int64(),
}
COLUMNS: Final = (  # in Scout's order
    "transcript_id", "transcript_source_type", "transcript_source_id", "transcript_source_uri", "transcript_date",
    "transcript_task_set", "transcript_task_id", "transcript_task_repeat", "transcript_agent", "transcript_agent_args",
    "transcript_model", "transcript_model_options", "transcript_score", "transcript_score_explanation",
    "transcript_success", "transcript_message_count", "transcript_total_time", "transcript_total_tokens",
    "transcript_error", "transcript_limit", "transcript_trust_content", "transcript_metadata",
    "scan_id", "scan_tags", "scan_metadata", "scan_git_origin", "scan_git_version", "scan_git_commit",
    "scanner_key", "scanner_name", "scanner_version", "scanner_package_version", "scanner_file", "scanner_params",
    "input_type", "input_ids", "input", "input_data", "uuid", "label", "value", "value_type", "answer", "explanation",
    "metadata", "message_references", "event_references", "scan_error", "scan_error_traceback", "scan_error_type",
    "validation_target", "validation_result", "validation_predicate", "validation_split", "scan_total_tokens",
    "scan_model_usage", "scan_events", "timestamp",
)
SCHEMA: Final = pa.schema([(name, _OTHERS.get(name, _TEXT)) for name in COLUMNS])
_ALWAYS: Final = {
    "input_type": "transcript", "event_references": "[]", "scan_total_tokens": 0, "scan_model_usage": "{}",
    "scan_events": "[]",
}


class Tables:
    """One file for each scanner, all written at once with bounded memory."""

    def __init__(self, folder: Path, keys: Iterable[str]) -> None:
        self._writers = {key: pq.ParquetWriter(folder / f"{key}.parquet", SCHEMA, compression="zstd") for key in keys}
        self._rows: dict[str, list[dict[str, Any]]] = {key: [] for key in self._writers}
        self._letters = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._write()
        for writer in self._writers.values():
            writer.close()

    def add(self, key: str, row: dict[str, Any]) -> None:
        """A row of one table; columns that it does not name are null."""
        self._rows[key].append({**_ALWAYS, **row})
        self._letters += len(row["input"])
        if len(self._rows[key]) >= ROWS_AT_ONCE or self._letters >= LETTERS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        for key, rows in self._rows.items():
            if rows:
                self._writers[key].write_table(_table(rows))
                rows.clear()
        self._letters = 0


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as a table; a lone surrogate, which UTF-8 cannot hold, is spelled out."""
    try:
        return pa.Table.from_pylist(rows, SCHEMA)
    except UnicodeEncodeError:
        return pa.Table.from_pylist([{name: _spelled(value) for name, value in row.items()} for row in rows], SCHEMA)


def _spelled(value: Any) -> Any:
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
