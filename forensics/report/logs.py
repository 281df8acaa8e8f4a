"""The trajectory files of a case folder, read a few hundred rows at a time and
only the columns that are shown.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forensics.records.tables import read_rows

_NAME = re.compile(
    r"(?P<side>before|after(?:-\d+)?)-(?P<world>open|without-.+)-(?P<key>[^-]+)-\d+\.parquet"
)
_SHOWN: Final = (
    "id",
    "task",
    "outcome",
    "end",
    "end_reason",
    "submission",
    "rewards",
    *(
        f"steps.list.element.{name}"
        for name in ("role", "text", "kinds.list.element", "channels.list.element")
    ),
    *(f"steps.list.element.tool_calls.list.element.{name}" for name in ("name", "arguments")),
)
WIN: Final = 0.5  # outcome from which a run is a win


@dataclass(frozen=True, kw_only=True)
class Message:
    """One step of a run as it is shown. `calls`: structured calls, name and
    arguments as they were written.
    """

    role: str
    text: str
    kinds: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Run:
    """One trajectory as it is shown, without its tokens."""

    id: str
    side: str
    task: str
    without: tuple[str, ...]
    outcome: float | None
    end: str
    end_reason: str | None
    submission: str | None
    rewards: dict[str, float | None]
    messages: tuple[Message, ...]

    @property
    def won(self) -> bool | None:
        """Whether the run was scored a win, `None` without a score."""
        return None if self.outcome is None else self.outcome >= WIN


@dataclass(frozen=True, kw_only=True)
class Log:
    """The files of one side in one world."""

    side: str
    without: tuple[str, ...]
    paths: tuple[Path, ...]

    def rows(self, *columns: str) -> Iterator[dict[str, Any]]:
        """Plain rows of a few columns."""
        for path in self.paths:
            yield from read_rows(path, list(columns))

    def fetch(self, wanted: set[str]) -> Iterator[Run]:
        """The runs with these ids; row groups that hold none of them are not decoded."""
        for path in self.paths:
            for row in _rows_with(path, wanted) if wanted else ():
                yield _run(row, self.side, self.without)


@dataclass
class Tally:
    """Counts of one log."""

    runs: int = 0
    wins: int = 0
    scored: int = 0
    ends: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: float | None, end: str) -> None:
        """Count one run; one without a score is neither a win nor a loss."""
        self.runs += 1
        self.scored += outcome is not None
        self.wins += outcome is not None and outcome >= WIN
        self.ends[end] = self.ends.get(end, 0) + 1


def find_logs(folder: Path) -> tuple[Log, ...]:
    """The plain logs of a case, sorted by side and world; what a file was
    scrubbed of is read from its rows.

    Runs under a constraint or an intervention carry another name and are left
    out.
    """
    groups: dict[tuple[str, str, str], list[Path]] = {}
    for path in sorted((folder / "trajectories").glob("*.parquet")):
        if found := _NAME.fullmatch(path.name):
            groups.setdefault((found["side"], found["world"], found["key"]), []).append(path)
    logs: dict[tuple[str, tuple[str, ...]], Log] = {}
    for (side, _, _), paths in groups.items():
        without = _without(paths)
        if without is not None:
            logs.setdefault((side, without), Log(side=side, without=without, paths=tuple(paths)))
    return tuple(logs.values())


def _without(paths: Sequence[Path]) -> tuple[str, ...] | None:
    """The channels that a log was scrubbed of, `None` for a log without runs."""
    rows = (row for path in paths for row in read_rows(path, ["without"]))
    first = next(rows, None)
    return None if first is None else tuple(first["without"] or ())


def _rows_with(path: Path, wanted: set[str]) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            ids = file.read_row_group(number, columns=["id"]).column("id").to_pylist()
            places = [place for place, name in enumerate(ids) if name in wanted]
            if places:
                yield from (
                    file.read_row_group(number, columns=list(_SHOWN)).take(places).to_pylist()
                )


def _run(row: dict[str, Any], side: str, without: tuple[str, ...]) -> Run:
    return Run(
        id=row["id"],
        side=side,
        task=row["task"],
        without=without,
        outcome=row["outcome"],
        end=row["end"],
        end_reason=row["end_reason"],
        submission=row["submission"],
        rewards=dict(row["rewards"] or ()),
        messages=tuple(map(_message, row["steps"] or ())),
    )


def _message(step: dict[str, Any]) -> Message:
    return Message(
        role=step["role"],
        text=step["text"] or "",
        kinds=tuple(step["kinds"] or ()),
        channels=tuple(step["channels"] or ()),
        calls=tuple((call["name"], call["arguments"]) for call in step["tool_calls"] or ()),
    )
