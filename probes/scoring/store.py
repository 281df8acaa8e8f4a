"""Columns kept beside a case's logs, so that a second instrument costs nothing.

1. A request is a log, two checkpoints, settings, `most_tokens` and readouts. Its address is the content hash of what
   its numbers rest on: no path, no time.
2. The standard columns and each readout have files of their own, one for each part of the log (Parquet, written
   atomically). So an instrument that asks for one readout more has that one computed, in one pass over the parts that
   lack it, and a case that was killed goes on where it stopped.
3. The models are loaded when something is missing, and not before.

A readout that is to be stored needs an attribute `identity`, a text that says everything its numbers depend on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forensics.case import Case, Rollouts
from forensics.errors import MissingInput
from forensics.protocols import SamplingSettings
from forensics.records import content_hash
from forensics.records.files import as_user_error
from forensics.records.tables import read_rows, read_trajectories
from probes.scored import Readout, Scored

ROWS_AT_ONCE = 256
VERSION = 1  # raised when the numbers of a standard column change
PLACES = {"step": np.int64, "place": np.int64, "token": np.int64}
Load = Callable[[], Any]  # a `probes.scoring.log.Scorable`


@dataclass(frozen=True, kw_only=True)
class Side:
    """A checkpoint: its content hash, and how it is loaded."""

    identity: str
    load: Load


def scored_log(
    case: Case, side: str = "after-0", reference: str | None = "before", *, readouts: Sequence[Readout] = (),
    most_tokens: int | None = None, without: tuple[str, ...] = (),
) -> Iterator[Scored]:
    """The runs of `side` (in the world without some channels), scored under it and under `reference`.

    Under the settings of the case. Raises `MissingInput` where the case lacks a log or a checkpoint.
    """
    log = case.rollouts(side, without=without)
    sides = [_side(case, name) for name in (side, reference) if name is not None]
    return stored_scores(
        case.folder / "scores", log, sides[0], sides[1] if len(sides) > 1 else None,
        settings=case.budget.settings, readouts=readouts, most_tokens=most_tokens,
        progress=lambda done, of: case.progress(f"{side} scored", done, of),
    )


def stored_scores(
    folder: Path, log: Rollouts, policy: Side, reference: Side | None, *, settings: SamplingSettings,
    readouts: Sequence[Readout] = (), most_tokens: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Iterator[Scored]:
    """The trajectories of a log with all columns, from `folder` where they are there, computed where they are not."""
    request = {
        "version": VERSION, "log": log.key, "policy": policy.identity, "settings": settings.content(),
        "reference": reference.identity if reference else None, "most_tokens": most_tokens,
    }
    groups = [_Group(folder, content_hash(request), None)]
    groups += [_Group(folder, content_hash({**request, "readout": _identity(one)}), one) for one in readouts]
    models = _Loaded(policy, reference)
    for number, source in enumerate(log.paths):
        progress(number, len(log.paths))
        missing = [group for group in groups if not group.path(number).exists()]
        if missing:
            _compute(source, number, missing, models, settings, most_tokens)
        yield from _read(source, [group.path(number) for group in groups])
    progress(len(log.paths), len(log.paths))


@dataclass(frozen=True)
class _Group:
    """Columns that stand in one file: the standard ones (`readout` `None`), or those of a readout."""

    folder: Path
    key: str
    readout: Readout | None

    def path(self, part: int) -> Path:
        return self.folder / f"{self.key}-{part:04d}.parquet"

    def columns(self, scored: Scored, others: set[str]) -> dict[str, np.ndarray]:
        """Those of `scored` that belong here. `others`: the names of all readouts' columns."""
        if self.readout is None:
            return {name: column for name, column in scored.columns.items() if name not in others}
        return {name: scored.columns[name] for name in self.readout.names}


class _Loaded:
    """Both models, loaded once, when the first of them is wanted."""

    def __init__(self, policy: Side, reference: Side | None) -> None:
        self._sides = policy, reference
        self._found: tuple[Any, Any] | None = None

    def both(self) -> tuple[Any, Any]:
        if self._found is None:
            policy, reference = self._sides
            ours = policy.load()
            same = reference is not None and reference.identity == policy.identity
            self._found = ours, ours if same else reference.load() if reference else None
        return self._found


def _compute(
    source: Path, number: int, missing: Sequence[_Group], models: _Loaded, settings: SamplingSettings,
    most_tokens: int | None,
) -> None:
    """One pass over a part of the log for all groups of columns that lack it."""
    from probes.scoring.log import score_log

    readouts = [group.readout for group in missing if group.readout is not None]
    others = {name for readout in readouts for name in readout.names}
    policy, reference = models.both()
    scores = score_log(policy, reference, read_trajectories(source), settings=settings, readouts=readouts,
                       most_tokens=most_tokens)
    first = next(scores, None)
    writers = {group: _Writer(group.path(number)) for group in missing}
    try:
        while first is not None:
            batch = [first, *islice(scores, ROWS_AT_ONCE - 1)]
            for group, writer in writers.items():
                writer.write([_row(scored, group.columns(scored, others)) for scored in batch])
            first = next(scores, None)
        for writer in writers.values():
            writer.finish()
    finally:
        for writer in writers.values():
            writer.abandon()


class _Writer:
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
                      *((name, pa.list_(pa.float64())) for name in names)])


def _row(scored: Scored, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    places = {name: getattr(scored, name) for name in PLACES}
    return {"id": scored.trajectory.id, **places, "unread": sorted(scored.unread),
            "retokenised": scored.retokenised, **columns}


def _read(source: Path, paths: Sequence[Path]) -> Iterator[Scored]:
    tables = [read_rows(path) for path in paths]
    for trajectory, first, *others in zip(read_trajectories(source), *tables, strict=True):
        found = _scored(trajectory, first)
        columns = {name: column for row in others for name, column in _scored(trajectory, row).columns.items()}
        yield replace(found, columns={**found.columns, **columns}) if columns else found


def _scored(trajectory: Any, row: dict[str, Any]) -> Scored:
    if row.pop("id") != trajectory.id:
        raise MissingInput(f"The stored scores are not those of trajectory {trajectory.id}.",
                           "Delete the folder `scores` of the case; it is computed again.")
    places = {name: np.array(row.pop(name), dtype=kind) for name, kind in PLACES.items()}
    unread, retokenised = frozenset(row.pop("unread")), row.pop("retokenised")
    return Scored(trajectory=trajectory, unread=unread, retokenised=retokenised, **places,
                  columns={name: np.array(values, dtype=np.float64) for name, values in row.items()})


def _identity(readout: Any) -> str:
    identity = getattr(readout, "identity", None)
    if not isinstance(identity, str):
        raise ValueError(f"{type(readout).__name__} has no `identity`, so its columns cannot be stored; give it one "
                         "that says everything they depend on, or use score_log")
    return identity


def _side(case: Case, name: str) -> Side:
    """A side of the case. Both models are wanted at once, so this is not the one that the case keeps."""
    if name not in case.policies:
        raise MissingInput(f"There is no policy `{name}` to score with.", "Give its checkpoint.")
    if case.pair is None:
        loaded = case.policies[name]()
        return Side(identity=loaded.identity, load=lambda: loaded)
    known = case.pair.before if name == "before" else case.pair.after[int(name.split("-")[1])]
    return Side(identity=known.identity, load=case.policies[name])
