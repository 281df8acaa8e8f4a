"""Potentials with intervals for every prefix of a trace, from rollouts that are pooled and used again.

1. Over a stretch of tokens the potential moves by at most `1 - prod(pi)`. Prefixes are grouped into stretches where
   that is at most `pooled`; a stretch has one estimate, and its interval is widened by the bound.
2. A rollout from k that repeats the trace for j more tokens is an exact draw for the prefixes k to k + j. For each
   stretch every rollout counts at most once, however many of its prefixes it passed (clustered by rollout): its draw is
   that of the first prefix of the stretch which it stood on, and whether it got there depended on tokens before it.
3. Plans look only at probabilities: a stretch is asked for what earlier ones are not expected to carry to it. With a
   budget the plan is made once and intervals are exact (Clopper and Pearson; for fractional scores a bet as in
   `resampling.evalues`). With a wanted precision the rounds go on until it is reached, and the intervals hold at any
   stopping time.
4. Two prefixes share rollouts, so the interval of their difference takes the covariance in.

The recorded run itself is never counted: it was chosen for its outcome. Our own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from forensics.errors import UserError
from forensics.statistics import clopper_pearson
from resampling.drawing import Bill, Budget, Drawing
from resampling.rollouts import Request, Rollout, Sampler
from resampling.traces import Trace

Floats = NDArray[np.float64]
MOST = 4096  # draws that any stretch is asked for


@dataclass(frozen=True, kw_only=True)
class PotentialConfig:
    """`pooled`: how far the potential may move inside a stretch. `level`: of the intervals.

    One of `budget` (for all traces together) and `precision` (half the width of every interval, `pooled` included).
    """

    pooled: float = 0.02
    level: float = 0.95
    budget: Budget = field(default_factory=Budget)
    precision: float | None = None

    def __post_init__(self) -> None:
        if self.precision is None and self.budget == Budget():
            raise UserError("say how many rollouts or tokens to spend, or which precision to reach")
        if self.precision is not None and not self.pooled < self.precision < 1:
            raise UserError(f"a precision of {self.precision} cannot be reached with stretches of {self.pooled}")


@dataclass(frozen=True, kw_only=True)
class Potentials:
    """By prefix `[N + 1]`: estimate, interval, and the rollouts behind it; NaN, 0 and 1 where `draws` is 0."""

    trace: str
    estimate: Floats
    low: Floats
    high: Floats
    draws: NDArray[np.intp]


def stretches(trace: Trace, pooled: float) -> list[tuple[int, int]]:
    """First and last prefix of each stretch, in order; the potential moves by at most `pooled` inside one."""
    found, first, kept = [], 0, 1.0
    for token, pi in enumerate(trace.probabilities.tolist()):
        kept *= pi
        if 1 - kept > pooled:
            found.append((first, token))
            first, kept = token + 1, 1.0
    return [*found, (first, len(trace))]


def estimate_potentials(
    trace: Trace, rollouts: Iterable[Rollout], *, pooled: float = 0.02, level: float = 0.95, anytime: bool = False,
) -> Potentials:
    """Every plain rollout of the trace, used for each stretch that it stood on.

    `anytime`: intervals that hold although the number of rollouts depended on their outcomes.
    """
    parts = stretches(trace, pooled)
    outcomes: list[list[float]] = [[] for _ in parts]
    starts = np.array([first for first, _ in parts])
    for rollout in rollouts:
        if rollout.outcome is None or rollout.append or rollout.avoid:
            continue
        first, last = np.searchsorted(starts, [rollout.kept, rollout.kept + rollout.followed], side="right") - 1
        for place in range(int(first), int(last) + 1):
            outcomes[place].append(rollout.outcome)
    rows = [_row(values, _moved(trace, part), level, anytime) for values, part in zip(outcomes, parts, strict=True)]
    sizes = [last - first + 1 for first, last in parts]
    estimate, low, high = (np.repeat([row[i] for row in rows], sizes) for i in range(3))
    return Potentials(
        trace=trace.id, estimate=estimate, low=low, high=high, draws=np.repeat([len(v) for v in outcomes], sizes),
    )


def _moved(trace: Trace, part: tuple[int, int]) -> float:
    """How far the potential may move inside a stretch."""
    return float(1 - np.exp(trace.logprobs[part[0] : part[1]].sum()))


def _row(values: Sequence[float], slack: float, level: float, anytime: bool) -> tuple[float, float, float]:
    if not values:
        return np.nan, 0.0, 1.0
    low, high = mean_interval(values, level, anytime=anytime)
    return float(np.mean(values)), max(low - slack, 0.0), min(high + slack, 1.0)


def mean_interval(values: Sequence[float], level: float, *, anytime: bool) -> tuple[float, float]:
    """Of the mean of independent outcomes in [0, 1]."""
    outcomes = np.asarray(values, float)
    if anytime or not np.isin(outcomes, (0.0, 1.0)).all():
        return _betting(outcomes, level)
    return clopper_pearson(float(outcomes.sum()), len(outcomes), level=level)


def _betting(outcomes: Floats, level: float, step: float = 0.005) -> tuple[float, float]:
    """All means against which no mixture of bets has won `1 / (1 - level)`, rounded outwards."""
    nulls = np.arange(step, 1, step)[:, None]
    tilt = ((np.arange(40) + 0.5) / 40 - nulls) / (nulls * (1 - nulls))
    values, counts = np.unique(outcomes, return_counts=True)
    growth = sum(
        (n * np.log1p(tilt * (value - nulls)) for value, n in zip(values, counts, strict=True)), np.zeros_like(tilt)
    )
    top = growth.max(1)
    won = top + np.log(np.exp(growth - top[:, None]).mean(1))
    kept = nulls[:, 0][won < -np.log(1 - level)]
    if not len(kept):
        return float(outcomes.mean()), float(outcomes.mean())
    return float(max(kept[0] - step, 0.0)), float(min(kept[-1] + step, 1.0))


def potential_change(
    rollouts: Iterable[Rollout], before: int, after: int, level: float = 0.95,
) -> tuple[float, float, float] | None:
    """`p[before] - p[after]`, low and high, knowing which rollouts both share; `None` with under two draws each."""
    plain = [each for each in rollouts if each.outcome is not None and not each.append and not each.avoid]
    outcomes = np.array([each.outcome for each in plain], float)
    weights = np.zeros((2, len(plain)))
    for row, prefix in enumerate((before, after)):
        weights[row] = [each.kept <= prefix <= each.kept + each.followed for each in plain]
    counts = weights.sum(1)
    if counts.min(initial=2) < 2 or not len(plain):
        return None
    means = (weights * outcomes).sum(1) / counts
    parts = weights * (outcomes - means[:, None]) / counts[:, None]
    error = float(np.sqrt(((parts[0] - parts[1]) ** 2).sum())) * float(norm.ppf((1 + level) / 2))
    change = float(means[0] - means[1])
    return change, max(change - error, -1.0), min(change + error, 1.0)


def find_potentials(
    traces: Sequence[Trace], sampler: Sampler, config: PotentialConfig,
) -> tuple[dict[str, Potentials], Bill]:
    """Potentials of every trace, and what they cost."""
    drawing, rollouts = Drawing(sampler=sampler), {trace.id: list[Rollout]() for trace in traces}
    if config.precision is None:
        _draw_once(traces, drawing, config, rollouts)
    else:
        _draw_until(traces, drawing, config, rollouts)
    return {trace.id: _estimated(trace, rollouts, config) for trace in traces}, drawing.total


def _estimated(trace: Trace, rollouts: Mapping[str, list[Rollout]], config: PotentialConfig) -> Potentials:
    return estimate_potentials(
        trace, rollouts[trace.id], pooled=config.pooled, level=config.level, anytime=config.precision is not None,
    )


def plan(trace: Trace, pooled: float, draws: int) -> list[Request]:
    """Requests after which every stretch can expect `draws` draws, with those that earlier ones carry on to it."""
    requests, carried, place = [], 0.0, 0
    for first, _ in stretches(trace, pooled):
        carried *= float(np.exp(trace.logprobs[place:first].sum()))
        wanted = int(np.ceil(draws - carried - 1e-9))
        if wanted > 0:
            requests.append(Request(trace=trace.id, kept=first, n=wanted))
            carried += wanted
        place = first
    return requests


def _draw_once(
    traces: Sequence[Trace], drawing: Drawing, config: PotentialConfig, rollouts: dict[str, list[Rollout]],
) -> None:
    """The largest equal number of draws that the budget pays for."""
    lengths = {trace.id: len(trace) for trace in traces}
    best: list[Request] = []
    for draws in range(1, MOST):
        requests = [request for trace in traces for request in plan(trace, config.pooled, draws)]
        if not _within(requests, lengths, config.budget):
            break
        best = requests
    if not best:
        raise UserError("the budget does not pay for one draw at every stretch of every trace; give more")
    for rollout in drawing.draw(best):
        rollouts[rollout.trace].append(rollout)


def _within(requests: Sequence[Request], lengths: Mapping[str, int], budget: Budget) -> bool:
    """Tokens are counted as if every rollout ended where the recorded run did."""
    rollouts = sum(request.n for request in requests)
    tokens = sum(request.n * (lengths[request.trace] - request.kept) for request in requests)
    return rollouts <= (budget.rollouts or np.inf) and tokens <= (budget.tokens or np.inf)


def _draw_until(
    traces: Sequence[Trace], drawing: Drawing, config: PotentialConfig, rollouts: dict[str, list[Rollout]],
) -> None:
    assert config.precision is not None
    open_traces, draws, step = list(traces), 0, 32
    while open_traces and draws < MOST and not drawing.spent(config.budget):
        requests = [request for trace in open_traces for request in plan(trace, config.pooled, step)]
        for rollout in drawing.draw(requests, config.budget):
            rollouts[rollout.trace].append(rollout)
        draws += step
        step = max(step, draws // 2)
        open_traces = [trace for trace in open_traces if _width(_estimated(trace, rollouts, config)) > config.precision]


def _width(potentials: Potentials) -> float:
    return float((potentials.high - potentials.low).max() / 2)
