"""The potentials of whole traces as they are shown: a posterior over every rollout, those of the confirmation too.

The search stops looking once it suspects; what confirmed a suspicion says most about the potential there. So rollouts
are booked once more as they pass, and the chain of `resampling.chain` is read off in the end, with the wary prior that
allows jumps anywhere. A prior it is still: what must not rest on one is in `resampling.potentials`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from resampling.chain import Chains
from resampling.rollouts import Request, Rollout, Sampler
from resampling.search import SearchConfig, batches
from resampling.steps import Tally, steps_of
from resampling.traces import Trace


@dataclass(frozen=True)
class Booked:
    """A sampler that books whatever passes on the tallies of its traces."""

    sampler: Sampler
    tallies: Mapping[str, Tally] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return self.sampler.identity

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        for rollout in self.sampler.draw(requests):
            self.tallies[rollout.trace].book([rollout])
            yield rollout


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Potentials by prefix `[N + 1]`: posterior means with 95 % ranges; NaN for a trace without any outcome."""

    potentials: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def booked(traces: Sequence[Trace], sampler: Sampler) -> Booked:
    """Ready to book the rollouts of these traces."""
    return Booked(sampler, {trace.id: Tally(trace, steps_of(trace)) for trace in traces})


def curves(traces: Sequence[Trace], tallies: Mapping[str, Tally], config: SearchConfig) -> dict[str, Curve]:
    """One curve for each trace, from what was booked."""
    prior = replace(config.chain, jump=max(config.wary, config.chain.jump))
    found: dict[str, Curve] = {}
    for batch in batches(sorted(traces, key=lambda trace: trace.id)):
        mine = [tallies[trace.id] for trace in batch]
        chains = Chains([tally.steps for tally in mine], prior)
        row_, step_ = np.nonzero(np.ones((len(batch), chains.width), bool))
        chains.update(row_, step_, mine)
        chains.update_ends(mine)
        chains.infer()
        found |= {trace.id: _curve(trace, tally, chains, row)
                  for row, (trace, tally) in enumerate(zip(batch, mine, strict=True))}
    return found


def _curve(trace: Trace, tally: Tally, chains: Chains, row: int) -> Curve:
    if not tally.draws.sum():
        unknown = np.full(len(trace) + 1, np.nan)
        return Curve(potentials=unknown, low=unknown, high=unknown)
    states = np.searchsorted(tally.steps.tokens, np.arange(len(trace) + 1), side="left")
    total = np.cumsum(chains.marginal[row], axis=1)
    low, high = (chains.grid[np.argmax(total >= edge, axis=1)] for edge in (0.025, 0.975))
    return Curve(potentials=chains.mean[row][states], low=low[states], high=high[states])
