"""Every run through the scanner: rows of findings as they come, and per run
only a few marks and numbers in memory.

1. Where the log itself marks what a channel showed (our own environments do),
   that chain of evidence counts.
2. For every other channel the scanner's findings count: it looks at actions and
   answers, never at the target.
3. A run is *attempted* where something was tried or obtained, and *credited* where a
   finding is complete.
4. What the behaviour layer asks of a run is counted on the way
   (`layers.tally`), so that each run is read once.

What of a run's record cannot be relied on, as rows of `integrity.jsonl`; and runs that are
copies of others.

A copy is a run of some length (`FEWEST_TURNS`, `FEWEST_CHARACTERS`) whose messages are, word for
word, those of an earlier run under another id. Only a hash of such runs is kept.

Scanning a case part by part, on several processes where that was asked for.

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
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from hashlib import blake2b
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple, Self, TextIO

from forensics.actions import Action, actions_of
from forensics.case import Case
from forensics.investigation.folder import FINDINGS, INTEGRITY, LOOKS
from forensics.layers.behaviour import BehaviourConfig, Tallied
from forensics.layers.bounds import ScoredRun, shape_of
from forensics.layers.channels import ACCIDENT, RULE_BROKEN, Marks
from forensics.layers.evidence_chain import Survey, step_text, survey
from forensics.layers.tally import Log
from forensics.progress import Progress
from forensics.readers import installed_readers
from forensics.records import Trajectory, canonical_json
from forensics.records.case_file import IntegrityRow
from forensics.records.finding import Coverage, Finding
from forensics.records.tables import read_trajectories
from forensics.shortcuts import families
from forensics.shortcuts.looks import CoverageCounts, unread_families
from forensics.shortcuts.record_integrity import Gap, gap, record_gaps
from forensics.shortcuts.scanner import look_at
from forensics.study import let_go

FEWEST_PARTS = 4  # below, starting processes anew takes longer than they save
FEWEST_PARTS_OF_COPIES = 2
USUAL = 2  # processes of the command line: with a third one memory would come near 1 GB
COLLECT = (
    50_000  # new objects between two looks for unreachable ones: logs are trees, which need none
)
AHEAD = 2  # parts for each process that may wait to be merged

Part = tuple[str, Path]  # the side, and where its runs are stored


_found = Survey(channels=())
COPIED: Final = "copied run"
FEWEST_TURNS: Final = 4
FEWEST_CHARACTERS: Final = 2000  # of what the agent wrote


Scan = Callable[[Trajectory], Iterable[Any]]
SETTINGS = BehaviourConfig()


class RecordRead(NamedTuple):
    """Of one run: where it stands, what was told of it, and a hash of what was said in it
    (`None`: too short to tell a copy).
    """

    origin: dict[str, Any]
    gaps: tuple[Gap, ...]
    body: bytes | None

    @property
    def lines(self) -> tuple[str, ...]:
        """The rows of `integrity.jsonl`."""
        return tuple(_line(self.origin, one) for one in self.gaps)


def read_record(side: str, trajectory: Trajectory, actions: Sequence[Action]) -> RecordRead | None:
    """What there is to tell of one run; `None` where that is nothing."""
    gaps = record_gaps(trajectory, actions)
    body = _body(trajectory)
    if not gaps and body is None:
        return None
    return RecordRead({"side": side, **trajectory.origin}, gaps, body)


class Copies:
    """Which runs were met before under another id."""

    def __init__(self) -> None:
        self._met: dict[bytes, tuple[str, str]] = {}

    def line(self, read: RecordRead) -> str | None:
        """The row of a run that says word for word what an earlier one says."""
        if read.body is None:
            return None
        name = (read.origin["side"], read.origin["trajectory"])
        first = self._met.setdefault(read.body, name)
        if first == name:
            return None
        where = first[1] if first[0] == name[0] else f"{first[1]} ({first[0]} training)"
        why = "its messages are word for word those of the quoted run"
        return _line(read.origin, gap(COPIED, (), where, why))


def _line(origin: dict[str, Any], told: Gap) -> str:
    return canonical_json(IntegrityRow(**origin, **told._asdict())) + "\n"


def _body(trajectory: Trajectory) -> bytes | None:
    """A hash of all messages of a run that is long enough, and written in free words."""
    steps = trajectory.steps
    said = [step_text(step) for step in steps if step.role == "assistant"]
    if len(said) < FEWEST_TURNS or sum(map(len, said)) < FEWEST_CHARACTERS:
        return None
    if any(step.kinds for step in steps):
        return None  # a language of a few words, in which many runs are alike
    told = blake2b(digest_size=16)
    for step in steps:
        told.update(f"{step.role}\0{step_text(step)}\0".encode(errors="replace"))
    return told.digest()


@dataclass
class SideMarks:
    """What was found on one side: marks by channel, and the runs that have a score. `odd`: of the
    `dropped` ones, those in which a reward is no finite number.
    """

    marks: dict[str, Marks] = field(default_factory=dict)
    scored: list[ScoredRun] = field(default_factory=list)
    dropped: int = 0
    odd: int = 0
    runs: int = 0
    looks: CoverageCounts = field(default_factory=CoverageCounts)
    record: Counter[str] = field(default_factory=Counter)

    def merge(self, later: "SideMarks") -> None:
        """Add what was found in the runs that come next."""
        for channel, marks in later.marks.items():
            own = self.marks.setdefault(channel, Marks(family=marks.family))
            own.attempted |= marks.attempted
            own.credited |= marks.credited
            own.untold |= marks.untold
            own.example = min(filter(None, (own.example, marks.example)), default=None)
        self.scored += later.scored
        self.dropped += later.dropped
        self.odd += later.odd
        self.runs += later.runs
        self.looks += later.looks
        self.record.update(later.record)


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """What came out of some runs of one side: findings as JSON lines, of each run what could
    be looked at and what its record does not bear out (JSON lines, too), marks, and the behaviour
    layer's tally.
    """

    side: str
    lines: tuple[str, ...]
    looks: tuple[str, ...]
    record: tuple[RecordRead, ...]
    marks: SideMarks
    tally: Log


def scan_runs(
    side: str, runs: Iterable[Trajectory], found: Survey, scan: Scan | None = None
) -> Scanned:
    """Scan some runs of one side, one after the other. `scan`: the caller's own (`None`: the
    shortcut scanner).
    """
    lines: list[str] = []
    looks: list[str] = []
    record: list[RecordRead] = []
    marks, tally = SideMarks(), new_tally()
    for trajectory in runs:
        actions = actions_of(trajectory)
        chains = tuple(found.chains(trajectory, SETTINGS.chain_rule))
        looked = None if scan else look_at(trajectory, actions)
        told = scan(trajectory) if scan else (looked.findings if looked else ())
        rows = [*findings_of(side, trajectory, chains, told)]
        lines += (canonical_json(row) + "\n" for row in rows)
        if looked:
            row = looked.looks.model_copy(update={"side": side})
            looks.append(canonical_json(row) + "\n")
        mark(marks, trajectory, rows, looked.looks if looked else None)
        if (read := read_record(side, trajectory, actions)) is not None:
            record.append(read)
            marks.record.update(one.check for one in read.gaps)
        tally.add(trajectory, chains)
    return Scanned(
        side=side,
        lines=tuple(lines),
        looks=tuple(looks),
        record=tuple(record),
        marks=marks,
        tally=tally,
    )


def new_tally() -> Log:
    """A tally by the behaviour layer's own settings."""
    return Log(rule=SETTINGS.chain_rule, most=SETTINGS.examples)


def findings_of(
    side: str, trajectory: Trajectory, chains: Iterable[Finding], told: Iterable[Any]
) -> Iterator[Finding]:
    """The findings of one run: chains that the log's own marks give, then what the scanner
    `told` of other channels.
    """
    marked = set()
    for chain in chains:
        marked.add(chain.channel)
        if chain.level != "none":
            yield chain.model_copy(update={"side": side})
    for one in told:
        row = one if isinstance(one, Mapping) else vars(one)
        if row["channel"] not in marked:
            yield Finding.model_validate({**row, **trajectory.origin, "side": side})


def mark(
    told: SideMarks, trajectory: Trajectory, rows: Iterable[Finding], looks: Coverage | None
) -> None:
    """Keep what the bounds and the shares need of one run. A run in which something could not
    be looked at is in doubt, as one that tried something is. `looks`: `None` where a scanner of
    the caller's own looked.
    """
    unread = looks is not None and bool(unread_families(looks))
    attempted, credited, untold = unread, False, unread
    flagged: set[str] = set()
    outcome = trajectory.outcome
    told.looks.add(looks, outcome is not None and outcome >= SETTINGS.chain_rule.win)
    for row in rows:
        marks = told.marks.setdefault(row.channel, Marks(family=row.family))
        marks.attempted.add(trajectory.id)
        attempted = attempted or row.family != RULE_BROKEN  # which wins nothing by itself
        if row.family not in (ACCIDENT, RULE_BROKEN) and row.level in ("used", "credited"):
            flagged.add(row.channel)
        if row.complete:
            credited = True
            marks.credited.add(trajectory.id)
            steps = row.attempt_steps or row.obtained_steps
            if steps and (marks.example is None or trajectory.id < marks.example[0]):
                marks.example = (trajectory.id, steps[0], trajectory.task)
        elif row.untold:
            untold = True
            marks.untold.add(trajectory.id)
    told.runs += 1
    if trajectory.outcome is None or trajectory.end == "errored":
        told.dropped += 1
        told.odd += trajectory.end != "errored" and None in trajectory.rewards.values()
        return
    told.scored.append(
        ScoredRun(
            id=trajectory.id,
            task=trajectory.task,
            outcome=trajectory.outcome,
            attempted=attempted,
            credited=credited,
            untold=untold and not credited,
            flagged=tuple(sorted(flagged)),
            shape=shape_of(trajectory),
        )
    )


class Gathered:
    """The findings of a case as they come, in order, written to `draft`, and beside it what
    could be looked at.
    """

    def __init__(self, sides: Sequence[str], draft: Path) -> None:
        self.draft = draft
        self.told = {side: SideMarks() for side in sides}
        self.tallies = {side: new_tally() for side in sides}
        self.looks = draft.with_name(f".{LOOKS}.draft")
        self.integrity = draft.with_name(f".{INTEGRITY}.draft")
        self._copies = Copies()
        self._files: list[TextIO] = []

    def __enter__(self) -> Self:
        for path in (self.draft, self.looks, self.integrity):
            file = open(path, "w", encoding="utf-8", errors="backslashreplace")
            self._files.append(file)
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def add(self, scanned: Scanned) -> None:
        """What was found in the runs that come next."""
        findings, looks, integrity = self._files
        findings.writelines(scanned.lines)
        looks.writelines(scanned.looks)
        self.told[scanned.side].merge(scanned.marks)
        self.tallies[scanned.side].merge(scanned.tally)
        for read in scanned.record:
            integrity.writelines(read.lines)
            if (copied := self._copies.line(read)) is not None:
                integrity.write(copied)
                self.told[scanned.side].record.update((COPIED,))

    @property
    def runs(self) -> int:
        """How many runs there were so far."""
        return sum(marks.runs for marks in self.told.values())


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
