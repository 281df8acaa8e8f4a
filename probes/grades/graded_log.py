"""The runs of a log that are graded: a Parquet file of trajectories, a folder
of them, a case folder, or a foreign log.

0. What is no table of our own goes through the readers (`forensics.readers`)
   and is copied; what they could not read is told.
1. Runs of one world are taken (the open one unless channels are named), and of
   a log with runs of several policies those of the policy that grades, where
   there are any. A case's runs with actions refused are left out.
2. A file that is wanted whole is read where it lies; of others the wanted runs
   are copied.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from forensics.case import Rollouts
from forensics.errors import UserError
from forensics.readers import Unreadable
from forensics.records import Trajectory, content_hash
from forensics.records.tables import read_rows, read_trajectories, write_trajectories
from forensics.wording import plural, printable

ALTERED: Final = re.compile(r"(before|after-\d+)-altered-")
COLUMNS: Final = ["id", "task", "policy", "without"]


@dataclass(frozen=True, kw_only=True)
class Log:
    """Chosen runs. `counts`: how many each file of `rollouts` holds. `own`:
    whether the grading policy made them; `policies`: the names of those that
    did. `unreadable`: what a foreign log held that could not be read.
    """

    rollouts: Rollouts
    counts: tuple[int, ...]
    policies: tuple[str, ...]
    own: bool
    unreadable: str | None = None

    @property
    def runs(self) -> int:
        return sum(self.counts)


def open_log(place: Path, policy: str, without: Sequence[str], copies: Path) -> Log:
    """`policy`: identity of the checkpoint that grades. `copies`: where files
    that are wanted in part are copied.

    Raises `UserError` where nothing is left, and where two runs have one id.
    """
    world = tuple(sorted(without))
    files, unreadable = _tables(place, copies)
    heads = {path: list(read_rows(path, COLUMNS)) for path in files}
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
    _require_one_of_each([row["id"] for rows in chosen.values() for row in rows], place)
    paths = tuple(
        _path(path, rows, len(heads[path]), number, copies)
        for number, (path, rows) in enumerate(chosen.items())
    )
    return Log(
        rollouts=Rollouts(key=content_hash([_digest(path) for path in paths]), paths=paths),
        own=made_here,
        unreadable=unreadable,
        counts=tuple(len(rows) for rows in chosen.values()),
        policies=tuple(sorted({row["policy"] for rows in chosen.values() for row in rows})),
    )


def runs_of(place: Path, policy: str, without: Sequence[str], copies: Path) -> Rollouts | None:
    """The runs that another policy made, `None` where the log has none (a
    foreign log names no policy by its hash).
    """
    log = open_log(place, policy, without, copies) if _own_tables(place) else None
    return log.rollouts if log is not None and log.own else None


def _tables(place: Path, copies: Path) -> tuple[list[Path], str | None]:
    """The log's Parquet files of trajectories, and what could not be read."""
    own = _own_tables(place)
    return (own, None) if own else _foreign(place, copies)


def _own_tables(place: Path) -> list[Path]:
    """The Parquet files of a log of our own, none where it is a foreign one."""
    folder = place / "trajectories" if (place / "trajectories").is_dir() else place
    found = [folder] if folder.is_file() else sorted(folder.glob("*.parquet"))
    if not all(_is_ours(path) for path in found):
        return []
    return [path for path in found if not ALTERED.match(path.name)] or found


def _is_ours(path: Path) -> bool:
    try:
        told = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError):
        return False
    return bytes(told.get(b"forensics.schema", b"")).startswith(b"trajectory/")


def _foreign(place: Path, copies: Path) -> tuple[list[Path], str | None]:
    """The runs that the installed readers find, copied into one table."""
    from forensics.readers import read_logs

    refused: list[Unreadable] = []
    copy = copies / "read.parquet"
    if not write_trajectories(copy, _runs(read_logs(place), refused)):
        first = (
            f"{refused[0].path.name}, {refused[0].where}: {refused[0].reason}"
            if refused
            else "it is empty"
        )
        raise UserError(
            f"{place} holds no run that can be read ({first}); give trajectories of ours, or a log"
            " that a reader knows"
        )
    told = (
        None
        if not refused
        else (
            f"{plural(len(refused), 'part')} of the log could not be read, the first being "
            f"{printable(refused[0].path.name)} ({printable(refused[0].reason, 200)})."
        )
    )
    return [copy], told


def _runs(
    found: Iterable[Trajectory | Unreadable], refused: list[Unreadable]
) -> Iterator[Trajectory]:
    for one in found:
        if isinstance(one, Unreadable):
            refused.append(one)
        else:
            yield one


def _path(
    path: Path, rows: Sequence[dict[str, object]], whole: int, number: int, copies: Path
) -> Path:
    if len(rows) == whole:
        return path
    wanted = {row["id"] for row in rows}
    copy = copies / f"{number:04d}.parquet"
    write_trajectories(copy, (run for run in read_trajectories(path) if run.id in wanted))
    return copy


def _require_one_of_each(names: Sequence[str], place: Path) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(
            f"{place} has two runs with the id {twice[0]}; give each run an id of its own"
        )


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_truth(path: Path) -> dict[str, int]:
    """Of each run, the step that lost it: JSON lines with `trajectory` and
    `step`. Raises `UserError`.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        raise UserError(
            f"{path} cannot be read; give JSON lines with `trajectory` and `step`"
        ) from None
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            found[str(row["trajectory"])] = int(row["step"])
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"line {number} of {path} does not say `trajectory` and `step`; write both"
            ) from None
    return found
