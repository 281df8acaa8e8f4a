"""Columns kept beside a case's logs, so that a second instrument costs nothing.

1. A request is a log, two checkpoints, settings, `most_tokens`, readouts and,
   where only some are wanted, tasks. Its address is the content hash of what
   its numbers rest on: no path, no time, no name that may have come to mean
   other weights (a policy in memory is named by its weights as they are now).
2. The standard columns and each readout have files of their own, one for each
   part of the log (Parquet, written atomically). So an instrument that asks for
   one readout more has that one computed, in one pass over the parts that lack
   it, and a case that was killed goes on where it stopped.
3. The models are loaded when something is missing, and not before. Of a log
   without token ids the tokens are kept too.

A readout that is to be stored needs an attribute `identity`, a text that says
everything its numbers depend on. It counts trajectories over the whole log.
Where a policy is no model on this machine its columns are missing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from forensics.errors import OutsideFailure, UserError
from forensics.policies.sampled_tokens import TokenScores, with_ids
from forensics.policies.score_columns import Readout
from forensics.policies.weights import identity_of_weights
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Trajectory, content_hash
from forensics.records.tables import read_rows, read_trajectories, whole_file
from forensics.rollout_logs import Rollouts

PLACES = {"step": np.int64, "place": np.int64, "token": np.int64}
ROWS_AT_ONCE = 256
VERSION = 2  # raised when the numbers of a standard column change, or what is kept


@dataclass(frozen=True, kw_only=True)
class PolicyRef:
    """A checkpoint: its content hash (`None`: nothing is kept), and how it is
    loaded. In memory: `policy_ref`.
    """

    identity: str | None
    load: Callable[[], Policy]


def policy_ref(policy: Policy) -> PolicyRef:
    """A policy in memory, named by its weights as they are now; under its own
    `identity` a live policy would have a ratio of 0 to its start everywhere.

    Its `load` raises `UserError` where the weights have changed since.
    """
    if "weights" not in policy.capabilities:
        return PolicyRef(identity=None, load=lambda: policy)
    now = identity_of_weights(policy)

    def load() -> Policy:
        if identity_of_weights(policy) != now:
            raise UserError(
                "the weights of the policy have changed since its scores were asked for; ask again"
            )
        return policy

    return PolicyRef(identity=now, load=load)


def _schema(names: Sequence[str]) -> pa.Schema:
    whole = [(name, pa.list_(pa.int64())) for name in (*PLACES, "unread")]
    return pa.schema(
        [
            ("id", pa.string()),
            *whole,
            ("retokenised", pa.bool_()),
            ("ids", pa.list_(pa.list_(pa.int64()))),
            *((name, pa.list_(pa.float64())) for name in names),
        ]
    )


def row_of(scored: TokenScores, columns: dict[str, np.ndarray], standard: bool) -> dict[str, Any]:
    """`ids`: of each step, where the log does not have them; once is enough."""
    places = {name: getattr(scored, name) for name in PLACES}
    with_ids = scored.retokenised and standard
    return {
        "id": scored.trajectory.id,
        **places,
        "unread": sorted(scored.unread),
        "retokenised": scored.retokenised,
        "ids": [step.token_ids for step in scored.trajectory.steps] if with_ids else None,
        **columns,
    }


def scored_of(trajectory: Trajectory, row: dict[str, Any]) -> TokenScores:
    """A row beside its trajectory. Raises `OutsideFailure` where it is another's."""
    if row.pop("id") != trajectory.id:
        raise OutsideFailure(
            f"the stored scores are not those of trajectory {trajectory.id}; delete the folder"
            " scores of the case and use --resume, which computes them again"
        )
    places = {name: np.array(row.pop(name), dtype=kind) for name, kind in PLACES.items()}
    unread, retokenised, ids = frozenset(row.pop("unread")), row.pop("retokenised"), row.pop("ids")
    return TokenScores(
        trajectory=with_ids(trajectory, ids) if ids else trajectory,
        unread=unread,
        retokenised=retokenised,
        **places,
        columns={name: np.array(values, dtype=np.float64) for name, values in row.items()},
    )


def stored_scores(
    folder: Path,
    log: Rollouts,
    policy: PolicyRef,
    reference: PolicyRef | None,
    *,
    settings: SamplingSettings,
    readouts: Sequence[Readout] = (),
    most_tokens: int | None = None,
    tasks: frozenset[str] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Iterator[TokenScores]:
    """The trajectories of a log with all columns, from `folder` where they are
    there, computed where they are not. `tasks`: only these. `progress` is told how
    many runs of how many were reached.
    """
    parts = list(_parts(log, tasks))
    total = sum(part.runs for part in parts)
    unnamed = policy.identity is None or (reference is not None and reference.identity is None)

    @cache
    def models() -> tuple[Any, Any]:
        ours = policy.load()
        same = not unnamed and reference is not None and reference.identity == policy.identity
        return ours, ours if same else reference.load() if reference else None

    def scores(
        runs: Iterable[Trajectory], first: int, readouts: Sequence[Readout]
    ) -> Iterator[TokenScores]:
        from forensics.policies.score_log import score_log

        here = all("weights" in one.capabilities for one in models() if one is not None)
        return score_log(
            *models(),
            runs,
            settings=settings,
            readouts=readouts if here else (),
            most_tokens=most_tokens,
            first=first,
            progress=lambda reached: progress(reached, total),
        )

    if unnamed:
        yield from scores(chain.from_iterable(parts), 0, readouts)
    else:
        request = {
            "version": VERSION,
            "log": log.key,
            "policy": policy.identity,
            "settings": settings.content(),
            "reference": reference.identity if reference else None,
            "most_tokens": most_tokens,
            **({} if tasks is None else {"tasks": content_hash(sorted(tasks))}),
        }
        groups = _groups(folder, request, readouts)
        for part in parts:
            if missing := [group for group in groups if not group.path(part).exists()]:
                _compute(part, missing, scores)
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
        return (
            run
            for run in read_trajectories(self.path)
            if self.tasks is None or run.task in self.tasks
        )


def _parts(log: Rollouts, tasks: frozenset[str] | None) -> Iterator[_Part]:
    first = 0
    for number, path in enumerate(log.paths):
        runs = sum(tasks is None or row["task"] in tasks for row in read_rows(path, ["task"]))
        yield _Part(path=path, number=number, first=first, runs=runs, tasks=tasks)
        first += runs


@dataclass(frozen=True)
class _Group:
    """Columns that stand in one file: the standard ones (`readout` `None`), or
    those of a readout.
    """

    folder: Path
    key: str
    readout: Readout | None

    def path(self, part: _Part) -> Path:
        return self.folder / f"{self.key}-{part.number:04d}.parquet"

    def columns(self, scored: TokenScores, others: set[str]) -> dict[str, np.ndarray]:
        """Those of `scored` that belong here. `others`: the names of all readouts' columns."""
        if self.readout is None:
            return {name: column for name, column in scored.columns.items() if name not in others}
        return {name: scored.columns[name] for name in self.readout.names if name in scored.columns}


def _groups(folder: Path, request: dict[str, Any], readouts: Sequence[Readout]) -> list[_Group]:
    groups = [_Group(folder, content_hash(request), None)]
    for readout in readouts:
        identity = getattr(readout, "identity", None)
        if not isinstance(identity, str):
            raise ValueError(
                f"{type(readout).__name__} has no `identity`, so its columns cannot be stored; give"
                " it one that says everything they depend on, or use score_log"
            )
        groups.append(_Group(folder, content_hash({**request, "readout": identity}), readout))
    return groups


def _compute(
    part: _Part, missing: Sequence[_Group], score: Callable[..., Iterator[TokenScores]]
) -> None:
    """One pass over a part of the log for all groups of columns that lack it."""
    readouts = [group.readout for group in missing if group.readout is not None]
    others = {name for readout in readouts for name in readout.names}
    scores = score(part, part.first, readouts)
    first = list(islice(scores, 1))
    with ExitStack() as stack:
        writers = {
            group: stack.enter_context(
                whole_file(
                    group.path(part),
                    _schema([n for one in first for n in group.columns(one, others)]),
                )
            )
            for group in missing
        }
        remaining = chain(first, scores)
        while batch := list(islice(remaining, ROWS_AT_ONCE)):
            for group, writer in writers.items():
                rows = [
                    row_of(scored, group.columns(scored, others), group.readout is None)
                    for scored in batch
                ]
                writer.write_table(pa.Table.from_pylist(rows, writer.schema))


def _read(part: _Part, paths: Sequence[Path]) -> Iterator[TokenScores]:
    tables = [read_rows(path) for path in paths]
    for trajectory, first, *others in zip(part, *tables, strict=True):
        scored = scored_of(trajectory, first)
        columns = {
            name: column
            for row in others
            for name, column in scored_of(trajectory, row).columns.items()
        }
        yield replace(scored, columns={**scored.columns, **columns}) if columns else scored
