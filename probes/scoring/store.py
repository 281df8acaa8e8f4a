"""Columns kept beside a case's logs, so that a second instrument costs nothing.

1. A request is a log, two checkpoints, settings, `most_tokens`, readouts and, where only some are wanted, tasks. Its
   address is the content hash of what its numbers rest on: no path, no time, no name that may have come to mean other
   weights (`sides`).
2. The standard columns and each readout have files of their own, one for each part of the log (Parquet, written
   atomically). So an instrument that asks for one readout more has that one computed, in one pass over the parts that
   lack it, and a case that was killed goes on where it stopped.
3. The models are loaded when something is missing, and not before. Of a log without token ids the tokens are kept too.

A readout that is to be stored needs an attribute `identity`, a text that says everything its numbers depend on. It
counts trajectories over the whole log. Where a policy is no model on this machine its columns are missing.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from forensics.case import Case, Rollouts
from forensics.protocols import SamplingSettings
from forensics.records import Trajectory, content_hash
from forensics.records.tables import read_rows, read_trajectories
from probes.scored import Positions, Readout, Scored
from probes.scoring.sides import Side, side_of_case
from probes.scoring.tables import Writer, row_of, scored_of

ROWS_AT_ONCE = 256
VERSION = 2  # raised when the numbers of a standard column change, or what is kept


def scored_log(
    case: Case, side: str = "after-0", reference: str | None = "before", *, readouts: Sequence[Readout] = (),
    most_tokens: int | None = None, without: tuple[str, ...] = (), settings: SamplingSettings | None = None,
    tasks: frozenset[str] | None = None,
) -> Iterator[Scored]:
    """The runs of `side` (in the world without some channels), scored under it and under `reference`.

    Under the `settings` of the case unless others are given; of these `tasks` alone, where they are named. The log is
    named by its bytes. Raises `MissingInput` where the case lacks a log or a checkpoint.
    """
    log = case.rollouts(side, without=without)
    sides = [side_of_case(case, name) for name in (side, reference) if name is not None]
    return stored_scores(
        case.folder / "scores", Rollouts(key=content_hash([_digest(path) for path in log.paths]), paths=log.paths),
        sides[0], sides[1] if len(sides) > 1 else None, settings=settings or case.budget.settings, readouts=readouts,
        most_tokens=most_tokens, tasks=tasks, progress=lambda done, of: case.progress(f"{side} scored", done, of),
    )


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stored_scores(
    folder: Path, log: Rollouts, policy: Side, reference: Side | None, *, settings: SamplingSettings,
    readouts: Sequence[Readout] = (), most_tokens: int | None = None, tasks: frozenset[str] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Iterator[Scored]:
    """The trajectories of a log with all columns, from `folder` where they are there, computed where they are not.

    `tasks`: only these. `progress` is told how many runs of how many were reached.
    """
    parts = list(_parts(log, tasks))
    total = sum(part.runs for part in parts)
    models = _Loaded(policy, reference)
    asked = _Asked(models=models, settings=settings, most_tokens=most_tokens, hear=lambda at: progress(at, total))
    if policy.identity is None or (reference is not None and reference.identity is None):
        yield from asked.scores(chain.from_iterable(parts), 0, readouts)
        progress(total, total)
        return
    request = {
        "version": VERSION, "log": log.key, "policy": policy.identity, "settings": settings.content(),
        "reference": reference.identity if reference else None, "most_tokens": most_tokens,
        **({} if tasks is None else {"tasks": content_hash(sorted(tasks))}),
    }
    groups = [_Group(folder, content_hash(request), None)]
    groups += [_Group(folder, content_hash({**request, "readout": _identity(one)}), one) for one in readouts]
    for part in parts:
        missing = [group for group in groups if not group.path(part).exists()]
        if missing:
            _compute(part, missing, asked)
        yield from _read(part, [group.path(part) for group in groups])
    progress(total, total)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A file of the log: `runs` of it are wanted, the first of which is number `first` of all."""

    path: Path
    number: int
    first: int
    runs: int
    tasks: frozenset[str] | None

    def __iter__(self) -> Iterator[Trajectory]:
        return (run for run in read_trajectories(self.path) if self.tasks is None or run.task in self.tasks)


def _parts(log: Rollouts, tasks: frozenset[str] | None) -> Iterator[_Part]:
    first = 0
    for number, path in enumerate(log.paths):
        runs = sum(tasks is None or row["task"] in tasks for row in read_rows(path, ["task"]))
        yield _Part(path=path, number=number, first=first, runs=runs, tasks=tasks)
        first += runs


@dataclass(frozen=True)
class _Group:
    """Columns that stand in one file: the standard ones (`readout` `None`), or those of a readout."""

    folder: Path
    key: str
    readout: Readout | None

    def path(self, part: _Part) -> Path:
        return self.folder / f"{self.key}-{part.number:04d}.parquet"

    def columns(self, scored: Scored, others: set[str]) -> dict[str, np.ndarray]:
        """Those of `scored` that belong here. `others`: the names of all readouts' columns."""
        if self.readout is None:
            return {name: column for name, column in scored.columns.items() if name not in others}
        return {name: scored.columns[name] for name in self.readout.names if name in scored.columns}


class _Loaded:
    """Both models, loaded once, when the first of them is wanted."""

    def __init__(self, policy: Side, reference: Side | None) -> None:
        self._sides = policy, reference
        self._found: tuple[Any, Any] | None = None

    def both(self) -> tuple[Any, Any]:
        if self._found is None:
            policy, reference = self._sides
            ours = policy.load()
            same = reference is not None and policy.identity is not None and reference.identity == policy.identity
            self._found = ours, ours if same else reference.load() if reference else None
        return self._found


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """How a log is scored. `hear` is told the number of a run that was reached."""

    models: _Loaded
    settings: SamplingSettings
    most_tokens: int | None
    hear: Callable[[int], None]

    def scores(self, runs: Iterator[Trajectory], first: int, readouts: Sequence[Readout]) -> Iterator[Scored]:
        """One pass. `first`: number of the first run in the log."""
        from probes.scoring.log import score_log

        policy, reference = self.models.both()
        here = all(hasattr(one, "model") for one in (policy, reference) if one is not None)
        heard = [_Heard(readout, self.hear) for readout in readouts] if here else []
        return score_log(policy, reference, runs, settings=self.settings, readouts=heard,
                         most_tokens=self.most_tokens, first=first)


class _Heard:
    """A readout that tells how far it is."""

    def __init__(self, readout: Readout, hear: Callable[[int], None]) -> None:
        self._readout, self._hear, self._furthest = readout, hear, 0

    @property
    def names(self) -> Sequence[str]:
        return self._readout.names

    def __call__(self, policy: Any, reference: Any, at: Positions) -> Any:
        self._furthest = max(self._furthest, int(at.trajectory.max()))
        self._hear(self._furthest)
        return self._readout(policy, reference, at)


def _compute(part: _Part, missing: Sequence[_Group], asked: _Asked) -> None:
    """One pass over a part of the log for all groups of columns that lack it."""
    readouts = [group.readout for group in missing if group.readout is not None]
    others = {name for readout in readouts for name in readout.names}
    scores = asked.scores(iter(part), part.first, readouts)
    first = next(scores, None)
    writers = {group: Writer(group.path(part)) for group in missing}
    try:
        while first is not None:
            batch = [first, *islice(scores, ROWS_AT_ONCE - 1)]
            for group, writer in writers.items():
                writer.write([row_of(scored, group.columns(scored, others), group.readout is None) for scored in batch])
            first = next(scores, None)
        for writer in writers.values():
            writer.finish()
    finally:
        for writer in writers.values():
            writer.abandon()


def _read(part: _Part, paths: Sequence[Path]) -> Iterator[Scored]:
    tables = [read_rows(path) for path in paths]
    for trajectory, first, *others in zip(part, *tables, strict=True):
        found = scored_of(trajectory, first)
        columns = {name: column for row in others for name, column in scored_of(trajectory, row).columns.items()}
        yield replace(found, columns={**found.columns, **columns}) if columns else found


def _identity(readout: Any) -> str:
    identity = getattr(readout, "identity", None)
    if not isinstance(identity, str):
        raise ValueError(f"{type(readout).__name__} has no `identity`, so its columns cannot be stored; give it one "
                         "that says everything they depend on, or use score_log")
    return identity
