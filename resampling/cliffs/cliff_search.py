"""Where may the cliffs be? An adaptive search that stops when few can be left
unseen.

1. Prune: a token with `1 - pi < delta` cannot drop the potential by delta; it
   is ruled out, provably and for free.
2. A coarse start: a few rollouts from prefixes spread over the whole trace, so
   that moves that undo one another are not missed by comparing ends.
3. Rounds: infer the posterior of every drop (`chain`), then draw from the
   prefixes that tell most about the steps that are least certain. All traces
   advance side by side. Every request gets fresh numbers; a budget bounds it.
4. Moves that undo one another are the hardest to see, and looking for them
   everywhere doubles the cost. The first rounds think jumps rare
   (`chain.jump`). Where they nevertheless meet sudden rises in more than a few
   traces, or where the traces are too few to tell (`ENOUGH_TRACES`), the
   search goes on with a cautious prior (`CAUTIOUS_JUMP`).
5. A trace is done when the expected number of its cliffs outside the
   candidates, `sum of P(drop >= delta)` over tokens with less than `CANDIDATE`
   each, is below `MISSED`, or after `ROUNDS`.

What it returns is a list of suspicions with posteriors that rest on a prior.
Nothing is reported on their strength: `cliffs.confirm` tests them on fresh
rollouts, without that prior.

Curves: what confirmed a suspicion says most about the potential there. So every
rollout that passes is counted, and in the end the chain is read off with the
cautious prior that allows jumps anywhere. A prior it is still.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from forensics.errors import UserError
from resampling.cliffs.chain import ChainConfig, Tally, infer_chains, steps_of
from resampling.trace_rollouts import Branch, Request, Rollout, Sampler, Trace

BATCH = 8000  # steps held in memory at once; each takes some 30 kB
START = 10  # prefixes that the search begins with
ROUNDS = 120
PLACES = 2  # prefixes of a round
ROLLOUTS = 4  # from each prefix
APART = 2  # steps between the places of a round
MISSED = 0.03  # expected cliffs of a trace that may stay unseen
CANDIDATE = 0.05  # the posterior from which a token is tested
# the prior probability of a jump once rises of `RISE` were met in more than `RISING` of the
# traces, or with fewer than `ENOUGH_TRACES`
CAUTIOUS_JUMP = 0.35
RISE, RISING, ENOUGH_TRACES = 0.12, 0.05, 20


@dataclass(frozen=True, kw_only=True)
class DrawBudget:
    """The most that may be spent on a whole log. Tokens are overrun by at most
    one round.
    """

    rollouts: float = inf
    tokens: float = inf

    def share(self, part: float) -> "DrawBudget":
        """A part of it."""
        rollouts, tokens = (float(np.floor(most * part)) for most in (self.rollouts, self.tokens))
        return DrawBudget(rollouts=rollouts, tokens=tokens)


@dataclass(frozen=True, kw_only=True)
class CliffConfig:
    """What is looked for, how surely, and what it may cost.

    `delta`, `delta0`: drops that should be found, and that must not be
    reported. `fdr`: the rate of false discoveries. `level`: of the intervals.
    `rollouts`, `tokens`: the most that may be spent on the whole log.
    """

    delta: float = 0.2
    delta0: float = 0.05
    fdr: float = 0.05
    level: float = 0.95
    rollouts: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("fdr", "delta", "level"):
            if not 0 < (value := getattr(self, name)) < 1:
                raise UserError(f"{name} must lie between 0 and 1, not {value}")
        if not 0 <= self.delta0 < self.delta:
            raise UserError(
                f"delta is {self.delta} and must be above delta0, which is {self.delta0}:"
                " drops up to there are not to be reported"
            )

    @property
    def budget(self) -> DrawBudget:
        rollouts, tokens = (inf if n is None else n for n in (self.rollouts, self.tokens))
        return DrawBudget(rollouts=rollouts, tokens=tokens)

    @property
    def prior(self) -> ChainConfig:
        return ChainConfig(delta=self.delta)

    @property
    def cautious_prior(self) -> ChainConfig:
        """The prior that allows jumps anywhere."""
        return ChainConfig(delta=self.delta, jump=CAUTIOUS_JUMP)


@dataclass(kw_only=True)
class DrawCost:
    """What was drawn: rollouts, the tokens they generated, and how many came
    back without an outcome.
    """

    rollouts: int = 0
    tokens: int = 0
    missing: int = 0

    def add(self, rollout: Rollout) -> None:
        self.rollouts += 1
        self.tokens += len(rollout.tokens)
        self.missing += rollout.outcome is None


@dataclass(kw_only=True)
class Draws:
    """A sampler with a memory of the numbers it has given: the same branch
    asked again gives new rollouts.

    `rises`: success and failure are exchanged; a missing outcome stays missing.
    `tallies`: of the traces that a search has begun; whatever passes is counted
    there.
    """

    sampler: Sampler
    rises: bool = False
    total: DrawCost = field(default_factory=DrawCost)
    tallies: dict[str, Tally] = field(default_factory=dict)
    used: Counter[Branch] = field(default_factory=Counter)

    def draw(self, requests: Iterable[Request], budget: DrawBudget | None = None) -> list[Rollout]:
        """The rollouts of these requests (their `first` is set here), in an
        order that does not vary.

        Requests that the budget no longer covers are cut or left out, the last
        ones first.
        """
        budget, numbered = budget or DrawBudget(), []
        left = budget.rollouts - self.total.rollouts
        for request in () if self.spent(budget) else requests:
            if left <= 0:
                break
            n = int(min(request.n, left))
            left -= n
            numbered.append(replace(request, n=n, first=self.used[request.branch]))
            self.used[request.branch] += n
        rollouts = sorted(self.sampler.draw(numbered), key=lambda one: (one.branch, one.number))
        if self.rises:
            rollouts = [
                one if one.outcome is None else replace(one, outcome=1 - one.outcome)
                for one in rollouts
            ]
        for rollout in rollouts:
            self.total.add(rollout)
            if rollout.trace in self.tallies:
                self.tallies[rollout.trace].count([rollout])
        return rollouts

    def tally(self, trace: Trace) -> Tally:
        """What the rollouts of a trace say, from its first tally on."""
        return self.tallies.setdefault(trace.id, Tally(trace, steps_of(trace)))

    def spent(self, budget: DrawBudget) -> bool:
        """Whether nothing is left."""
        return self.total.rollouts >= budget.rollouts or self.total.tokens >= budget.tokens


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A token to be tested. `posterior`: P(drop >= delta). `pair`: of (others,
    after) `[levels, levels]`.
    """

    trace: str
    token: int
    free: float
    posterior: float
    pair: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TraceSearch:
    """What the search knows of one trace.

    `searched`: tokens that the bound left. `missed`: expected cliffs outside
    the candidates. `cliff` `[N]`: posterior of a drop of at least delta.
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
    traces: Sequence[Trace],
    draws: Draws,
    config: CliffConfig,
    budget: DrawBudget,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, TraceSearch]:
    """Search every trace, in the order of their ids, for this part of the
    budget; `progress` hears the traces at work and the rollouts so far.
    """
    searches: dict[str, TraceSearch] = {}
    for batch in batches(traces):
        searches.update(_Search(batch, draws, config, budget).run(progress))
    return searches


def batches(traces: Sequence[Trace]) -> Iterator[list[Trace]]:
    """In the order of their ids, as few as fit the memory, of about equal size."""
    ordered = sorted(traces, key=lambda trace: trace.id)
    parts = -(-max((len(steps_of(one)) for one in ordered), default=0) * len(ordered) // BATCH)
    for part in np.array_split(np.arange(len(ordered)), max(1, min(parts, len(ordered)))):
        if len(part):
            yield [ordered[index] for index in part]


class _Search:
    """One batch of traces in progress."""

    def __init__(
        self, traces: Sequence[Trace], draws: Draws, config: CliffConfig, budget: DrawBudget
    ) -> None:
        self.traces, self.draws, self.config, self.budget = traces, draws, config, budget
        self.tallies = [draws.tally(trace) for trace in traces]
        self.steps = [tally.steps for tally in self.tallies]
        self.rows = {trace.id: row for row, trace in enumerate(traces)}
        self.unpruned = [unpruned(trace, config.delta) for trace in traces]
        # traces in which some token could be a cliff at all
        self.open = [row for row, tokens in enumerate(self.unpruned) if len(tokens)]

    def run(self, progress: Callable[[int, int], None] | None) -> dict[str, TraceSearch]:
        self.chains = infer_chains(self.tallies, self.config.prior)
        starts = []
        for row in self.open:
            places = np.linspace(0, len(self.steps[row]) - 1, START).round()
            starts += [self._request(row, int(place)) for place in np.unique(places)]
        self._draw(starts)
        few = len(self.traces) < ENOUGH_TRACES
        if not few:
            self._rounds(progress)
        rising = (np.diff(self.chains.mean, axis=1) >= RISE).any(1)
        if few or rising.mean() > RISING:
            self.chains = infer_chains(self.tallies, self.config.cautious_prior)
            self._rounds(progress)
        return {trace.id: self._result(row) for row, trace in enumerate(self.traces)}

    def _rounds(self, progress: Callable[[int, int], None] | None) -> None:
        for _ in range(ROUNDS):
            active = [row for row in self.open if self._missed(row) > MISSED]
            if progress is not None:
                progress(len(active), self.draws.total.rollouts)
            if not active or self.draws.spent(self.budget):
                break
            information = self.chains.value(np.asarray(active))
            self._draw(
                [
                    request
                    for row, of_trace in zip(active, information, strict=True)
                    for request in self._aimed(row, of_trace)
                ]
            )

    def _aimed(self, row: int, information: NDArray[np.float64]) -> list[Request]:
        left, requests = information[: len(self.steps[row])].copy(), []
        for _ in range(PLACES):
            place = int(np.argmax(left))
            requests.append(self._request(row, place))
            left[max(place - APART, 0) : place + APART + 1] *= 0.3
        return requests

    def _request(self, row: int, step: int) -> Request:
        kept = int(self.steps[row].tokens[step] + self.steps[row].answers[step])
        return Request(trace=self.traces[row].id, kept=kept, n=ROLLOUTS)

    def _draw(self, requests: Sequence[Request]) -> None:
        changed: set[tuple[int, int]] = set()
        for rollout in self.draws.draw(requests, self.budget):
            row = self.rows[rollout.trace]
            step = self.tallies[row].place(rollout)
            if step is not None and step < len(self.steps[row]) and rollout.outcome is not None:
                changed.add((row, step))
        rows, steps = np.array(sorted(changed), int).reshape(-1, 2).T
        self.chains.update(rows, steps, self.tallies)
        self.chains.infer()

    def _missed(self, row: int) -> float:
        cliff = self.chains.cliff[row]
        return float(cliff[cliff < CANDIDATE].sum())

    def _result(self, row: int) -> TraceSearch:
        trace, steps, chains = self.traces[row], self.steps[row], self.chains
        cliff = np.zeros(len(trace))
        cliff[steps.tokens[~steps.answers]] = chains.cliff[row, : len(steps)][~steps.answers]
        cliff[1 - trace.probabilities < self.config.delta] = 0.0
        candidates = []
        for token in np.flatnonzero(cliff >= CANDIDATE).tolist():
            step = steps.step(token)
            assert step is not None, "it is uncertain enough for a step of its own"
            candidates.append(
                Candidate(
                    trace=trace.id,
                    token=token,
                    free=float(1 - trace.probabilities[token]),
                    posterior=float(cliff[token]),
                    pair=chains.pair(row, step, self.tallies[row]),
                )
            )
        return TraceSearch(
            trace=trace.id,
            searched=len(self.unpruned[row]),
            missed=self._missed(row),
            candidates=tuple(candidates),
            cliff=cliff,
        )


def potential_curves(
    traces: Sequence[Trace], tallies: Mapping[str, Tally], prior: ChainConfig
) -> dict[str, NDArray[np.float64]]:
    """For each trace its potentials by prefix, from what was counted: posterior
    mean and ends of the 95 % range `[3, N + 1]`; NaN without any outcome.
    """
    curves: dict[str, NDArray[np.float64]] = {}
    for batch in batches(traces):
        chains = infer_chains([tallies[trace.id] for trace in batch], prior)
        for row, trace in enumerate(batch):
            tally, prefixes = tallies[trace.id], np.arange(len(trace) + 1)
            total = np.cumsum(chains.marginal[row], axis=1)
            ends = [chains.grid[np.argmax(total >= edge, axis=1)] for edge in (0.025, 0.975)]
            states = np.searchsorted(tally.steps.tokens, prefixes, side="left")
            curves[trace.id] = np.stack([chains.mean[row], *ends])[:, states]
            if not tally.draws.sum():
                curves[trace.id][:] = np.nan
    return curves
