"""Scanning a case part by part, on several processes where that was asked for.

1. A part is one file of stored runs. What is found in it depends on it and on
   the survey alone.
2. Parts come back in their order, so the same logs give the same bytes, however
   many processes scanned them.
3. Processes are copies of the one that asked (`fork`) where that is safe, which
   spares them what is loaded already. Elsewhere they are started anew
   (`spawn`): a script that scans on several must guard its own start (`if
   __name__ == "__main__"`), which is why one process is the default. Where they
   cannot be started, or one dies, the process that asked does the rest.
"""

import gc
import os
import signal
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

from forensics.case import Case
from forensics.investigation.folder import FINDINGS, INTEGRITY, LOOKS
from forensics.investigation.scan_findings import (
    SETTINGS,
    Gathered,
    Scan,
    Scanned,
    SideMarks,
    scan_runs,
)
from forensics.layers.behaviour import Tallied
from forensics.layers.evidence_chain import Survey, survey
from forensics.progress import Progress
from forensics.readers import installed_readers
from forensics.records.tables import read_trajectories
from forensics.shortcuts import families
from forensics.study import let_go

FEWEST_PARTS = 4  # below, starting processes anew takes longer than they save
FEWEST_PARTS_OF_COPIES = 2
USUAL = 2  # processes of the command line: with a third one memory would come near 1 GB
COLLECT = (
    50_000  # new objects between two looks for unreachable ones: logs are trees, which need none
)
AHEAD = 2  # parts for each process that may wait to be merged

Part = tuple[str, Path]  # the side, and where its runs are stored


def usual_processes() -> int:
    """How many processes the command line scans on."""
    return min(USUAL, os.cpu_count() or 1)


def write_findings(
    case: Case,
    scan: Scan | None,
    of: int,
    progress: Progress,
    processes: int = 1,
) -> tuple[dict[str, SideMarks], Tallied]:
    """Scan all sides of a case into `findings.jsonl`, atomically; `of`: how
    many runs there are.
    """
    sides = sorted({side for side, _ in case.stored}, key=lambda side: (side != "before", side))
    known = survey(case, sides, tasks=SETTINGS.control_tasks)
    path = case.folder / FINDINGS
    found = Gathered(sides, path.with_name(f".{path.name}.draft"))
    parts = [(side, path) for side in sides for path in case.rollouts(side).paths]
    progress("scanning", 0, of)
    with found:
        for scanned in scan_parts(parts, known, scan, processes):
            found.add(scanned)
            progress("scanning", found.runs, of)
    found.draft.replace(path)
    found.looks.replace(case.folder / LOOKS)
    found.integrity.replace(case.folder / INTEGRITY)
    return found.told, Tallied(survey=known, logs=found.tallies)


def scan_parts(
    parts: Sequence[Part], found: Survey, scan: Scan | None, processes: int
) -> Iterator[Scanned]:
    """Each part scanned, in order. A `scan` of the caller's own (`None`: the
    shortcut scanner) runs in this process.
    """
    done = 0
    if scan is None and processes > 1 and len(parts) >= fewest_parts():
        try:
            for scanned in _in_processes(parts, found, processes):
                yield scanned
                done += 1
        except (BrokenProcessPool, OSError):
            pass
    for part in parts[done:]:
        yield _scanned(part, found, scan)


def _scanned(part: Part, found: Survey, scan: Scan | None = None) -> Scanned:
    side, path = part
    return scan_runs(side, read_trajectories(path), found, scan)


def _in_processes(
    parts: Iterable[Part], found: Survey, processes: int
) -> Generator[Scanned, None, None]:
    """Each part scanned, in order. Raises `BrokenProcessPool` or `OSError` without processes."""
    copied = copies()
    if copied:
        _get_ready()
    pool = ProcessPoolExecutor(
        processes, get_context("fork" if copied else "spawn"), _started, (found,)
    )
    try:
        waiting: deque[Future[Scanned]] = deque()
        for part in parts:
            waiting.append(pool.submit(_scan_stored, part))
            if len(waiting) >= AHEAD * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def copies() -> bool:
    """Whether a process that is started now is a copy of this one: safe where
    no thread but this holds any lock.
    """
    return sys.platform == "linux" and len(sys._current_frames()) == 1


def fewest_parts() -> int:
    """From how many parts on several processes take less time than one."""
    return FEWEST_PARTS_OF_COPIES if copies() else FEWEST_PARTS


def _get_ready() -> None:
    """Load what every process needs, before there are several."""
    import pyarrow as pa

    families()
    installed_readers()
    pa.array([])  # has pandas loaded where there is one


_found = Survey(channels=())


def _started(found: Survey) -> None:
    """In a new process: it leaves interruption to the one that started it, and ends with it."""
    global _found
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    let_go()
    gc.freeze()  # what was there before is never looked through again
    gc.set_threshold(COLLECT)
    _found = found


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def _scan_stored(part: Part) -> Scanned:
    """A stored part scanned by this process, which `_in_processes` started."""
    return _scanned(part, _found)
