"""Columns kept beside a case's logs, so that a second instrument costs nothing.

1. A request is a log, two checkpoints, settings, readouts and, where only some are
   wanted, tasks. Its address is the content hash of what its numbers rest on: no
   path, no time, no name that may have come to mean other weights (a policy in
   memory is named by its weights as they are now).
2. Each part of the log has a file (Parquet, written atomically), so a case that was
   killed goes on where it stopped.
3. The models are loaded when something is missing, and not before. Of a log
   without token ids the tokens are kept too.

A readout that is to be stored needs an attribute `identity`, a text that says
everything its numbers depend on. It counts trajectories over the whole log.
Where a policy is no model on this machine its columns are missing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from forensics.errors import OutsideFailure, UserError
from forensics.policies.sampled_tokens import TokenScores, with_ids
from forensics.policies.score_columns import Readout
from forensics.policies.weights import identity_of_weights
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Trajectory, content_hash
from forensics.records.tables import read_rows, read_trajectories, whole_file

PLACES = {"step": np.int64, "place": np.int64, "token": np.int64}
ROWS_AT_ONCE = 256
VERSION = 3  # raised when the numbers of a standard column change, or what is kept


class StoredLog(Protocol):
    """Trajectories in files, named by their content."""

    @property
    def key(self) -> str: ...
    @property
    def paths(self) -> Sequence[Path]: ...


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


def _schema(names: Iterable[str]) -> pa.Schema:
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


def row_of(scored: TokenScores) -> dict[str, Any]:
    """`ids`: of each step, where the log does not have them."""
    steps = scored.trajectory.steps
    return {
        "id": scored.trajectory.id,
        **{name: getattr(scored, name) for name in PLACES},
        "unread": sorted(scored.unread),
        "retokenised": scored.retokenised,
        "ids": [step.token_ids for step in steps] if scored.retokenised else None,
        **scored.columns,
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
    log: StoredLog,
    policy: PolicyRef,
    reference: PolicyRef | None,
    *,
    settings: SamplingSettings,
    readouts: Sequence[Readout] = (),
    tasks: frozenset[str] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Iterator[TokenScores]:
    """The trajectories of a log with all columns, from `folder` where they are
    there, computed where they are not. `tasks`: only these. `progress` is told how
    many runs of how many were reached.
    """
    parts, total = list[_Part](), 0
    for path in log.paths:
        runs = sum(tasks is None or row["task"] in tasks for row in read_rows(path, ["task"]))
        parts.append(_Part(path=path, first=total, runs=runs, tasks=tasks))
        total += runs
    unnamed = policy.identity is None or (reference is not None and reference.identity is None)

    @cache
    def models() -> tuple[Any, Any]:
        ours = policy.load()
        same = not unnamed and reference is not None and reference.identity == policy.identity
        return ours, ours if same else reference.load() if reference else None

    def scores(runs: Iterable[Trajectory], first: int) -> Iterator[TokenScores]:
        from forensics.policies.scored_log import score_log

        here = all("weights" in one.capabilities for one in models() if one is not None)
        return score_log(
            *models(),
            runs,
            settings=settings,
            readouts=readouts if here else (),
            first=first,
            progress=lambda reached: progress(reached, total),
        )

    if unnamed:
        yield from scores(chain.from_iterable(parts), 0)
    else:
        request = {
            "version": VERSION,
            "log": log.key,
            "policy": policy.identity,
            "settings": settings.content(),
            "reference": reference.identity if reference else None,
            "readouts": [_identity(readout) for readout in readouts],
            "tasks": None if tasks is None else content_hash(sorted(tasks)),
        }
        key = content_hash(request)
        for number, part in enumerate(parts):
            path = folder / f"{key}-{number:04d}.parquet"
            if not path.exists():
                _write(path, scores(part, part.first))
            for trajectory, row in zip(part, read_rows(path), strict=True):
                yield scored_of(trajectory, row)
    progress(total, total)


def _identity(readout: Readout) -> str:
    identity = getattr(readout, "identity", None)
    if not isinstance(identity, str):
        raise ValueError(
            f"{type(readout).__name__} has no `identity`, so its columns cannot be stored; give"
            " it one that says everything they depend on, or use score_log"
        )
    return identity


def _write(path: Path, scores: Iterator[TokenScores]) -> None:
    first = list(islice(scores, 1))
    remaining = chain(first, scores)
    with whole_file(path, _schema(name for one in first for name in one.columns)) as writer:
        while batch := [row_of(scored) for scored in islice(remaining, ROWS_AT_ONCE)]:
            writer.write_table(pa.Table.from_pylist(batch, writer.schema))


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A file of the log: `runs` of it are wanted, the first of which is number `first` of all."""

    path: Path
    first: int
    runs: int
    tasks: frozenset[str] | None

    def __iter__(self) -> Iterator[Trajectory]:
        return (
            run
            for run in read_trajectories(self.path)
            if self.tasks is None or run.task in self.tasks
        )
