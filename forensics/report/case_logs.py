"""The trajectory files of a case folder, read a few hundred rows at a time and
only the columns that are shown.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forensics.records import Trajectory
from forensics.records.tables import open_whole
from forensics.rollout_logs import Rollouts

_NAME = re.compile(
    r"(?P<side>before|after(?:-\d+)?)-(?P<world>open|without-.+)-(?P<key>[^-]+)-\d+\.parquet"
)
_SHOWN: Final = (
    *("id", "task", "policy", "environment", "seed", "without", "outcome", "end", "end_reason"),
    *("submission", "patch", "rewards", "file"),
    *(
        f"steps.list.element.{name}"
        for name in ("role", "text", "kinds.list.element", "channels.list.element")
    ),
    *(f"steps.list.element.tool_calls.list.element.{name}" for name in ("name", "arguments")),
)
WIN: Final = 0.5  # outcome from which a run is a win


def won(outcome: float | None) -> bool | None:
    """Whether a run was scored a win, `None` without a score."""
    return None if outcome is None else outcome >= WIN


@dataclass(frozen=True, kw_only=True)
class Log:
    """The runs of one side in one world."""

    side: str
    without: tuple[str, ...]
    rollouts: Rollouts

    def rows(self, *columns: str) -> Iterator[dict[str, Any]]:
        """Plain rows of a few columns."""
        return self.rollouts.rows(*columns)

    def fetch(self, wanted: set[str]) -> Iterator[Trajectory]:
        """The runs with these ids, without their tokens. Row groups that hold none of them
        are not decoded.
        """
        for path in self.rollouts.paths if wanted else ():
            with open_whole(path) as file:
                for group in range(file.num_row_groups):
                    ids = file.read_row_group(group, columns=["id"]).column("id").to_pylist()
                    places = [place for place, name in enumerate(ids) if name in wanted]
                    if places:
                        table = file.read_row_group(group, columns=list(_SHOWN)).take(places)
                        yield from map(_run_of, table.to_pylist())


def _run_of(row: dict[str, Any]) -> Trajectory:
    return Trajectory.model_validate(row | {"rewards": dict(row.get("rewards") or ())})


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
        self.wins += bool(won(outcome))
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
    for (side, _, key), paths in groups.items():
        rollouts = Rollouts(key=key, paths=tuple(paths))
        if (first := next(rollouts.rows("without"), None)) is not None:
            without = tuple(first["without"] or ())
            logs.setdefault((side, without), Log(side=side, without=without, rollouts=rollouts))
    return tuple(logs.values())


def errored_of(logs: Iterable[Log]) -> set[tuple[str, str]]:
    """The runs that errored, by side and id."""
    return {
        (log.side, row["id"])
        for log in logs
        for row in log.rows("id", "end")
        if row["end"] == "errored"
    }


def outcomes_of(logs: Iterable[Log]) -> dict[tuple[str, str], bool | None]:
    """Whether each run was won, by side and id."""
    return {
        (log.side, row["id"]): won(row["outcome"])
        for log in logs
        for row in log.rows("id", "outcome")
    }
