"""Logs that other people's tools wrote: what a reader is, and which reader reads
which file, in an order that never changes.

A reader is a plug-in (entry points `forensics.readers` name objects that are
`Reader`s, or functions that give several). It turns a file into trajectories one by
one, and tells what it could not read by name and line, so that nothing is silently
dropped: the rest goes on.

1. A folder is walked in the order of its names, links to folders included, each
   folder once. A hidden file is told only where a reader knows it.
2. A file goes to the first reader that recognises it: readers in the order of
   their `rank` (highest first, 0 where a reader has none), then of their names.
   Shapes that many tools write have a low rank. JSON that nobody recognises by a short
   head is shown with a longer one: its first turn may be long.
3. A file that nobody recognises is unpacked where it is an archive; else it is
   told as `Unreadable`, never passed over; of a format that is known and not read, what
   to give instead (`unknown_files`). So is a reader that fails on looking
   at a file, whoever reads the file then. A reader may have
   `accompanies(path)`: such a file of a folder belongs to a log of that format
   (a table of results, a report) and is read with it, if at all. A file that
   the user names is always read.
4. A run whose id was there before, in another file, gets a number behind it, so
   that ids are unique.
5. A reader that gives an outcome outside [0, 1] is refused: on such a scale every
   number behind it would be wrong.

Hidden files of a folder or an archive: which are looked at.

Agents keep their sessions in hidden places (`.codex/sessions`, `.claude/projects`). A hidden
file is read where a reader recognises it, named where its format is one that is not read
(`.aider.chat.history.md`), and neither named nor counted otherwise. What tools keep for
themselves (`field_names.toml`) is never looked at, our own drafts and caches among it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import lru_cache
from inspect import isfunction
from pathlib import Path
from typing import Protocol

from forensics.errors import UserError, stop_full
from forensics.plugins import code_of, installed
from forensics.readers.archives import is_archive, unpacked
from forensics.readers.content import (
    HEAD,
    LIMITS,
    LONG_HEAD,
    WHOLE,
    Unreadable,
    UnreadableContent,
    read_head,
)
from forensics.readers.json_rows import Row, Rows, Runs, in_words, read_rows, trajectories_from
from forensics.readers.unknown_files import seen_in, why_unread
from forensics.readers.values import field_names
from forensics.records import Trajectory
from forensics.records.given_files import address, leads_out

_LEFT_OUT = re.compile("|".join(map(translate, field_names("hidden").left_out)))
UNKNOWN = "no reader knows its format"
OUTSIDE = "it is a link out of the folder, which is not followed; give what it leads to"


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

    def read(self, path: Path, /) -> Runs:
        """Every run in the file. Never raises for what is in the file."""
        ...


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A format by its functions. `run` makes a trajectory of one of the `rows`
    (`None`: the row is no run); a format that is no rows has `reads` instead,
    which gives every run of a file.

    `parts`: the rows that one of the `rows` holds, where a row holds several runs.
    `counted`: the log does not number the runs of a task, so that each policy's are
    numbered in their order (`sample`). `rank`: readers with a higher one are asked
    first. `accompanies`: whether a file belongs to a log of this format and is
    read with it.
    """

    name: str
    version: str
    recognises: Callable[[Path, bytes], bool]
    rows: Callable[[Path], Rows] = read_rows
    parts: Callable[[Row], Iterable[Row]] | None = None
    run: Callable[[Row], Trajectory | None] | None = None
    reads: Callable[[Path], Runs] | None = None
    counted: bool = False
    rank: int = 0
    accompanies: Callable[[Path], bool] | None = None

    def read(self, path: Path) -> Runs:
        """Every run in the file, and what could not be read."""
        if self.reads is not None:
            return self.reads(path)
        assert self.run is not None, f"the reader {self.name} has neither `run` nor `reads`"
        rows = self.rows(path) if self.parts is None else _parted(self.rows(path), self.parts)
        found = trajectories_from(path, rows, self.run)
        return numbered(found) if self.counted else found


class _OutOfRange(UserError):
    """A reader gave an outcome outside [0, 1]."""


@dataclass(frozen=True)
class _Search:
    """One look through a log: `shown` and `held` are the name and the place of
    an archive that was unpacked, `root` is the folder that no link may lead out of;
    `read_by` counts, by reader, the files that gave a run.
    """

    readers: tuple[LogReader, ...]
    forced: bool = False
    shown: Path = Path()
    held: Path | None = None
    depth: int = 0
    names_files: bool = False
    root: Path | None = None
    read_by: dict[str, int] = field(default_factory=dict)

    def told(self, path: Path) -> Path:
        """The path as the user knows it."""
        return path if self.held is None else self.shown / path.relative_to(self.held)

    def files(self, folder: Path) -> Iterator[Path]:
        """The files of a folder but for those that belong to another log of it."""
        return (
            file
            for file in files_of(folder)
            if not any(self._goes_along(file, reader) for reader in self.readers)
        )

    def _goes_along(self, file: Path, reader: LogReader) -> bool:
        """Whether a file only accompanies a log of this reader."""
        if (accompanies := getattr(reader, "accompanies", None)) is None:
            return False
        try:
            return bool(accompanies(file))
        except Exception as error:
            module = getattr(accompanies, "__module__", None) or type(reader).__module__
            raise UserError(
                f"the reader {reader.name} {reader.version} cannot say whether {self.told(file)}"
                f" belongs to another file ({in_words(error)}); report it to the authors of"
                f" {code_of(module)}, or name the format with --reader"
            ) from error

    def hides(self, path: Path) -> bool:
        """Whether a file is hidden below what was given, or in its archive."""
        return is_hidden(path, self.root if self.held is None else self.held)

    def named(self, run: Trajectory, path: Path) -> Trajectory:
        """A run with the file that it was read from, where that was asked for."""
        if not self.names_files:
            return run
        return run.model_copy(update={"file": str(self.told(path))})

    def unreadable(self, path: Path, reason: str, where: str = WHOLE) -> Unreadable:
        return Unreadable(self.told(path), reason, where)

    def failed(self, reader: LogReader, path: Path, how: str, error: Exception) -> Unreadable:
        reason = f"the reader {reader.name} {reader.version} {how}: {in_words(error)}"
        return self.unreadable(path, reason)

    def inside(self, archive: Path, folder: Path) -> "_Search":
        return replace(self, shown=self.told(archive), held=folder, depth=self.depth + 1)


def read_logs(
    path: Path,
    reader: str | None = None,
    *,
    names_files: bool = False,
    read_by: dict[str, int] | None = None,
) -> Runs:
    """Every run in a file, a folder or an archive, streaming; `Unreadable` for
    what could not be read.

    `reader` names the one format to read everything as; `names_files`: each run says
    which file it was read from; `read_by` is told how many files each reader read a run
    from. Raises `UserError` where the path does not exist, a
    folder holds no file, or there is no such reader.
    """
    search = _Search(
        _named(reader),
        reader is not None,
        names_files=names_files,
        root=path,
        read_by={} if read_by is None else read_by,
    )
    if not path.exists() and (given := address(path)):
        raise UserError(
            f"{given} is an address, not a log on this machine; download it and give the file or"
            " the folder"
        )
    if not path.exists():
        raise UserError(f"{path} does not exist; give a log file or a folder of logs")
    if path.is_dir() and next(files_of(path), None) is None:
        raise UserError(f"{path} holds no file; give a log file or a folder of logs")
    return _unique(_all(path, search))


def _named(name: str | None) -> tuple[LogReader, ...]:
    """Every reader, or the one of this name."""
    readers = installed_readers()
    chosen = tuple(reader for reader in readers if name in (None, reader.name))
    if not chosen:
        known = ", ".join(sorted(reader.name for reader in readers)) or "none"
        raise UserError(f"unknown reader '{name}'; known: {known}")
    return chosen if name is None else chosen[:1]


@lru_cache(maxsize=1)
def installed_readers() -> tuple[LogReader, ...]:
    """Every installed reader in the order in which they are asked."""
    named = installed("forensics.readers")
    found = [reader for one in named for reader in (one() if isfunction(one) else (one,))]
    return tuple(sorted(found, key=lambda reader: (-getattr(reader, "rank", 0), reader.name)))


def files_of(
    folder: Path, above: frozenset[Path] = frozenset(), root: Path | None = None
) -> Iterator[Path]:
    """The files below a folder, in the order of their names, without what tools keep for
    themselves (`is_left_out`). A link out of the folder is given as it is, for whoever tells
    that it is not followed. `above`: the folders that lead to it; `root`: the first of them.
    """
    place = folder.resolve()
    if place in above:  # a link back up
        return
    try:
        paths = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError:
        yield folder  # told as what cannot be read
        return
    for path in paths:
        if is_left_out(path.name):
            continue
        if path.is_dir() and not leads_out(path, root or folder):
            yield from files_of(path, above | {place}, root or folder)
        else:
            yield path


def _all(path: Path, search: _Search) -> Runs:
    for file in search.files(path) if path.is_dir() else (path,):
        yield from _one(file, search)


def _one(path: Path, search: _Search) -> Runs:
    try:
        root = search.root
        if root is not None and root != path and leads_out(path, root) and path.exists():
            raise UnreadableContent(OUTSIDE)
        if not path.is_file():
            raise UnreadableContent("it is no file, or may not be read")
        head = read_head(path)
        if not head:
            raise UnreadableContent("it is empty")
    except UnreadableContent as refused:
        if not search.hides(path):
            yield search.unreadable(path, str(refused))
        return
    chosen, failures = _recognised(path, head, search)
    if chosen is None and len(head) == HEAD and head.lstrip()[:1] in (b"{", b"["):
        with suppress(UnreadableContent):
            chosen, failures = _recognised(path, read_head(path, LONG_HEAD), search)
    yield from failures
    why = why_unread(path, head) if chosen is None and not search.forced else ""
    if chosen is None and search.hides(path) and not why:
        return
    if chosen is None and is_archive(path, head):
        yield from _archive(path, search)
    elif chosen is not None or search.forced:
        yield from _read(chosen or search.readers[0], path, search)
    elif why:
        yield search.unreadable(path, why)
    else:
        yield replace(search.unreadable(path, UNKNOWN), seen=seen_in(path, head))


def _recognised(
    path: Path, head: bytes, search: _Search
) -> tuple[LogReader | None, list[Unreadable]]:
    """The first reader that knows a file by this head, and those that failed on it."""
    failures: list[Unreadable] = []
    for reader in search.readers:
        try:
            if reader.recognises(path, head):
                return reader, failures
        except Exception as error:  # a reader of a stranger may fail: the others are asked
            stop_full(error)
            failures.append(search.failed(reader, path, "failed to recognise it", error))
    return None, failures


def _read(reader: LogReader, path: Path, search: _Search) -> Runs:
    first = True
    try:
        for found in reader.read(path):
            if isinstance(found, Unreadable):
                yield search.unreadable(found.path, found.reason, found.where)
            elif found.outcome is None or 0 <= found.outcome <= 1:
                if first:
                    search.read_by[reader.name] = search.read_by.get(reader.name, 0) + 1
                first = False
                yield search.named(found, path)
            else:
                raise _OutOfRange(
                    f"the reader {reader.name} {reader.version} gives a run of"
                    f" {search.told(path)} the outcome {found.outcome:g}, which is outside [0, 1];"
                    " scale it in the reader, or leave it `None` and keep it among the `rewards`"
                )
    except _OutOfRange:
        raise
    except Exception as error:  # a reader of a stranger may fail: the other files go on
        stop_full(error)
        yield search.failed(reader, path, "failed", error)


def _archive(path: Path, search: _Search) -> Runs:
    if search.depth >= LIMITS.nesting:
        yield search.unreadable(path, f"archives are nested deeper than {LIMITS.nesting} levels")
        return
    with unpacked(path) as (folder, problems):
        for where, reason in problems:
            yield search.unreadable(path, reason, where)
        yield from _all(folder, search.inside(path, folder))


def _parted(rows: Iterable[Row | Unreadable], parts: Callable[[Row], Iterable[Row]]) -> Rows:
    for row in rows:
        yield from parts(row) if isinstance(row, Row) else (row,)


def numbered(runs: Runs) -> Runs:
    """The runs of one policy on one task, numbered in their order."""
    seen: Counter[tuple[str, str]] = Counter()
    for run in runs:
        if isinstance(run, Trajectory):
            number = seen[run.policy, run.task]
            seen[run.policy, run.task] += 1
            run = run.model_copy(update={"sample": number}) if number else run
        yield run


def _unique(runs: Runs) -> Runs:
    seen: Counter[str] = Counter()
    for run in runs:
        if isinstance(run, Trajectory):
            seen[run.id] += 1
            count = seen[run.id]
            run = run if count == 1 else run.model_copy(update={"id": f"{run.id}~{count}"})
        yield run


def is_left_out(name: str) -> bool:
    """Whether a file or folder of this name is never looked at."""
    return name.startswith(".") and _LEFT_OUT.match(name) is not None


def is_hidden(path: Path, above: Path | None) -> bool:
    """Whether a file is hidden, or lies in a hidden folder below `above`."""
    if above is None or path == above or not path.is_relative_to(above):
        return False
    return any(part.startswith(".") for part in path.relative_to(above).parts)
