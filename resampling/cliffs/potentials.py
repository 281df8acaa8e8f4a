"""Potentials with intervals for every prefix of a trace, from rollouts that are
pooled and used again.

1. Over a stretch of tokens the potential moves by at most `1 - prod(pi)`.
   Prefixes are grouped into stretches where that is at most `pooled`; a stretch
   has one estimate, and its interval is widened by the bound.
2. A rollout from k that repeats the trace for j more tokens is an exact draw
   for the prefixes k to k + j. For each stretch every rollout counts at most
   once, however many of its prefixes it passed (clustered by rollout): its draw
   is that of the first prefix of the stretch which it stood on, and whether it
   got there depended on tokens before it.
3. Plans look only at probabilities: a stretch is asked for what earlier ones
   are not expected to carry to it. With a budget the plan is made once and
   intervals are exact (Clopper and Pearson; for fractional scores a bet as in
   `forensics.statistics.evalues`). With a wanted precision the rounds go on until it is
   reached, and the intervals hold at any stopping time.

The recorded run itself is never counted: it was chosen for its outcome. Our
own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from forensics.errors import UserError
from forensics.statistics import clopper_pearson
from resampling.cliffs.cliff_search import DrawBudget, DrawCost, Draws
from resampling.trace_rollouts import Request, Rollout, Sampler, Trace

Floats = NDArray[np.float64]
MOST = 4096  # draws that any stretch is asked for


@dataclass(frozen=True, kw_only=True)
class PotentialConfig:
    """`pooled`: how far the potential may move inside a stretch. `level`: of
    the intervals.

    One of `budget` (for all traces together) and `precision` (half the width of
    every interval, `pooled` included).
    """

    pooled: float = 0.02
    level: float = 0.95
    budget: DrawBudget = field(default_factory=DrawBudget)
    precision: float | None = None

    def __post_init__(self) -> None:
        if self.precision is None and self.budget == DrawBudget():
            raise UserError("say how many rollouts or tokens to spend, or which precision to reach")
        if self.precision is not None and not self.pooled < self.precision < 1:
            raise UserError(
                f"a precision of {self.precision} cannot be reached with stretches of {self.pooled}"
            )


@dataclass(frozen=True, kw_only=True)
class Potentials:
    """By prefix `[N + 1]`: estimate, interval, and the rollouts behind it; NaN,
    0 and 1 where `draws` is 0.
    """

    trace: str
    estimate: Floats
    low: Floats
    high: Floats
    draws: NDArray[np.intp]


def stretches(trace: Trace, pooled: float) -> list[tuple[int, int]]:
    """First and last prefix of each stretch, in order; the potential moves by
    at most `pooled` inside one.
    """
    parts, first, kept = [], 0, 1.0
    for token, pi in enumerate(trace.probabilities.tolist()):
        kept *= pi
        if 1 - kept > pooled:
            parts.append((first, token))
            first, kept = token + 1, 1.0
    return [*parts, (first, len(trace))]


def estimate_potentials(
    trace: Trace,
    rollouts: Iterable[Rollout],
    *,
    pooled: float = 0.02,
    level: float = 0.95,
    anytime: bool = False,
) -> Potentials:
    """Every plain rollout of the trace, used for each stretch that it stood on.

    `anytime`: intervals that hold although the number of rollouts depended on
    their outcomes.
    """
    parts = stretches(trace, pooled)
    outcomes: list[list[float]] = [[] for _ in parts]
    starts = np.array([first for first, _ in parts])
    for rollout in rollouts:
        if rollout.outcome is not None and not rollout.append and not rollout.avoid:
            ends = [rollout.kept, rollout.kept + rollout.followed]
            first, last = np.searchsorted(starts, ends, side="right").tolist()
            for values in outcomes[first - 1 : last]:
                values.append(rollout.outcome)
    rows = []
    for values, (first, last) in zip(outcomes, parts, strict=True):
        if not values:
            rows.append((np.nan, 0.0, 1.0))
            continue
        low, high = mean_interval(values, level, anytime=anytime)
        moved = float(1 - np.exp(trace.logprobs[first:last].sum()))
        rows.append((float(np.mean(values)), max(low - moved, 0.0), min(high + moved, 1.0)))
    sizes = [last - first + 1 for first, last in parts]
    estimate, low_ends, high_ends = np.repeat(rows, sizes, axis=0).T
    return Potentials(
        trace=trace.id,
        estimate=estimate,
        low=low_ends,
        high=high_ends,
        draws=np.repeat([len(values) for values in outcomes], sizes),
    )


def mean_interval(values: Sequence[float], level: float, *, anytime: bool) -> tuple[float, float]:
    """Of the mean of independent outcomes in [0, 1]."""
    outcomes = np.asarray(values, float)
    if not anytime and np.isin(outcomes, (0.0, 1.0)).all():
        return clopper_pearson(float(outcomes.sum()), len(outcomes), level=level)
    # all means against which no mixture of bets has won `1 / (1 - level)`, rounded outwards
    step = 0.005
    nulls = np.arange(step, 1, step)[:, None]
    tilt = ((np.arange(40) + 0.5) / 40 - nulls) / (nulls * (1 - nulls))
    seen, counts = np.unique(outcomes, return_counts=True)
    growth = sum(
        (n * np.log1p(tilt * (value - nulls)) for value, n in zip(seen, counts, strict=True)),
        np.zeros_like(tilt),
    )
    top = growth.max(1)
    won = top + np.log(np.exp(growth - top[:, None]).mean(1))
    kept = nulls[:, 0][won < -np.log(1 - level)]
    if not len(kept):
        return float(outcomes.mean()), float(outcomes.mean())
    return float(max(kept[0] - step, 0.0)), float(min(kept[-1] + step, 1.0))


def find_potentials(
    traces: Sequence[Trace],
    sampler: Sampler,
    config: PotentialConfig,
) -> tuple[dict[str, Potentials], DrawCost]:
    """Potentials of every trace, and what they cost."""
    draws, rollouts = Draws(sampler=sampler), {trace.id: list[Rollout]() for trace in traces}

    def draw(requests: Sequence[Request]) -> dict[str, Potentials]:
        for rollout in draws.draw(requests, None if config.precision is None else config.budget):
            rollouts[rollout.trace].append(rollout)
        return {
            trace.id: estimate_potentials(
                trace,
                rollouts[trace.id],
                pooled=config.pooled,
                level=config.level,
                anytime=config.precision is not None,
            )
            for trace in traces
        }

    if config.precision is None:
        return draw(affordable_plan(traces, config)), draws.total
    estimates, wanted, drawn, step = draw(()), list(traces), 0, 32
    while wanted and drawn < MOST and not draws.spent(config.budget):
        estimates = draw([one for trace in wanted for one in plan(trace, config.pooled, step)])
        drawn += step
        step = max(step, drawn // 2)
        wanted = [
            trace
            for trace in wanted
            if (estimates[trace.id].high - estimates[trace.id].low).max() / 2 > config.precision
        ]
    return estimates, draws.total


def plan(trace: Trace, pooled: float, draws: int) -> list[Request]:
    """Requests after which every stretch can expect `draws` draws, with those
    that earlier ones carry on to it.
    """
    requests, carried, place = [], 0.0, 0
    for first, _ in stretches(trace, pooled):
        carried *= float(np.exp(trace.logprobs[place:first].sum()))
        wanted = int(np.ceil(draws - carried - 1e-9))
        if wanted > 0:
            requests.append(Request(trace=trace.id, kept=first, n=wanted))
            carried += wanted
        place = first
    return requests


def affordable_plan(traces: Sequence[Trace], config: PotentialConfig) -> list[Request]:
    """Requests for the largest equal number of draws that the budget pays for."""
    lengths = {trace.id: len(trace) for trace in traces}
    best: list[Request] = []
    for draws in range(1, MOST):
        requests = [request for trace in traces for request in plan(trace, config.pooled, draws)]
        # tokens are counted as if every rollout ended where the recorded run did
        tokens = sum(one.n * (lengths[one.trace] - one.kept) for one in requests)
        rollouts = sum(one.n for one in requests)
        if rollouts > config.budget.rollouts or tokens > config.budget.tokens:
            break
        best = requests
    if not best:
        raise UserError(
            "the budget does not pay for one draw at every stretch of every trace; give more"
        )
    return best
