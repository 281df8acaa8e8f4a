"""Scored trajectories as rows of a Parquet file: places, columns and, of a log without token ids, the ids."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forensics.errors import MissingInput
from forensics.records import Trajectory
from forensics.records.files import as_user_error
from probes.scored import Scored
from probes.scoring.retokenise import with_ids

PLACES = {"step": np.int64, "place": np.int64, "token": np.int64}


class Writer:
    """One Parquet file that is there whole or not at all. The columns are those of the first rows."""

    def __init__(self, path: Path) -> None:
        self._path, self._draft = path, path.with_name(f".{path.name}.draft")
        self._writer: Any = None

    def write(self, rows: list[dict[str, Any]]) -> None:
        schema = _schema([name for name in rows[0] if name not in _schema(()).names])
        try:
            if self._writer is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._writer = pq.ParquetWriter(self._draft, schema, compression="zstd")
            self._writer.write_table(pa.Table.from_pylist(rows, schema))
        except OSError as error:
            raise as_user_error(error, self._path) from error

    def finish(self) -> None:
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._draft, _schema(()))
        self._writer.close()
        self._draft.replace(self._path)

    def abandon(self) -> None:
        """What is not finished goes."""
        if self._draft.exists():
            self._writer.close()
            self._draft.unlink()


def _schema(names: Sequence[str]) -> pa.Schema:
    whole = [(name, pa.list_(pa.int64())) for name in (*PLACES, "unread")]
    return pa.schema([("id", pa.string()), *whole, ("retokenised", pa.bool_()),
                      ("ids", pa.list_(pa.list_(pa.int64()))), *((name, pa.list_(pa.float64())) for name in names)])


def row_of(scored: Scored, columns: dict[str, np.ndarray], standard: bool) -> dict[str, Any]:
    """`ids`: of each step, where the log does not have them; once is enough."""
    places = {name: getattr(scored, name) for name in PLACES}
    told = scored.retokenised and standard
    return {"id": scored.trajectory.id, **places, "unread": sorted(scored.unread), "retokenised": scored.retokenised,
            "ids": [step.token_ids for step in scored.trajectory.steps] if told else None, **columns}


def scored_of(trajectory: Trajectory, row: dict[str, Any]) -> Scored:
    """A row beside its trajectory. Raises `MissingInput` where it is another's."""
    if row.pop("id") != trajectory.id:
        raise MissingInput(f"The stored scores are not those of trajectory {trajectory.id}.",
                           "Delete the folder `scores` of the case; it is computed again.")
    places = {name: np.array(row.pop(name), dtype=kind) for name, kind in PLACES.items()}
    unread, retokenised, ids = frozenset(row.pop("unread")), row.pop("retokenised"), row.pop("ids")
    return Scored(trajectory=with_ids(trajectory, ids) if ids else trajectory, unread=unread, retokenised=retokenised,
                  **places, columns={name: np.array(values, dtype=np.float64) for name, values in row.items()})
