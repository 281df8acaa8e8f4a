"""The truncation curve: how early is the answer known?

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from forensics.errors import MissingInput
from forensics.statistics import crossed_half_width
from resampling.trace_rollouts import TRUNCATION, Request, Sampler, Trace, draw_branches

FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, kw_only=True)
class TruncationConfig:
    """`fractions` of the sampled tokens, from 0 to 1. `rollouts`: continuations of each cut."""

    fractions: tuple[float, ...] = FRACTIONS
    rollouts: int = 8
    level: float = 0.95

    def __post_init__(self) -> None:
        ordered = all(a < b for a, b in zip(self.fractions, self.fractions[1:], strict=False))
        if (
            len(self.fractions) < 2
            or not ordered
            or (self.fractions[0], self.fractions[-1]) != (0.0, 1.0)
        ):
            raise ValueError(f"fractions must rise from 0 to 1, not {self.fractions}")


@dataclass(frozen=True, kw_only=True)
class TruncationCurve:
    """`success` `[fractions]` with `low` and `high` over tasks; `area` with its interval."""

    fractions: tuple[float, ...]
    success: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    area: float
    area_low: float
    area_high: float
    traces: int
    tasks: int
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
    columns = np.column_stack([tasks, areas])
    half = crossed_half_width(columns.T[:, None], 1.0, config.level).total
    low, high = np.clip(columns.mean(0) - half, 0, 1), np.clip(columns.mean(0) + half, 0, 1)
    return TruncationCurve(
        fractions=config.fractions,
        success=tuple(tasks.mean(0).tolist()),
        low=tuple(low[:-1].tolist()),
        high=tuple(high[:-1].tolist()),
        area=float(areas.mean()),
        area_low=float(low[-1]),
        area_high=float(high[-1]),
        traces=sum(map(len, by_task.values())),
        tasks=len(tasks),
        missing=sum(branch.missing for branch in branches.values()),
    )
