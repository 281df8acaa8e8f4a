"""Where may the cliffs be? An adaptive search that stops when few can be left unseen.

1. Prune: a token with `1 - pi < delta` cannot drop the potential by delta; it is ruled out, provably and for free.
2. A coarse start: a few rollouts from prefixes spread over the whole trace, so that moves that undo one another are not
   missed by comparing ends.
3. Rounds: infer the posterior of every drop (`resampling.chain`), then draw from the prefixes that tell most about the
   steps that are least certain. All traces advance side by side.
4. Moves that undo one another are the hardest to see, and looking for them everywhere doubles the cost. The first
   rounds think jumps rare (`chain.jump`). Where they nevertheless meet sudden rises in more than a few traces, or where
   the traces are too few to tell (`trusting`), the search goes on with a wary prior (`wary`).
5. A trace is done when the expected number of its cliffs outside the candidates, `sum of P(drop >= delta)` over tokens
   with less than `candidate` each, is below `missed`, or after `rounds`.

What it returns is a list of suspicions with posteriors that rest on a prior. Nothing is reported on their strength:
`resampling.confirm` tests them on fresh rollouts, without that prior.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from resampling.chain import ChainConfig, Chains
from resampling.drawing import Budget, Drawing
from resampling.rollouts import Request
from resampling.steps import Tally, steps_of
from resampling.traces import Trace

BATCH = 8000  # steps held in memory at once; each takes some 30 kB


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """`start` prefixes with `start_rollouts` each; then `rounds` of `places` prefixes with `rollouts` each.

    `missed`: expected cliffs of a trace that may stay unseen. `candidate`: the posterior from which a token is tested.
    `apart`: steps between the places of a round. `wary`: the prior probability of a jump once rises of `rise` were met
    in more than `rising` of the traces, or with fewer than `trusting` traces.
    """

    chain: ChainConfig = field(default_factory=ChainConfig)
    start: int = 10
    start_rollouts: int = 4
    rounds: int = 120
    places: int = 2
    rollouts: int = 4
    missed: float = 0.03
    candidate: float = 0.05
    apart: int = 2
    wary: float = 0.35
    rise: float = 0.12
    rising: float = 0.05
    trusting: int = 20


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A token to be tested. `posterior`: P(drop >= delta). `pair`: of (others, after) `[levels, levels]`."""

    trace: str
    token: int
    free: float
    posterior: float
    pair: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What the search knows of one trace.

    `searched`: tokens that the bound left. `missed`: expected cliffs outside the candidates. `cliff` `[N]`: posterior
    of a drop of at least delta.
    """

    trace: str
    searched: int
    missed: float
    candidates: tuple[Candidate, ...]
    cliff: NDArray[np.float64]


def unpruned(trace: Trace, delta: float) -> NDArray[np.intp]:
    """Tokens that the bound `drop <= 1 - pi` does not rule out."""
    return np.flatnonzero(1 - trace.probabilities >= delta)


def search(
    traces: Sequence[Trace], drawing: Drawing, config: SearchConfig, budget: Budget,
    progress: Callable[[int, float], None] | None = None,
) -> dict[str, Searched]:
    """Search every trace, in the order of their ids; `progress` hears the traces at work and the rollouts so far."""
    found: dict[str, Searched] = {}
    for batch in batches(sorted(traces, key=lambda trace: trace.id)):
        found.update(_Search(batch, drawing, config, budget).run(progress))
    return found


def batches(traces: Sequence[Trace]) -> Iterator[list[Trace]]:
    """As few as fit the memory, of about equal size."""
    steps = [len(steps_of(trace)) for trace in traces]
    parts = max(1, -(-max(steps, default=0) * len(traces) // BATCH))
    for part in np.array_split(np.arange(len(traces)), min(parts, max(len(traces), 1))):
        if len(part):
            yield [traces[index] for index in part]


class _Search:
    """One batch of traces in progress."""

    def __init__(self, traces: Sequence[Trace], drawing: Drawing, config: SearchConfig, budget: Budget) -> None:
        self.traces, self.drawing, self.config, self.budget = traces, drawing, config, budget
        self.steps = [steps_of(trace) for trace in traces]
        self.tallies = [Tally(trace, steps) for trace, steps in zip(traces, self.steps, strict=True)]
        self.rows = {trace.id: row for row, trace in enumerate(traces)}

    def run(self, progress: Callable[[int, float], None] | None) -> dict[str, Searched]:
        self._think(self.config.chain)
        self._draw([request for row in self._open() for request in self._start(row)])
        if len(self.traces) >= self.config.trusting:
            self._rounds(progress)
        if len(self.traces) < self.config.trusting or self._rises():
            self._think(replace(self.config.chain, jump=max(self.config.wary, self.config.chain.jump)))
            self._rounds(progress)
        return {trace.id: self._result(row) for row, trace in enumerate(self.traces)}

    def _think(self, prior: ChainConfig) -> None:
        """Start from this prior, with all counts so far."""
        self.chains = Chains(self.steps, prior)
        row, step = np.nonzero(np.ones((len(self.traces), self.chains.width), bool))
        self.chains.update(row, step, self.tallies)
        self.chains.update_ends(self.tallies)
        self.chains.infer()

    def _rises(self) -> bool:
        """Whether more than a few traces show a sudden rise of their potential."""
        rising = (np.diff(self.chains.mean, axis=1) >= self.config.rise).any(1)
        return bool(rising.mean() > self.config.rising)

    def _rounds(self, progress: Callable[[int, float], None] | None) -> None:
        for _ in range(self.config.rounds):
            active = [row for row in self._open() if self._missed(row) > self.config.missed]
            if progress is not None:
                progress(len(active), self.drawing.total.rollouts)
            if not active or self.drawing.spent(self.budget):
                break
            worth = self.chains.value(np.asarray(active))
            self._draw([request for row, told in zip(active, worth, strict=True) for request in self._aimed(row, told)])

    def _open(self) -> list[int]:
        """Traces in which some token could be a cliff at all."""
        return [row for row, trace in enumerate(self.traces) if len(unpruned(trace, self.config.chain.delta))]

    def _start(self, row: int) -> list[Request]:
        steps = self.steps[row]
        places = np.unique(np.linspace(0, len(steps) - 1, self.config.start).round().astype(int))
        return [self._request(row, int(place), self.config.start_rollouts) for place in places]

    def _aimed(self, row: int, worth: NDArray[np.float64]) -> list[Request]:
        left, requests = worth[: len(self.steps[row])].copy(), []
        for _ in range(self.config.places):
            place = int(np.argmax(left))
            requests.append(self._request(row, place, self.config.rollouts))
            left[max(place - self.config.apart, 0) : place + self.config.apart + 1] *= 0.3
        return requests

    def _request(self, row: int, step: int, count: int) -> Request:
        steps = self.steps[row]
        return Request(trace=self.traces[row].id, kept=int(steps.tokens[step] + steps.answers[step]), n=count)

    def _draw(self, requests: Sequence[Request]) -> None:
        changed: set[tuple[int, int]] = set()
        for rollout in self.drawing.draw(requests, self.budget):
            row = self.rows[rollout.trace]
            changed |= {(row, step) for step in self.tallies[row].book([rollout]) if step < len(self.steps[row])}
        if changed:
            row_, step_ = (np.asarray(each) for each in zip(*sorted(changed), strict=True))
            self.chains.update(row_, step_, self.tallies)
        self.chains.update_ends(self.tallies)
        self.chains.infer()

    def _missed(self, row: int) -> float:
        cliff = self.chains.cliff[row]
        return float(cliff[cliff < self.config.candidate].sum())

    def _result(self, row: int) -> Searched:
        trace, steps, chains = self.traces[row], self.steps[row], self.chains
        cliff = np.zeros(len(trace))
        cliff[steps.tokens[~steps.answers]] = chains.cliff[row, : len(steps)][~steps.answers]
        cliff[1 - trace.probabilities < self.config.chain.delta] = 0.0
        return Searched(
            trace=trace.id, searched=len(unpruned(trace, self.config.chain.delta)), missed=self._missed(row),
            candidates=tuple(self._candidates(row, cliff)), cliff=cliff,
        )

    def _candidates(self, row: int, cliff: NDArray[np.float64]) -> Iterator[Candidate]:
        for token in np.flatnonzero(cliff >= self.config.candidate).tolist():
            step = self.steps[row].step(token)
            assert step is not None
            yield Candidate(
                trace=self.traces[row].id, token=token, free=float(1 - self.traces[row].probabilities[token]),
                posterior=float(cliff[token]), pair=self.chains.pair(row, step, self.tallies[row]),
            )
