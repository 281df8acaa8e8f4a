"""Runs to continue, out of a log: which files, and which of their runs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from forensics.errors import UserError
from forensics.records import Trajectory
from forensics.records.tables import read_rows, read_trajectories
from forensics.rollout_logs import own_tables
from resampling.trace_rollouts import SUCCESS

Which = Literal["lost", "won", "all"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which runs of a log are looked at.

    `runs`: by outcome. `most`: how many, spread evenly over the tasks in the
    order of the log. `only`: these ids (or the first letters of them); then
    `runs` and `most` do not count. `without`: the scrubbed channels of their
    world.
    """

    runs: Which = "lost"
    most: int = 20
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


def read_runs(place: Path, choice: Choice, policy: str | None = None) -> list[Trajectory]:
    """The chosen runs of a Parquet file, of a folder of them, or of a case
    folder.

    The log is streamed twice, first without its steps, so only the chosen runs
    are ever held. In a log of several policies those of `policy` (a
    checkpoint's identity) are taken where there are any. A case's runs with
    actions refused are found by their id only. Raises `UserError` where nothing
    is left, and for an id that is not in the log or begins several.
    """
    if not place.exists():
        raise UserError(
            f"{place} does not exist; give a Parquet file of trajectories, or a folder of them"
        )
    files = own_tables(place, altered=bool(choice.only))
    if not files:
        raise UserError(f"{place} has no Parquet file of trajectories; give a log that has")
    columns = ["id", "task", "policy", "without", "outcome"]
    heads = [
        _Head(path=path, **{**row, "without": tuple(sorted(row["without"] or ()))})
        for path in files
        for row in read_rows(path, columns)
    ]
    if choice.only:
        chosen = [_named(heads, name, place) for name in dict.fromkeys(choice.only)]
    else:
        turns: Counter[str] = Counter()  # first one of each task, then a second one, and so on
        ordered = []
        for number, head in enumerate(_matching(heads, choice, policy, place)):
            ordered.append((turns[head.task], number, head))
            turns[head.task] += 1
        chosen = [head for _, _, head in sorted(ordered)[: choice.most]]
    runs: dict[str, Trajectory] = {}
    for path in dict.fromkeys(head.path for head in chosen):
        wanted = {head.id for head in chosen if head.path == path}
        runs |= {run.id: run for run in read_trajectories(path) if run.id in wanted}
    return [runs[head.id] for head in chosen]


@dataclass(frozen=True, kw_only=True)
class _Head:
    """A run without its steps."""

    path: Path
    id: str
    task: str
    policy: str
    without: tuple[str, ...]
    outcome: float | None


def _matching(
    heads: Sequence[_Head], choice: Choice, policy: str | None, place: Path
) -> list[_Head]:
    world = tuple(sorted(choice.without))
    here = [head for head in heads if head.without == world]
    if not here:
        where = f"without {', '.join(world)}" if world else "in the open world"
        raise UserError(
            f"{place} has no run {where}; give a log that `forensics investigate` recorded"
        )
    own = [head for head in here if head.policy == policy] or here
    picked = [
        head
        for head in own
        if head.outcome is not None
        and (choice.runs == "all" or (head.outcome >= SUCCESS) == (choice.runs == "won"))
    ]
    if not picked:
        raise UserError(
            f"none of the {len(own)} runs in {place} was {choice.runs}; choose others with --runs"
        )
    return picked


def _named(runs: Sequence[_Head], name: str, place: Path) -> _Head:
    matching = [run for run in runs if run.id == name] or [
        run for run in runs if run.id.startswith(name)
    ]
    if len({run.id for run in matching}) == 1:
        return matching[0]
    several = "no run"
    if matching:
        several = f"{len(matching)} runs, for example {matching[0].id} and {matching[1].id},"
    raise UserError(
        f"{place} has {several} with an id that begins with {name}; give the whole id of one"
    )
