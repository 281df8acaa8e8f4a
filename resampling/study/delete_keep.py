"""Delete and keep: does a token decide? Cut before it or after it, and sample
afresh (2606.25524).

1. *Delete*: continuations from before the token (`kept = t`). *Keep*:
   continuations from after it (`kept = t + 1`). What deleting restores is the
   difference of their pass@1.
2. Control: the same two arms at another position of the same trace whose
   potential is the same. Deleting a token that decides nothing restores
   nothing.
3. pass@k beside pass@1. At k = 64 deletion succeeds nearly always by
   construction (one lucky draw of 64 is enough), and so proves nothing by
   itself; both are shown, and the claim rests on pass@1 against its control.
4. Means by type of cliff, with tasks as the independent unit.
5. The reader's own replay: the same two arms at any token, and others put in
   its place, with other random numbers.

Departures from the paper: fresh samples that neither the search nor the
confirmation has seen, and a control.

The truncation curve (`truncation_curve`): how early is the answer known?

1. Cut the run after a fraction of its sampled tokens, put a text there that
   enforces an answer, and sample on.
2. Success by fraction; the area under it (trapezoids, fractions from 0 to 1) is
   near the final success where the answer was known before it was reasoned out,
   as with a leaked key, and near one half of it where success is earned evenly.
3. Tasks are the independent unit; the interval of the area comes from the
   tasks' own areas.

The area alone is a signal, never a verdict: an easy task is answered early as
well. It is for comparing a policy with its start on the same tasks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forensics.errors import MissingInput, UserError
from forensics.statistics import Estimate, difference_of_shares, mean
from resampling.cliffs.cliffs import TestedToken
from resampling.trace_rollouts import (
    DELETE_KEEP,
    READER,
    TRUNCATION,
    BranchOutcomes,
    Request,
    Sampler,
    Trace,
    draw_branches,
    pass_at,
)


@dataclass(frozen=True, kw_only=True)
class DeleteKeepConfig:
    """`rollouts`: continuations an arm. `ks`: the k of pass@k. `tolerance`: how
    far the potential of a control may lie from that of its cliff. `seed`: of
    the choice of controls.
    """

    rollouts: int = 64
    ks: tuple[int, ...] = (1, 64)
    tolerance: float = 0.1
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class TokenCut:
    """Both arms at one position. `delete`, `keep`: pass@k by k, `None` where
    too few draws came back. `draws`: of the smaller arm.
    """

    token: int
    delete: Mapping[int, float | None]
    keep: Mapping[int, float | None]
    missing: int
    draws: int = 0

    @property
    def restored(self) -> float | None:
        """pass@1 after deletion minus pass@1 with the token kept."""
        delete, keep = self.delete[1], self.keep[1]
        return None if delete is None or keep is None else delete - keep

    def row(self) -> dict[str, Any]:
        """As one JSON object."""
        row = {**vars(self), "restored": self.restored}
        del row["draws"]
        return row


@dataclass(frozen=True, kw_only=True)
class DeleteKeep:
    """One cliff with its control (`None`: the trace has no other position of that potential)."""

    trace: str
    task: str
    kind: str | None
    cliff: TokenCut
    control: TokenCut | None

    def row(self) -> dict[str, Any]:
        """A row of `delete_keep.jsonl`."""
        return {
            "trajectory": self.trace,
            "task": self.task,
            "kind": self.kind,
            "cliff": self.cliff.row(),
            "control": self.control and self.control.row(),
        }


@dataclass(frozen=True)
class Restored:
    """The mean of what deletion restores over cliffs of one type, with its interval over tasks."""

    kind: str
    what: str  # "cliff" or "control"
    estimate: float
    low: float
    high: float
    n: int
    tasks: int


def delete_and_keep(
    cliffs: Sequence[TestedToken],
    potentials: Mapping[str, np.ndarray],
    tasks: Mapping[str, str],
    sampler: Sampler,
    config: DeleteKeepConfig = DeleteKeepConfig(),
) -> list[DeleteKeep]:
    """Both arms of every cliff and of its control. `potentials[trace]` `[N +
    1]` choose the controls.

    `tasks[trace]` names the task of each trace.
    """
    places = [(cliff.trace, cliff.token) for cliff in cliffs]
    taken = set(places)
    controls: list[tuple[str, int] | None] = []  # with the potential that the cliff falls from
    for trace, token in places:
        near = np.abs(potentials[trace][:-1] - potentials[trace][token]) <= config.tolerance
        free = [t for t in np.flatnonzero(near).tolist() if (trace, t) not in taken]
        stream = np.random.default_rng([config.seed, token, *trace.encode()])
        controls.append((trace, int(stream.choice(free))) if free else None)

    def requests(place: tuple[str, int]) -> list[Request]:
        return _cuts(*place, config.rollouts, DELETE_KEEP)

    wanted = [*places, *filter(None, controls)]
    branches = draw_branches(sampler, (one for place in wanted for one in requests(place)))

    def cut(place: tuple[str, int]) -> TokenCut:
        arms = [branches[request.branch] for request in requests(place)]
        delete, keep = (
            {k: pass_at(k, arm.scores) for k in dict.fromkeys((1, *config.ks))} for arm in arms
        )
        return TokenCut(
            token=place[1],
            delete=delete,
            keep=keep,
            missing=sum(arm.missing for arm in arms),
            draws=min(len(arm.outcomes) for arm in arms),
        )

    return [
        DeleteKeep(
            trace=cliff.trace,
            task=tasks[cliff.trace],
            kind=cliff.kind,
            cliff=cut(place),
            control=control and cut(control),
        )
        for cliff, place, control in zip(cliffs, places, controls, strict=True)
    ]


def restored_by_kind(rows: Sequence[DeleteKeep], level: float = 0.95) -> list[Restored]:
    """Means over cliffs and over their controls, for every type and for all;
    kinds with one task are left out.

    A mean of task means, with a t interval over tasks. Its pseudo-tasks lie one
    standard error of a single task away, not a full score: a task's number is a
    difference of shares of many draws, so what one more task could differ by is
    seen in the others.
    """
    kinds = sorted({row.kind or "unknown" for row in rows})
    restored = []
    for kind in (*kinds, "all"):
        chosen = [row for row in rows if kind in ("all", row.kind or "unknown")]
        for what in ("cliff", "control"):
            draws, by_task = [], dict[str, list[float]]()
            for row in chosen:
                cut: TokenCut | None = getattr(row, what)
                if cut is not None and cut.restored is not None:
                    draws.append(cut.draws)
                    by_task.setdefault(row.task, []).append(cut.restored)
            if len(by_task) < 2:
                continue
            means = np.array([np.mean(by_task[task]) for task in sorted(by_task)])
            reach = float(1 / np.sqrt(2 * max(min(draws), 1)))
            found = mean(means, reach=reach, bounds=(-1, 1), level=level)
            restored.append(Restored(kind, what, *found.ends, len(draws), found.clusters))
    return restored


def _cuts(trace: str, token: int, n: int, first: int) -> list[Request]:
    """Continuations from before a token and from after it."""
    return [Request(trace=trace, kept=kept, n=n, first=first) for kept in (token, token + 1)]


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One token: runs that go on from before it (`deleted`), from after it
    (`kept`), with another in its place (`others`, `None` where it is the only
    token that can be drawn). `restored`: deleted minus kept.
    """

    trace: str
    token: int
    probability: float
    deleted: BranchOutcomes
    kept: BranchOutcomes
    others: BranchOutcomes | None

    @property
    def restored(self) -> Estimate | None:
        deleted, kept = self.deleted.share, self.kept.share
        return difference_of_shares(deleted, kept) if deleted and kept else None

    def row(self) -> dict[str, Any]:
        """As one JSON object."""
        restored, low, high = self.restored.ends if self.restored else (None,) * 3
        return {
            "trajectory": self.trace,
            "token": self.token,
            "probability": self.probability,
            "deleted": self.deleted.row(),
            "kept": self.kept.row(),
            "others": self.others and self.others.row(),
            "restored": restored,
            "low": low,
            "high": high,
        }


def replay_tokens(
    places: Sequence[tuple[Trace, int]], sampler: Sampler, n: int, first: int = READER
) -> list[Replayed]:
    """`n` continuations of each arm. `first`: the number of the first, so that
    nothing is drawn a second time.

    Raises `UserError` for a token that its run does not have.
    """
    for trace, token in places:
        if not 0 <= token < len(trace):
            raise UserError(
                f"trajectory {trace.id} has {len(trace)} sampled tokens, 0 to {len(trace) - 1}, so"
                f" none is number {token}"
            )
    requests = [_cuts(trace.id, token, n, first) for trace, token in places]
    for (trace, token), row in zip(places, requests, strict=True):
        if trace.probabilities[token] < 1:  # else nothing else can be drawn
            row.append(Request(trace=trace.id, kept=token, n=n, first=first, avoid=True))
    branches = draw_branches(sampler, (request for row in requests for request in row))
    replayed = []
    for (trace, token), row in zip(places, requests, strict=True):
        deleted, kept, *others = (branches[request.branch] for request in row)
        replayed.append(
            Replayed(
                trace=trace.id,
                token=token,
                probability=float(trace.probabilities[token]),
                deleted=deleted,
                kept=kept,
                others=others[0] if others else None,
            )
        )
    return replayed


FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, kw_only=True)
class TruncationConfig:
    """`fractions` of the sampled tokens, from 0 to 1. `rollouts`: continuations of each cut."""

    fractions: tuple[float, ...] = FRACTIONS
    rollouts: int = 8
    level: float = 0.95

    def __post_init__(self) -> None:
        ordered = self.fractions == tuple(sorted({*self.fractions}))
        if not ordered or (*self.fractions[:1], *self.fractions[-1:]) != (0.0, 1.0):
            raise ValueError(f"fractions must rise from 0 to 1, not {self.fractions}")


@dataclass(frozen=True, kw_only=True)
class TruncationCurve:
    """`success` at each of the `fractions`, and the `area` under it, over tasks."""

    fractions: tuple[float, ...]
    success: tuple[Estimate, ...]
    area: Estimate
    traces: int
    missing: int


def truncation_curve(
    traces: Sequence[Trace],
    sampler: Sampler,
    answer: Callable[[Trace, int], tuple[int, ...]],
    config: TruncationConfig = TruncationConfig(),
) -> TruncationCurve:
    """Cut every trace and enforce an answer: `answer(trace, kept)` gives the
    tokens to put after the cut.

    A cut that lost every rollout takes its trace out. Raises `MissingInput`
    where fewer than two tasks are left.
    """
    requests = {
        (trace.id, fraction): Request(
            trace=trace.id,
            kept=kept,
            n=config.rollouts,
            first=TRUNCATION,
            append=answer(trace, kept),
        )
        for trace in traces
        for fraction in config.fractions
        for kept in [round(fraction * len(trace))]
    }
    branches = draw_branches(sampler, requests.values())
    by_task: dict[str, list[np.ndarray]] = {}
    for trace in traces:
        scores = [
            branches[requests[trace.id, fraction].branch].scores for fraction in config.fractions
        ]
        if all(len(part) for part in scores):
            by_task.setdefault(trace.task, []).append(np.array([part.mean() for part in scores]))
    if len(by_task) < 2:
        raise MissingInput(
            "Fewer than two tasks could be cut and sampled again.", "Give the runs of more tasks."
        )
    tasks = np.array([np.mean(by_task[task], axis=0) for task in sorted(by_task)])  # [tasks, cuts]
    areas = (tasks[:, 1:] + tasks[:, :-1]) / 2 @ np.diff(config.fractions)
    *success, area = (
        mean(column, reach=1.0, bounds=(0, 1), level=config.level) for column in (*tasks.T, areas)
    )
    return TruncationCurve(
        fractions=config.fractions,
        success=tuple(success),
        area=area,
        traces=sum(map(len, by_task.values())),
        missing=sum(branch.missing for branch in branches.values()),
    )
