"""Logs that other people's tools wrote: what a reader is, and which reader reads
which file, in an order that never changes.

A reader is a plug-in (entry points `forensics.readers` name objects that are
`Reader`s). It turns a file into trajectories one by one, and tells what it
could not read by name and line, so that nothing is silently dropped: the rest
goes on.

1. A folder is walked in the order of its names, links to folders included, each
   folder once. Hidden files are left out.
2. A file goes to the first reader that recognises it: readers in the order of
   their `rank` (highest first, 0 where a reader has none), then of their names.
   Shapes that many tools write have a low rank.
3. A file that nobody recognises is unpacked where it is an archive; else it is
   told as `Unreadable`, never passed over. A reader may have
   `accompanies(path)`: such a file of a folder belongs to a log of that format
   (a table of results, a report) and is read with it, if at all. A file that
   the user names is always read.
4. A run whose id was there before, in another file, gets a number behind it, so
   that ids are unique.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from forensics.errors import UserError
from forensics.plugins import installed
from forensics.readers.archives import is_archive, unpacked
from forensics.readers.content import LIMITS, Limits, Unreadable, UnreadableContent, read_head
from forensics.readers.json_rows import Row, in_words, read_rows, trajectories_from
from forensics.records import Trajectory

Found = Iterator[Trajectory | Unreadable]
WHOLE = "the whole file"


class LogReader(Protocol):
    """One format. `version` says which shapes of the format are known. May have
    a `rank` and `accompanies`.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...

    def recognises(self, path: Path, head: bytes, /) -> bool:
        """Whether this file is of the format, from its name and its first bytes
        (of its content, where compressed).
        """
        ...

    def read(self, path: Path, /) -> Found:
        """Every run in the file. Never raises for what is in the file."""
        ...


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A format by its functions. `run` makes a trajectory of one of the `rows`
    (`None`: the row is no run); a format that is no rows has `reads` instead,
    which gives every run of a file.

    `rank`: readers with a higher one are asked first. `accompanies`: whether a
    file belongs to a log of this format and is read with it.
    """

    name: str
    version: str
    recognises: Callable[[Path, bytes], bool]
    rows: Callable[[Path], Iterator[Row | Unreadable]] = read_rows
    run: Callable[[Row], Trajectory | None] | None = None
    reads: Callable[[Path], Found] | None = None
    rank: int = 0
    accompanies: Callable[[Path], bool] | None = None

    def read(self, path: Path) -> Found:
        """Every run in the file, and what could not be read."""
        if self.run is not None:
            return trajectories_from(path, self.rows(path), self.run)
        assert self.reads is not None, f"the reader {self.name} has neither `run` nor `reads`"
        return self.reads(path)


@dataclass(frozen=True)
class _Search:
    """One look through a log: `shown` and `held` are the name and the place of
    an archive that was unpacked.
    """

    readers: tuple[LogReader, ...]
    limits: Limits
    forced: bool
    shown: Path = Path()
    held: Path | None = None
    depth: int = 0

    def told(self, path: Path) -> Path:
        """The path as the user knows it."""
        return path if self.held is None else self.shown / path.relative_to(self.held)

    def unreadable(self, path: Path, reason: str, where: str = WHOLE) -> Unreadable:
        return Unreadable(path=self.told(path), where=where, reason=reason)

    def inside(self, archive: Path, folder: Path) -> "_Search":
        return replace(self, shown=self.told(archive), held=folder, depth=self.depth + 1)


def read_logs(path: Path, reader: str | None = None, limits: Limits = LIMITS) -> Found:
    """Every run in a file, a folder or an archive, streaming; `Unreadable` for
    what could not be read.

    `reader` names the one format to read everything as. Raises `UserError`
    where the path does not exist, a folder holds no file, or there is no such
    reader.
    """
    readers = installed_readers() if reader is None else (_named(reader),)
    if not path.exists():
        raise UserError(f"{path} does not exist; give a log file or a folder of logs")
    if path.is_dir() and next(files_of(path), None) is None:
        raise UserError(f"{path} holds no file; give a log file or a folder of logs")
    return _unique(_all(path, _Search(readers, limits, reader is not None)))


def files_to_open(path: Path, reader: str | None = None) -> list[Path]:
    """The files of a log that `read_logs` reads, in its order: those that only
    go along with others are left out.
    """
    readers = installed_readers() if reader is None else (_named(reader),)
    return [path] if not path.is_dir() else list(_read_themselves(path, readers))


def open_files(paths: Iterable[Path], reader: str | None = None, limits: Limits = LIMITS) -> Found:
    """Every run in some of a log's files (`files_to_open`); ids are told apart
    within these files only.
    """
    search = _Search(
        installed_readers() if reader is None else (_named(reader),), limits, reader is not None
    )
    return _unique(found for path in paths for found in _one(path, search))


@lru_cache(maxsize=1)
def installed_readers() -> tuple[LogReader, ...]:
    """Every installed reader in the order in which they are asked."""
    found: tuple[LogReader, ...] = installed("forensics.readers")
    return tuple(sorted(found, key=lambda reader: (-getattr(reader, "rank", 0), reader.name)))


def files_of(folder: Path) -> Iterator[Path]:
    """The files below a folder, in the order of their names, without hidden ones."""
    yield from _walk(folder, frozenset())


def find_reader(path: Path, readers: Sequence[LogReader], head: bytes) -> LogReader | None:
    """The first reader that recognises a file."""
    return next((reader for reader in readers if _recognises(reader, path, head)), None)


def _named(name: str) -> LogReader:
    readers = installed_readers()
    chosen = [reader for reader in readers if reader.name == name]
    if not chosen:
        raise UserError(
            f"unknown reader '{name}'; known:"
            f" {', '.join(sorted(r.name for r in readers)) or 'none'}"
        )
    return chosen[0]


def _walk(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    place = folder.resolve()
    if place in above:  # a link back up
        return
    try:
        paths = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError:
        yield folder  # told as what cannot be read
        return
    for path in paths:
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _walk(path, above | {place})
        else:
            yield path


def _all(path: Path, search: _Search) -> Found:
    if not path.is_dir():
        yield from _one(path, search)
        return
    for file in _read_themselves(path, search.readers):
        yield from _one(file, search)


def _read_themselves(folder: Path, readers: Sequence[LogReader]) -> Iterator[Path]:
    """The files of a folder but for those that belong to another log of it."""
    return (
        file
        for file in files_of(folder)
        if not any(_accompanies(reader, file) for reader in readers)
    )


def _one(path: Path, search: _Search) -> Found:
    try:
        if not path.is_file():
            raise UnreadableContent("it is no file, or may not be read")
        head = read_head(path, search.limits)
        if not head:
            raise UnreadableContent("it is empty")
    except UnreadableContent as refused:
        yield search.unreadable(path, str(refused))
        return
    chosen = find_reader(path, search.readers, head)
    if chosen is None and is_archive(path, head):
        yield from _archive(path, search)
    elif chosen is not None or search.forced:
        yield from _read(chosen or search.readers[0], path, search)
    else:
        yield search.unreadable(path, "no reader knows its format")


def _read(reader: LogReader, path: Path, search: _Search) -> Found:
    try:
        for found in reader.read(path):
            yield (
                search.unreadable(found.path, found.reason, found.where)
                if isinstance(found, Unreadable)
                else found
            )
    except Exception as error:  # a reader of a stranger may fail: the other files go on
        yield search.unreadable(
            path, f"the reader {reader.name} {reader.version} failed: {in_words(error)}"
        )


def _archive(path: Path, search: _Search) -> Found:
    if search.depth >= search.limits.nesting:
        yield search.unreadable(
            path, f"archives are nested deeper than {search.limits.nesting} levels"
        )
        return
    with unpacked(path, search.limits) as (folder, problems):
        for where, reason in problems:
            yield search.unreadable(path, reason, where)
        yield from _all(folder, search.inside(path, folder))


def _recognises(reader: LogReader, path: Path, head: bytes) -> bool:
    try:
        return reader.recognises(path, head)
    except Exception:  # what a reader stumbles over is not of its format
        return False


def _accompanies(reader: LogReader, path: Path) -> bool:
    accompanies = getattr(reader, "accompanies", None)
    return accompanies is not None and bool(accompanies(path))


def _unique(runs: Found) -> Found:
    seen: dict[str, int] = {}
    for run in runs:
        if isinstance(run, Trajectory):
            seen[run.id] = count = seen.get(run.id, 0) + 1
            run = run if count == 1 else run.model_copy(update={"id": f"{run.id}~{count}"})
        yield run
