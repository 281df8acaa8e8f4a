"""Logs of runs, however they are given: a case folder, a Parquet file of
trajectories, a folder of them, or a foreign log.

0. What is no table of our own goes through the readers (`forensics.readers`)
   and is copied; what they could not read is told.
1. A case's runs with actions refused, or steered, are left out.
2. Runs of one world are taken (the open one unless channels are named), and of
   a log with runs of several policies those of the one that is named, where
   there are any.
3. A file that is wanted whole is read where it lies; of others the wanted runs
   are copied.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from forensics.errors import UserError
from forensics.phrases import plural, printable
from forensics.records import Trajectory, content_hash
from forensics.records.checksum import source
from forensics.records.given_files import require_inside
from forensics.records.tables import (
    holds_values,
    read_rows,
    read_trajectories,
    write_trajectories,
)

ALTERED: Final = re.compile(r"(before|after-\d+)-altered-")


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """The stored trajectories of one request; iterating streams them from disk, again and again."""

    key: str
    paths: tuple[Path, ...]

    def __iter__(self) -> Iterator[Trajectory]:
        for path in self.paths:
            yield from read_trajectories(path)

    def rows(self, *columns: str) -> Iterator[dict[str, Any]]:
        """Plain rows of a few columns, without reading the steps."""
        for path in self.paths:
            yield from read_rows(path, list(columns))

    def holds(self, column: str) -> bool:
        """Whether any row has a value in a column, read from the files' statistics."""
        return any(holds_values(path, column) for path in self.paths)


@dataclass(frozen=True, kw_only=True)
class OpenedLog:
    """Chosen runs. `runs`: how many. `own`: whether the named policy made them;
    `policies`: the names of those that did. `unreadable`: what a foreign log held
    that could not be read.
    """

    rollouts: Rollouts
    runs: int
    policies: tuple[str, ...]
    own: bool
    unreadable: str | None = None


def own_tables(place: Path, *, altered: bool = False) -> list[Path]:
    """The Parquet files of trajectories of a file, a folder or a case folder, in
    the order of their names; none where it is a foreign log. `altered`: with a
    case's runs with actions refused.
    """
    folder = place / "trajectories" if (place / "trajectories").is_dir() else place
    found = [folder] if folder.is_file() else sorted(folder.glob("*.parquet"))
    for path in found:
        if path != place:
            require_inside(path, place)
        try:
            schema = (pq.read_schema(source(path)).metadata or {}).get(b"forensics.schema", b"")
        except (pa.ArrowException, OSError):
            return []
        if not schema.startswith(b"trajectory/"):
            return []
    return found if altered else [path for path in found if not ALTERED.match(path.name)] or found


def log_tables(place: Path, copies: Path) -> tuple[list[Path], str | None]:
    """The log's Parquet files of trajectories, and what of a foreign one could not
    be read. `copies`: the folder of copies, emptied first. Raises `UserError`
    where no run is found.
    """
    rmtree(copies, ignore_errors=True)
    if own := own_tables(place):
        return own, None
    from forensics.readers import Unreadable, read_logs

    refused: list[Unreadable] = []

    def readable() -> Iterator[Trajectory]:
        for one in read_logs(place):
            if isinstance(one, Unreadable):
                refused.append(one)
            else:
                yield one

    copy = copies / "read.parquet"
    found = write_trajectories(copy, readable())
    first = refused[0] if refused else None
    if not found:
        why = f"{first.path.name}, {first.where}: {first.reason}" if first else "it is empty"
        raise UserError(
            f"{place} holds no run that can be read ({why}); give trajectories of ours, or a log"
            " that a reader knows"
        )
    if first is None:
        return [copy], None
    return [copy], (
        f"{plural(len(refused), 'part')} of the log could not be read, the first being "
        f"{printable(first.path.name)} ({printable(first.reason, 200)})."
    )


def open_rollouts(
    place: Path, *, policy: str | None = None, without: Sequence[str] = (), copies: Path
) -> OpenedLog:
    """The runs of a log. `policy`: identity of the checkpoint whose own runs are
    taken where there are any. `copies`: where files that are wanted in part are
    copied.

    Raises `UserError` where nothing is left, and where two runs have one id.
    """
    world = tuple(sorted(without))
    files, unreadable = log_tables(place, copies)
    heads = {path: list(read_rows(path, ["id", "policy", "without"])) for path in files}
    here = {
        path: [row for row in rows if tuple(sorted(row["without"] or ())) == world]
        for path, rows in heads.items()
    }
    if not any(here.values()):
        told = f"without {', '.join(world)}" if world else "in the open world"
        raise UserError(
            f"{place} has no run {told}; give a log that has, or name the scrubbed channels"
        )
    own = {path: [row for row in rows if row["policy"] == policy] for path, rows in here.items()}
    made_here = any(own.values())
    chosen = {path: rows for path, rows in (own if made_here else here).items() if rows}
    ids = Counter(row["id"] for rows in chosen.values() for row in rows)
    if twice := [name for name, count in ids.items() if count > 1]:
        raise UserError(
            f"{place} has two runs with the id {twice[0]}; give each run an id of its own"
        )
    paths = []
    for number, (path, rows) in enumerate(chosen.items()):
        if len(rows) < len(heads[path]):
            source, path, wanted = path, copies / f"{number:04d}.parquet", {r["id"] for r in rows}
            write_trajectories(path, (run for run in read_trajectories(source) if run.id in wanted))
        paths.append(path)
    digests = []
    for path in paths:
        with open(path, "rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return OpenedLog(
        rollouts=Rollouts(key=content_hash(digests), paths=tuple(paths)),
        own=made_here,
        unreadable=unreadable,
        runs=ids.total(),
        policies=tuple(sorted({row["policy"] for rows in chosen.values() for row in rows})),
    )
