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
from forensics.statistics import Estimate, mean
from resampling.trace_rollouts import TRUNCATION, Request, Sampler, Trace, draw_branches

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
