"""Logs of other tools into a case folder: streamed run by run into Parquet, and
what could not be read by name.

1. A log is identified by a hash of its files' names and bytes, never by its
   path.
2. Runs are stored in parts of a bounded size, as they are read. A side that was
   read whole leaves a mark, so that a run that was killed goes on behind it.
3. Two benchmarks may share a task's name: where one name stands for tasks of
   several environments, the environment's name goes in front of every task.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

from forensics.case import Rollouts
from forensics.errors import UserError
from forensics.investigation.folder import ANSWERS, UNREADABLE
from forensics.layers.score_scale import ScoreScale, score_scale
from forensics.phrases import plural
from forensics.progress import Progress
from forensics.readers import Unreadable
from forensics.readers.case_folder import case_sides
from forensics.readers.log_reader import UNKNOWN, files_of, read_logs
from forensics.readers.unread_files import shapes_tried, texts_tried, unread_listed
from forensics.records import Trajectory
from forensics.records.files import read_json, write_json, write_json_lines
from forensics.records.given_files import leads_out
from forensics.records.tables import (
    ENDING,
    read_trajectories,
    require_stored,
    write_trajectories,
)
from forensics.study import Folder
from forensics.subjects import Role

RUNS_AT_ONCE, LETTERS_AT_ONCE = 256, 8_000_000  # of a part
LOGS = (  # endings of files that are logs: one that nobody knows is told by its name
    *(".jsonl", ".traj", ".eval", ".parquet"),
    *(".zip", ".tar", ".tgz", ".gz", ".zst", ".xz", ".bz2"),
)
ENDINGS = 8  # of files that are no logs, as they are told
NAMED = 1000  # what could not be read, by name; all of it is counted
BLOCK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Source:
    """One side of the comparison: where its log lies, and the log's identity. `without`: the
    channels that are scrubbed from the world of its runs.
    """

    side: str
    paths: tuple[Path, ...]
    given: Path
    key: str
    without: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """How its files are named."""
        return place_of(self.side, self.without)


@dataclass(kw_only=True)
class ReadSide:
    """What was read of a side so far. `scrubbed`: runs left out because shortcuts
    were taken from their world; `unreadable`: how many files and rows of logs could
    not be read, the first of them in `named` (where, reason); `others`: how many files
    of each ending are of no format that a reader knows, an example for each in
    `other_names`; `read_by`: of how many files each reader read runs.
    """

    side: str
    key: str
    parts: int = 0
    runs: int = 0
    scrubbed: int = 0
    unreadable: int = 0
    named: list[dict[str, str]] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)
    other_names: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    read_by: dict[str, int] = field(default_factory=dict)

    def part(self, folder: Path, number: int) -> Path:
        """Where a part is stored."""
        name = f"{place_of(self.side, self.without)}-{self.key}-{number:04d}.parquet"
        return folder / "trajectories" / name

    def rollouts(self, folder: Path) -> Rollouts:
        """The stored runs."""
        return Rollouts(key=self.key, paths=tuple(self.part(folder, n) for n in range(self.parts)))

    def not_read(self) -> list[dict[str, str]]:
        """Rows of `unreadable.jsonl`: what is broken one by one, then in one row the files
        that are no logs.
        """
        if not self.others:
            return self.named
        return [*self.named, {"side": self.side, **no_logs(self.others, self.other_names)}]

    def counts(self) -> dict[str, Any]:
        """What `case.json` counts of it."""
        return {
            "runs": self.runs,
            "unreadable": self.unreadable,
            "no_logs": sum(self.others.values()),
            "scrubbed_left_out": self.scrubbed,
            "read_by": self.read_by,
        }

    def keep(self, folder: Path) -> None:
        """Leave the mark of a side that was read to its end."""
        write_json(_mark(folder, self), asdict(self))


def place_of(side: str, without: Sequence[str]) -> str:
    """A side in a world, as files are named: `before-open`, `after-0-without-history`."""
    return "-".join((side, "without", *without) if without else (side, "open"))


def find_sources(
    after: Path, before: Path | None, reader: str | None, progress: Progress
) -> tuple[Source, ...]:
    """The sides that two paths hold: of a case folder its own, of any other log
    one. Raises `UserError`.
    """
    for path in filter(None, (after, before)):
        read_logs(path, reader)  # says at once what is missing or unknown; nothing is read yet
    own = case_sides(after)
    found = (
        {side: paths for side, paths in own.items() if side != "before"}
        if own
        else {"after-0": (after,)}
    )
    if not found:
        raise UserError(
            f"{after} is a case without runs after training; give logs of the policy after it"
        )
    places = [(side, paths, after) for side, paths in found.items()]
    if before is not None:
        theirs = case_sides(before)
        if theirs and "before" not in theirs:
            raise UserError(
                f"{before} is a case without runs before training; give logs of the policy"
                " before it"
            )
        places.insert(0, ("before", theirs.get("before", (before,)), before))
    elif "before" in own:
        places.insert(0, ("before", own["before"], after))
    return tuple(
        Source(side=side, paths=paths, given=given, key=identity_of_files(paths, progress))
        for side, paths, given in places
    )


def identity_of_files(paths: Sequence[Path], progress: Progress) -> str:
    """A hash of the files' names, below what was given, and of their bytes."""
    digest = blake2b(digest_size=8)
    files = [
        (file, root) for root in paths for file in (files_of(root) if root.is_dir() else (root,))
    ]
    for number, (file, root) in enumerate(files):
        progress("hashing the logs", number, len(files))
        name = str(file.relative_to(root)) if root.is_dir() else file.name
        digest.update(name.encode(errors="surrogateescape") + b"\0")
        if file.is_file() and (file == root or not leads_out(file, root)):  # no pipe, no device
            if file.suffix == ENDING:
                with suppress(pa.ArrowException, OSError):  # told by the reader
                    require_stored(file)
            _add_bytes(file, digest)
    progress("hashing the logs", 1, 1)
    return digest.hexdigest()


def _add_bytes(file: Path, digest: Any) -> None:
    try:
        digest.update(str(file.stat().st_size).encode() + b"\0")
        with file.open("rb") as content:
            while block := content.read(BLOCK):
                digest.update(block)
    except OSError:  # told by the reader as what cannot be read
        digest.update(b"unreadable")


def read_side(source: Source, folder: Path, reader: str | None, progress: Progress) -> ReadSide:
    """Read one side into the case folder, or take what an earlier run read.
    There may be no run in it.
    """
    if (known := known_side(source, folder)) is not None:
        return known
    read = ReadSide(side=source.side, key=source.key, without=source.without)

    def runs() -> Iterator[Trajectory]:
        for path in source.paths:
            found = read_logs(path, reader, names_files=True, read_by=read.read_by)
            for run in kept_runs(found, source, read):
                progress(reading_told(read), 0, 1)
                yield run

    clear_parts(folder, source)
    for part in portions(runs()):
        write_trajectories(read.part(folder, read.parts), part)
        read.parts += 1
    read.keep(folder)
    progress(reading_told(read), 1, 1)
    return read


def reading_told(read: ReadSide) -> str:
    """What is being read, for who waits: `the logs before training, 1 run`."""
    seed = Role.named(read.side).seed
    number = f", set {seed + 1}" if seed else ""
    when = " before training" if seed is None else ""
    return f"reading the logs{when}{number}, {plural(read.runs, 'run')}"


def known_side(source: Source, folder: Path) -> ReadSide | None:
    """What an earlier run read of a side to its end."""
    mark = _mark(folder, source)
    if not mark.exists():
        return None
    known = read_json(mark)
    return ReadSide(**known | {"without": tuple(known.get("without", ()))})


def _mark(folder: Path, read: ReadSide | Source) -> Path:
    where = place_of(read.side, read.without).removesuffix("-open")
    return folder / ANSWERS / f"read-{where}-{read.key}.json"


def read_sides(
    folder: Folder, sources: Sequence[Source], reader: str | None = None, names: Sequence[str] = ()
) -> tuple[list[ReadSide], str | None]:
    """Every log, and how their scores are read. One without a run is refused, and leaves no
    case behind. `names`: of logs that were given by place, two of which may call one benchmark
    differently.
    """
    sides: list[ReadSide] = []
    for source, name in zip_longest(sources, names):
        side = read_side(source, folder.path, reader, folder.progress)
        if not side.runs:
            folder.clear()
            raise UserError(f"{name}: {no_runs(source, side)}" if name else no_runs(source, side))
        sides.append(side)
    reading = scores_read(folder, sides)
    if not names or any(_mixed([side], folder.path) for side in sides):
        tell_tasks_apart(folder.path, sides)
    write_json_lines(folder.path / UNREADABLE, [row for side in sides for row in side.not_read()])
    return sides, reading


def _mixed(sides: Sequence[ReadSide], folder: Path) -> bool:
    """Whether one name stands for tasks of several environments."""
    known: dict[str, str] = {}
    rows = (row for side in sides for row in side.rollouts(folder).rows("task", "environment"))
    return any(known.setdefault(row["task"], row["environment"]) != row["environment"]
               for row in rows)  # fmt: skip


def no_runs(source: Source, read: ReadSide) -> str:
    """Why a log without runs cannot be scanned."""
    if read.scrubbed:
        return (
            f"{source.given} holds only runs of a scrubbed world; give runs with the shortcuts open"
        )
    rows = read.not_read()
    if not rows:
        return f"{source.given} holds no run; give a log file or a folder of logs"
    told = (
        f"{source.given} holds no run that can be read: {unread_listed(rows)}",
        shapes_tried(rows),
        texts_tried(rows),
        "Give a log file or a folder of logs",
    )
    return ". ".join(part.rstrip(".") for part in told if part)


def clear_parts(folder: Path, source: Source) -> None:
    """Parts that a run left which did not come to the end of a side: the next
    one may cut it in other places.
    """
    for path in (folder / "trajectories").glob(f"{source.place}-{source.key}-*.parquet"):
        path.unlink()


def kept_runs(
    found: Iterable[Trajectory | Unreadable], source: Source, read: ReadSide
) -> Iterator[Trajectory]:
    """The runs that are scanned; the others, and what could not be read, are counted."""
    for item in found:
        ending = item.path.suffix.lower() if isinstance(item, Unreadable) else ""
        if isinstance(item, Unreadable) and item.reason == UNKNOWN and ending not in LOGS:
            read.others[ending] = read.others.get(ending, 0) + 1
            seen = f": {item.seen}" if item.seen else ""
            read.other_names.setdefault(ending, _told(item, source)["file"] + seen)
        elif isinstance(item, Unreadable):
            read.unreadable += 1
            if len(read.named) < NAMED:
                read.named.append(_told(item, source))
        elif item.without and tuple(sorted(item.without)) != source.without:
            read.scrubbed += 1
        else:
            read.runs += 1
            place = _below(Path(item.file), source) if item.file else None
            yield item.model_copy(update={"file": place, "without": source.without})


def _told(found: Unreadable, source: Source) -> dict[str, str]:
    """What could not be read, by its name below the path that was given."""
    name = _below(found.path, source)
    fields = {
        "side": source.side,
        "file": name,
        "where": f"{name}, {found.where}",
        "reason": found.reason + (f": {found.seen}" if found.seen else ""),
    }
    return {key: value.encode(errors="backslashreplace").decode() for key, value in fields.items()}


def _below(path: Path, source: Source) -> str:
    """A file's name below the path that was given."""
    if source.given.is_dir() and path.is_relative_to(source.given):
        return str(path.relative_to(source.given))
    return path.name


def no_logs(others: Mapping[str, int], names: Mapping[str, str]) -> dict[str, str]:
    """One row for all files that are of no format a reader knows, the commonest ending first."""
    endings = sorted(others, key=lambda ending: (-others[ending], ending))
    told = ", ".join(
        f"{others[ending]:,} {ending or 'without an ending'} ({names[ending]}"
        + (", ...)" if others[ending] > 1 else ")")
        for ending in endings[:ENDINGS]
    )
    count = plural(sum(others.values()), "file")
    return {"file": count, "where": f"{count}: {told}", "reason": UNKNOWN}


def portions(runs: Iterable[Trajectory]) -> Iterator[list[Trajectory]]:
    """Parts with a bounded number of runs and, one run apart, of letters."""
    part: list[Trajectory] = []
    letters = 0
    for run in runs:
        part.append(run)
        letters += sum(len(step.text) for step in run.steps)
        if len(part) == RUNS_AT_ONCE or letters >= LETTERS_AT_ONCE:
            yield part
            part, letters = [], 0
    if part:
        yield part


def scores_read(folder: Folder, sides: Sequence[ReadSide]) -> str | None:
    """How the scores of all sides are read (`layers.score_scale`), in one sentence; outcomes are
    written anew then. Raises `UserError` where a gain would be judged without success. The scale
    is noted first, so a run that was killed finds it again.
    """
    note, columns = folder.path / ANSWERS / "scores.json", ("outcome", "rewards", "end")
    if not note.exists():
        rows = (row for side in sides for row in side.rollouts(folder.path).rows(*columns))
        found = score_scale(rows)
        if found is not None and not found.values and len(sides) > 1:
            folder.clear()
            raise UserError(found.reading[0].lower() + found.reading[1:-1])
        write_json(note, asdict(found) if found else {})
    if not (told := read_json(note)):
        return None
    scale = ScoreScale(**told | {"values": tuple(told["values"])})
    for path in (path for side in sides for path in side.rollouts(folder.path).paths):
        runs = read_trajectories(path)
        write_trajectories(
            path, [run.model_copy(update={"outcome": scale.outcome(vars(run))}) for run in runs]
        )
    return scale.reading


def tell_tasks_apart(folder: Path, sides: Sequence[ReadSide]) -> bool:
    """Put the environment's name in front of every task, where one name stands
    for tasks of several environments.
    """
    if not _mixed(sides, folder):
        return False
    for path in (path for side in sides for path in side.rollouts(folder).paths):
        runs = [
            run
            if run.task.startswith(f"{run.environment}/")
            else run.model_copy(update={"task": f"{run.environment}/{run.task}"})
            for run in read_trajectories(path)
        ]
        write_trajectories(path, runs)
    return True
