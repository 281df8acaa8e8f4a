"""Logs of many files, read and scanned in one go: each process takes some
files, stores their runs and scans them.

1. A piece is some neighbouring files of one side. Pieces come back in their
   order, so the same logs give the same bytes as when everything is read first.
   A log of one large file is read by the process that asked, which stores it
   part by part; the others scan these.
2. What depends on more than one run cannot be told so: marks of channels (whose
   control is what other tasks showed) and ids that occur in several pieces.
   Where there are such, a side is read, or everything is scanned, the usual
   way.
3. A side whose pieces are all there leaves its mark, as one that was read.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from forensics.investigation.folder import CASE_FILES, FINDINGS
from forensics.investigation.scan_findings import Scanned
from forensics.investigation.scan_parts import (
    Part,
    copies,
    fewest_parts,
    in_processes,
    scan_here,
    scan_stored,
)
from forensics.investigation.scan_results import Gathered
from forensics.investigation.stored_logs import (
    Count,
    Source,
    clear_parts,
    keep_side,
    kept_runs,
    known_side,
    part_path,
    portions,
    stored,
)
from forensics.layers.survey import Survey
from forensics.progress import Progress
from forensics.readers.log_reader import files_of, files_to_open, open_files
from forensics.records.tables import write_trajectories
from forensics.study import remove_drafts

BYTES = 4 << 20  # of a piece, as the files lie there
SMALLEST = 256 << 10  # of a piece of a small log, where processes are copies
SHARES = 4  # pieces of a small log for each process
FILES = 128
FEWEST_BYTES = 1 << 20  # of a log that is scanned as it is read, though it is one file
LETTERS = 500_000  # of the first part of such a log


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some files of a side. `draft`: where its parts are stored, but for their number."""

    source: Source
    reader: str | None
    files: tuple[Path, ...]
    draft: Path


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What came of a piece: its parts, the ids of its runs, and what was found
    (`None`: a step is marked).
    """

    piece: Piece
    count: Count
    parts: tuple[Path, ...]
    ids: tuple[str, ...]
    scanned: tuple[Scanned, ...] | None


def scan_ahead(
    folder: Path, sources: Sequence[Source], reader: str | None, progress: Progress, processes: int
) -> Gathered | None:
    """Read and scan all sides at once. `None` where that was not done, or where it cannot count."""
    if processes < 2 or any(known_side(source, folder) for source in sources):
        return None
    pieces = _pieces(folder, sources, reader, processes)
    many = len(pieces) >= fewest_parts() and {piece.source for piece in pieces} == set(sources)
    if not many and not (copies() and _bytes(sources) >= FEWEST_BYTES):
        return None
    known = Survey(channels=())
    found = Gathered([source.side for source in sources], folder / f".{FINDINGS}.draft")
    try:
        if many:
            with closing(in_processes(take, pieces, known, processes)) as taken, found:
                whole = _gather(folder, sources, taken, found, progress)
        else:
            stored_parts = _Stored(folder, sources, reader, progress)
            with (
                closing(in_processes(scan_stored, stored_parts, known, processes)) as scanned,
                found,
            ):
                for one in scanned:
                    found.add(one)
            whole = not stored_parts.marked
    except (_SameId, BrokenProcessPool, OSError):
        remove_drafts(folder, CASE_FILES)
        return None
    return found if whole else None


class _SameId(Exception):
    """Two pieces hold runs of one id, which only reading in order tells apart."""


@dataclass
class _Side:
    """What is there of a side so far."""

    source: Source
    count: Count = field(default_factory=Count)
    parts: int = 0
    ids: set[str] = field(default_factory=set)

    def add(self, taken: Taken, folder: Path) -> None:
        """One more piece: its parts get their names."""
        if not self.ids.isdisjoint(taken.ids):
            raise _SameId
        self.ids.update(taken.ids)
        self.count.add(taken.count)
        for draft in taken.parts:
            draft.replace(part_path(folder, self.source.side, self.source.key, self.parts))
            self.parts += 1


def _gather(
    folder: Path,
    sources: Sequence[Source],
    pieces: Iterable[Taken],
    found: Gathered,
    progress: Progress,
) -> bool:
    """Put the pieces together; whether everything was scanned, too."""
    for source in sources:
        clear_parts(folder, source)
    sides = {source.side: _Side(source) for source in sources}
    whole = True
    for taken in pieces:
        side = sides[taken.piece.source.side]
        side.add(taken, folder)
        progress(f"reading {side.source.side}, {side.count.runs} runs", 0, 1)
        whole = whole and taken.scanned is not None
        for scanned in taken.scanned or () if whole else ():
            found.add(scanned)
    for side in sides.values():
        keep_side(side.count.side(side.source, side.parts), folder)
        progress(f"reading {side.source.side}", 1, 1)
    return whole


@dataclass
class _Stored:
    """All sides read and stored by this process, part by part, until a step is
    marked: then nothing more is given.
    """

    folder: Path
    sources: Sequence[Source]
    reader: str | None
    progress: Progress
    marked: bool = False

    def __iter__(self) -> Iterator[Part]:
        for source in self.sources:
            count, parts = Count(), 0
            for path, runs in stored(
                source, self.folder, self.reader, count, self.progress, LETTERS
            ):
                parts += 1
                self.marked = self.marked or any(
                    step.channels for run in runs for step in run.steps
                )
                if not self.marked:
                    yield source.side, path
            keep_side(count.side(source, parts), self.folder)
            self.progress(f"reading {source.side}", 1, 1)


def _bytes(sources: Sequence[Source]) -> int:
    return sum(
        _size(file)
        for source in sources
        for path in source.paths
        for file in (files_of(path) if path.is_dir() else [path])
    )


def _pieces(
    folder: Path, sources: Sequence[Source], reader: str | None, processes: int
) -> list[Piece]:
    """All sides in pieces; no piece of a side that lies in several places,
    whose runs have ids of their own.
    """
    alone = [source for source in sources if len(source.paths) == 1]
    files = {
        source.side: [(file, _size(file)) for file in files_to_open(source.paths[0], reader)]
        for source in alone
    }
    most = BYTES
    if copies():
        whole = sum(size for listed in files.values() for _, size in listed)
        most = min(most, max(SMALLEST, whole // (SHARES * processes)))
    return [
        piece
        for source in alone
        for piece in _pieces_of(folder, source, files[source.side], reader, most)
    ]


def _pieces_of(
    folder: Path, source: Source, files: Sequence[tuple[Path, int]], reader: str | None, most: int
) -> Iterator[Piece]:
    held: list[Path] = []
    whole = number = 0
    for file, size in files:
        held.append(file)
        whole += size
        if whole >= most or len(held) == FILES or file is files[-1][0]:
            draft = part_path(folder, source.side, source.key, number)
            yield Piece(
                source=source,
                reader=reader,
                files=tuple(held),
                draft=draft.with_name(f".{draft.stem}"),
            )
            held, whole, number = [], 0, number + 1


def _size(file: Path) -> int:
    """Bytes of a file; what cannot be looked at is told by who reads it."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def take(piece: Piece) -> Taken:
    """Read, store and scan one piece, in a process that `in_processes` started."""
    count = Count()
    ids: list[str] = []
    parts: list[Path] = []
    scanned: list[Scanned] = []
    marked = False
    for number, runs in enumerate(
        portions(kept_runs(open_files(piece.files, piece.reader), piece.source, count))
    ):
        parts.append(piece.draft.with_name(f"{piece.draft.name}-{number:04d}.draft"))
        write_trajectories(parts[-1], runs)
        ids += (run.id for run in runs)
        marked = marked or any(step.channels for run in runs for step in run.steps)
        if not marked:
            scanned.append(scan_here(piece.source.side, runs))
    return Taken(
        piece=piece,
        count=count,
        parts=tuple(parts),
        ids=tuple(ids),
        scanned=None if marked else tuple(scanned),
    )
