"""Logs of many files, read and scanned in one go: each process takes some
files, stores their runs and scans them.

1. A piece is some neighbouring files of one side. Pieces come back in their
   order, so the same logs give the same bytes as when everything is read first.
   A log of one file is read first, and scanned part by part.
2. What depends on more than one run cannot be told so: marks of channels (whose
   control is what other tasks showed) and ids that occur in several pieces.
   Where there are such, a side is read, or everything is scanned, the usual
   way.
3. A side whose pieces are all there leaves its mark, as one that was read.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from forensics.investigation.folder import CASE_FILES, FINDINGS
from forensics.investigation.scan_findings import Gathered, Scanned, scan_runs
from forensics.investigation.scan_parts import copies, fewest_parts, in_processes
from forensics.investigation.stored_logs import (
    ReadSide,
    Source,
    clear_parts,
    kept_runs,
    known_side,
    portions,
    reading_told,
)
from forensics.layers.evidence_chain import Survey
from forensics.progress import Progress
from forensics.readers.log_reader import files_to_open, open_files
from forensics.records.tables import write_trajectories
from forensics.study import remove_drafts

UNMARKED = Survey(channels=())  # of logs whose steps name no channel
BYTES = 4 << 20  # of a piece, as the files lie there
SMALLEST = 256 << 10  # of a piece of a small log, where processes are copies
SHARES = 4  # pieces of a small log for each process
FILES = 128


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some files of a side. `draft`: where its parts are stored, but for their number."""

    source: Source
    reader: str | None
    files: tuple[Path, ...]
    draft: Path


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What came of a piece: what was read, its parts, the ids of its runs, and what
    was found (`None`: a step is marked).
    """

    read: ReadSide
    parts: list[Path]
    ids: list[str]
    scanned: list[Scanned] | None


def scan_ahead(
    folder: Path, sources: Sequence[Source], reader: str | None, progress: Progress, processes: int
) -> Gathered | None:
    """Read and scan all sides at once. `None` where that was not done, or where it cannot count."""
    if processes < 2 or any(known_side(source, folder) for source in sources):
        return None
    pieces = _pieces(folder, sources, reader, processes)
    if len(pieces) < fewest_parts() or {piece.source for piece in pieces} != set(sources):
        return None
    found = Gathered([source.side for source in sources], folder / f".{FINDINGS}.draft")
    try:
        with found, closing(in_processes(take, pieces, UNMARKED, processes)) as taken:
            whole = gather(folder, sources, taken, found, progress)
    except (_SameId, BrokenProcessPool, OSError):
        remove_drafts(folder, CASE_FILES)
        return None
    return found if whole else None


class _SameId(Exception):
    """Two pieces hold runs of one id, which only reading in order tells apart."""


def gather(
    folder: Path,
    sources: Sequence[Source],
    pieces: Iterable[Taken],
    found: Gathered,
    progress: Progress,
) -> bool:
    """Put the pieces together, whose parts get their names; whether everything
    was scanned, too.
    """
    for source in sources:
        clear_parts(folder, source)
    sides = {source.side: source.unread() for source in sources}
    ids: dict[str, set[str]] = {side: set() for side in sides}
    whole = True
    for taken in pieces:
        side = sides[taken.read.side]
        if not ids[side.side].isdisjoint(taken.ids):
            raise _SameId
        ids[side.side].update(taken.ids)
        side.add(taken.read)
        for draft in taken.parts:
            draft.replace(side.part(folder, side.parts))
            side.parts += 1
        progress(reading_told(side), 0, 1)
        whole = whole and taken.scanned is not None
        for scanned in taken.scanned or () if whole else ():
            found.add(scanned)
    for side in sides.values():
        side.keep(folder)
        progress(reading_told(side), 1, 1)
    return whole


def _pieces(
    folder: Path, sources: Sequence[Source], reader: str | None, processes: int
) -> list[Piece]:
    """All sides in pieces; no piece of a side that lies in several places,
    whose runs have ids of their own.
    """
    files = {
        source: [(file, _size(file)) for file in files_to_open(source.paths[0], reader)]
        for source in sources
        if len(source.paths) == 1
    }
    most = BYTES
    if copies():
        whole = sum(size for listed in files.values() for _, size in listed)
        most = min(most, max(SMALLEST, whole // (SHARES * processes)))
    pieces: list[Piece] = []
    for source, listed in files.items():
        held: list[Path] = []
        size = number = 0
        for file, bytes_of_file in listed:
            held.append(file)
            size += bytes_of_file
            if size >= most or len(held) == FILES or file is listed[-1][0]:
                draft = source.unread().part(folder, number)
                pieces.append(
                    Piece(
                        source=source,
                        reader=reader,
                        files=tuple(held),
                        draft=draft.with_name(f".{draft.stem}"),
                    )
                )
                held, size, number = [], 0, number + 1
    return pieces


def _size(file: Path) -> int:
    """Bytes of a file; what cannot be looked at is told by who reads it."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def take(piece: Piece) -> Taken:
    """Read, store and scan one piece, in a process that `in_processes` started."""
    read, side = piece.source.unread(), piece.source.side
    ids: list[str] = []
    parts: list[Path] = []
    scanned: list[Scanned] | None = []
    found = open_files(piece.files, piece.reader, names_files=True, root=piece.source.paths[0])
    for runs in portions(kept_runs(found, piece.source, read)):
        parts.append(piece.draft.with_name(f"{piece.draft.name}-{len(parts):04d}.draft"))
        write_trajectories(parts[-1], runs)
        ids += (run.id for run in runs)
        if scanned is None or any(step.channels for run in runs for step in run.steps):
            scanned = None
        else:
            scanned.append(scan_runs(side, runs, UNMARKED))
    return Taken(read=read, parts=parts, ids=ids, scanned=scanned)
