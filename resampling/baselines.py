"""Published ways to find cliffs, on the same sampler, to be compared with.

1. `published_rule` (2606.25524): 64 continuations at every token; a cliff where the estimate falls by more than
   `0.1 + 1.645 sqrt(p(1-p)/64 + p'(1-p')/64)`. Prefix caching is taken for granted: only generated tokens count.
2. `halving` (Pivotal Token Search, 2412.08905, as in codelion/pts): estimate both ends of a segment, halve it while
   they differ by the gap or more, report single tokens that do. Kinder than the published code, which estimates both
   ends of every segment anew: here every prefix is estimated once.

Both report falls only. Missing outcomes are left out; a prefix without any outcome has no estimate and no cliff.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resampling.drawing import Drawing
from resampling.rollouts import Request, Sampler
from resampling.traces import Trace

CONTINUATIONS = 64
GAP = 0.2


@dataclass(frozen=True, kw_only=True)
class Found:
    """(trace, token) of every reported cliff, and what it cost."""

    cliffs: frozenset[tuple[str, int]]
    rollouts: int
    tokens: int


def published_rule(traces: Sequence[Trace], sampler: Sampler, continuations: int = CONTINUATIONS) -> Found:
    """A cliff at every token whose estimated potential falls by more than the published threshold."""
    drawing, cliffs = Drawing(sampler=sampler), set()
    for trace in traces:
        p = _potentials(drawing, trace, range(len(trace) + 1), continuations)
        cliffs |= {(trace.id, int(token)) for token in np.flatnonzero(published_cliffs(p, continuations))}
    return Found(cliffs=frozenset(cliffs), rollouts=drawing.total.rollouts, tokens=drawing.total.tokens)


def published_cliffs(potentials: NDArray[np.float64], continuations: int = CONTINUATIONS) -> NDArray[np.bool_]:
    """The published rule on estimates `[N + 1]`: which tokens `[N]` it calls cliffs."""
    spread = potentials * (1 - potentials) / continuations
    return np.asarray(-np.diff(potentials) > 0.1 + 1.645 * np.sqrt(spread[:-1] + spread[1:]))


def halving(
    traces: Sequence[Trace], sampler: Sampler, continuations: int = CONTINUATIONS, gap: float = GAP,
) -> Found:
    """Single tokens that halving comes down to and that fall by `gap` or more."""
    drawing, cliffs = Drawing(sampler=sampler), set()
    for trace in traces:
        cliffs |= {(trace.id, token) for token in _halved(drawing, trace, continuations, gap)}
    return Found(cliffs=frozenset(cliffs), rollouts=drawing.total.rollouts, tokens=drawing.total.tokens)


def _halved(drawing: Drawing, trace: Trace, continuations: int, gap: float) -> set[int]:
    known: dict[int, float] = {}
    segments, found = [(0, len(trace))], set()
    while segments:
        ends = sorted({end for segment in segments for end in segment} - known.keys())
        known.update(zip(ends, _potentials(drawing, trace, ends, continuations).tolist(), strict=True))
        halves = []
        for first, last in segments:
            fall = known[first] - known[last]
            if not abs(fall) >= gap:
                continue
            if last - first > 1:
                halves += [(first, (first + last) // 2), ((first + last) // 2, last)]
            elif fall > 0:
                found.add(first)
        segments = halves
    return found


def _potentials(
    drawing: Drawing, trace: Trace, prefixes: Iterable[int], continuations: int,
) -> NDArray[np.float64]:
    """Plain estimates at these prefixes, each from its own rollouts; NaN where no outcome came."""
    places = list(prefixes)
    sums, counts = dict.fromkeys(places, 0.0), dict.fromkeys(places, 0)
    for rollout in drawing.draw([Request(trace=trace.id, kept=kept, n=continuations) for kept in places]):
        if rollout.outcome is not None:
            sums[rollout.kept] += rollout.outcome
            counts[rollout.kept] += 1
    return np.array([sums[kept] / counts[kept] if counts[kept] else np.nan for kept in places])
