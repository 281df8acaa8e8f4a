"""Where may the cliffs be? An adaptive search that stops when few can be left
unseen.

1. Prune: a token with `1 - pi < delta` cannot drop the potential by delta; it
   is ruled out, provably and for free.
2. A coarse start: a few rollouts from prefixes spread over the whole trace, so
   that moves that undo one another are not missed by comparing ends.
3. Rounds: infer the posterior of every drop (`PotentialChains`), then draw from the
   prefixes that tell most about the steps that are least certain. All traces
   advance side by side. Every request gets fresh numbers; a budget bounds it.
4. Moves that undo one another are the hardest to see, and looking for them
   everywhere doubles the cost. The first rounds think jumps rare
   (`ChainConfig.jump`). Where they nevertheless meet sudden rises in more than a few
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
from resampling.trace_rollouts import Branch, Request, Rollout, Sampler, Trace


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A trace reduced to the places where its potential can move, with rollouts
    booked on them:

    1. A token moves the potential by at most `1 - pi`, and a stretch by at most `1
       - prod(pi)`. Near-certain tokens are therefore merged: the prefixes of one
       stretch share one potential, a *state*, and their rollouts pool. A stretch
       ends at a token with `1 - pi >= certain`, or where what has been merged adds
       up to `merged`.
    2. Between two states lies a *step*: an uncertain token, or the environment's
       answer between two actions. An answer carries the environment's probability,
       so what it changes is luck and never a cliff of the policy.
    3. A rollout that follows the trace and then leaves it at an uncertain token is
       an exact draw of what other tokens are worth at that very prefix, wherever it
       began; the tokens that it followed have probabilities that are known. So each
       rollout is booked once, on the step where it left (or at the end of the
       trace), and shared prefixes need no correction for correlated rows. One that
       leaves inside a merged stretch says something about that certain token's
       alternatives only, and is not booked. Nor is a missing outcome.

    The steps of one trace `[U]`; state u lies before step u, state U after
    the last.

    `tokens`: the token of each step, or the one after which the environment
    answers. `answers`: which steps are answers. `free`: `1 - pi` for a token, 1
    for an answer (it may bring the potential anywhere).
    """

    tokens: np.ndarray
    answers: np.ndarray
    free: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def leaving(self) -> np.ndarray:
        """The probability that a rollout which came this far leaves at the step
        and is booked there `[U]`.
        """
        return np.where(self.answers, 0.0, self.free)

    def state(self, kept: int) -> int:
        """The state of the prefix of `kept` tokens."""
        return int(np.searchsorted(self.tokens, kept, side="left"))

    def step(self, token: int, answer: bool = False) -> int | None:
        """The step of a token, or of the answer after it; `None` where it is
        merged into a stretch.
        """
        for place in range(self.state(token), len(self)):
            if self.tokens[place] != token:
                break
            if self.answers[place] == answer:
                return place
        return None


def ends_action(trace: Trace, token: int) -> bool:
    """Whether the environment speaks after this token and the policy goes on after that."""
    return token + 1 < len(trace) and trace.steps[token + 1] != trace.steps[token]


def steps_of(trace: Trace, certain: float = 0.01, merged: float = 0.05) -> Steps:
    """The steps of a trace: tokens that leave `certain` or more to others, and
    every answer of the environment.
    """
    rows: list[tuple[int, bool, float]] = []
    gathered = 0.0
    for token, free in enumerate((1 - trace.probabilities).tolist()):
        gathered += free
        if free >= certain or gathered > merged:
            rows.append((token, False, free))
            gathered = 0.0
        if ends_action(trace, token):
            rows.append((token, True, 1.0))
            gathered = 0.0
    tokens, answers, frees = zip(*rows, strict=True) if rows else ((), (), ())
    return Steps(
        tokens=np.asarray(tokens, int),
        answers=np.asarray(answers, bool),
        free=np.asarray(frees, float),
    )


class Tally:
    """What the rollouts of one trace said: `draws` and `successes` for each
    step, and at the end `[U + 1]`.
    """

    def __init__(self, trace: Trace, steps: Steps) -> None:
        self.trace, self.steps = trace, steps
        self.draws = np.zeros(len(steps) + 1)
        self.successes = np.zeros(len(steps) + 1)

    def count(self, rollouts: Iterable[Rollout]) -> None:
        """Count rollouts, the plain ones and those that avoided a token."""
        for rollout in rollouts:
            step = self.place(rollout)
            if step is not None and rollout.outcome is not None:
                self.draws[step] += 1
                self.successes[step] += rollout.outcome

    def place(self, rollout: Rollout) -> int | None:
        """The step on which a rollout left, U if it followed to the end, `None`
        where it says nothing here.
        """
        if rollout.append:
            return None
        left = rollout.kept + rollout.followed
        if left >= len(self.trace):
            return len(self.steps)
        drawn = rollout.tokens[rollout.followed : rollout.followed + 1]
        own = self.trace.ids[self.trace.positions[left]]
        parted = not rollout.avoid and drawn == (own,)  # the same token, then another answer
        if parted and left + 1 == len(self.trace):
            return len(self.steps)  # the last token, and fresh luck at the end of the run
        return self.steps.step(left, answer=parted)


Floats = NDArray[np.floating]
TINY = 1e-30
# above this posterior a step will be tested anyway, so that to be surer of it is worth
# no more
TESTED = 0.1
USABLE = 0.05  # steps with less freedom tell too little about their own q to be worth aiming at


@dataclass(frozen=True, kw_only=True)
class ChainConfig:
    """The prior. `levels`: of the grid. `drift`: of q about b (probability).
    `jump`: probability that q is free.

    `delta`: the drop that counts as a cliff; `slack`: how much smaller one
    still counts, for the grid's coarseness.
    """

    levels: int = 40
    drift: float = 0.02
    jump: float = 0.06
    delta: float = 0.2
    slack: float = 0.02

    @property
    def grid(self) -> NDArray[np.float64]:
        return np.asarray((np.arange(self.levels) + 0.5) / self.levels)

    @property
    def prior(self) -> NDArray[np.float64]:
        """Of q for each b `[b, q]`."""
        away = self.grid[None] - self.grid[:, None]
        near, far = np.exp(-0.5 * (away / self.drift) ** 2), np.abs(away) + 1 / self.levels
        near, far = (each / each.sum(1, keepdims=True) for each in (near, far))
        return np.asarray((1 - self.jump) * near + self.jump * far)


class PotentialChains:
    """The posterior of the potentials along a trace, and of the drop at each token:
    a hidden Markov model, exact on a grid.

    1. The hidden chain is the potential at each state of a trace
       (`Steps`), on a grid of levels. At a step with freedom `v = 1 -
       pi`, other tokens are worth `q` and the potential after the step is `b`; the
       identity `a = b + v (q - b)` gives the potential `a` before it. Mass is split
       between the two grid levels around `a`, which keeps means exact.
    2. Prior of `q` given `b`: near `b` (slow drift) or, with probability `jump`,
       anything in [0, 1], the further the likelier. The drop `v (q - b)` is so
       bounded by v, and a large drop is as likely a priori as v allows.
    3. Rollouts that left at the step are draws of q. Their likelihood weighs the
       kernel of that step alone.
    4. Forward and backward passes over all traces at once give each potential's
       posterior and `P(drop >= delta)` at each step. Two sweeps more give how each
       potential varies together with each suspected cliff, and from that what a
       rollout from each state would say about the cliffs: `sum over cliffs of
       cov(cliff, q)^2 / (var(cliff) q (1 - q))`, averaged over the steps where such
       a rollout may leave the trace.

    Our own; the published methods estimate every potential by itself (2606.25524)
    or halve intervals (2412.08905).

    The posterior for several traces side by side; shorter ones are filled up
    with steps that change nothing.
    """

    def __init__(self, steps: Sequence[Steps], config: ChainConfig) -> None:
        self.config, self.grid, self.prior = config, config.grid, config.prior
        self.width = max((len(each) for each in steps), default=0)
        self.free = self._padded([each.free for each in steps])
        self.leaving = self._padded([each.leaving for each in steps])
        shape = (len(steps), self.width, config.levels, config.levels)
        self.kernel, self.drop_kernel = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.end = np.ones((len(steps), config.levels))
        drop = self.free[..., None, None] * (self.grid - self.grid[:, None])
        self.falls = (drop >= config.delta - config.slack) & (self.leaving > 0)[..., None, None]
        place = (self.grid[:, None] + drop) * config.levels - 0.5
        lower = np.clip(np.floor(place), 0, config.levels - 2).astype(np.int32)
        self.upper_share = np.clip(place - lower, 0, 1).astype(np.float32)
        self.cell = lower * config.levels + np.arange(config.levels, dtype=np.int32)[:, None]

    def _padded(self, rows: Sequence[Floats]) -> NDArray[np.float64]:
        padded = np.zeros((len(rows), self.width))
        for row, values in enumerate(rows):
            padded[row, : len(values)] = values
        return padded

    def update(
        self, row: NDArray[np.intp], step: NDArray[np.intp], tallies: Sequence[Tally]
    ) -> None:
        """New counts at these steps of these traces (a step beyond a trace's
        own is filling), and at the ends: rollouts that followed their whole
        trace are draws of its last potential.
        """
        counts = [tally.draws for tally in tallies], [tally.successes for tally in tallies]
        self.end = self._likelihood(*(np.array([each[-1] for each in of]) for of in counts))
        draws, wins = (self._padded([each[:-1] for each in of])[row, step] for of in counts)
        weighed = self.prior * self._likelihood(draws, wins)[:, None, :]
        cells, shares = self.cell[row, step], self.upper_share[row, step]
        self.kernel[row, step] = self._scattered(weighed, cells, shares)
        fallen = weighed * self.falls[row, step]
        self.drop_kernel[row, step] = self._scattered(fallen, cells, shares)

    def _likelihood(self, draws: Floats, wins: Floats) -> NDArray[np.float64]:
        logs = wins[:, None] * np.log(self.grid) + (draws - wins)[:, None] * np.log1p(-self.grid)
        return np.asarray(np.exp(logs - logs.max(1, keepdims=True)))

    def _scattered(self, weighed: Floats, cells: NDArray[np.int32], upper: Floats) -> Floats:
        """Mass of (b, q) moved to (a, b): `[n, b, q]` to `[n, a, b]`."""
        levels, count = self.config.levels, len(weighed)
        index = cells + (np.arange(count) * levels**2)[:, None, None]
        size = count * levels**2
        low = np.bincount(index.reshape(-1), (weighed * (1 - upper)).reshape(-1), size)
        high = np.bincount((index + levels).reshape(-1), (weighed * upper).reshape(-1), size)
        return np.asarray((low + high).reshape(count, levels, levels))

    def infer(self) -> None:
        """Forward and backward passes; sets `cliff` `[B, U]`, `mean` and
        `marginal` of each state.
        """
        count, levels = len(self.end), self.config.levels
        self.forward = np.full((count, self.width + 1, levels), 1 / levels, np.float32)
        self.backward = np.ones((count, self.width + 1, levels), np.float32)
        self.backward[:, -1] = self.end
        for step in range(self.width):
            ahead = np.matmul(self.forward[:, step, None], self.kernel[:, step])[:, 0]
            self.forward[:, step + 1] = ahead / ahead.sum(1, keepdims=True)
        for step in reversed(range(self.width)):
            back = np.matmul(self.kernel[:, step], self.backward[:, step + 1, :, None])[..., 0]
            self.backward[:, step] = back / back.max(1, keepdims=True)
        joint = self.forward * self.backward
        self.marginal = joint / joint.sum(2, keepdims=True)
        self.mean = self.marginal @ self.grid
        fallen = np.matmul(self.drop_kernel, self.backward[:, 1:, :, None])[..., 0]
        every = np.matmul(self.kernel, self.backward[:, 1:, :, None])[..., 0]
        before = self.forward[:, :-1]
        self.cliff = np.asarray(
            (before * fallen).sum(2) / np.maximum((before * every).sum(2), TINY), np.float64
        )

    def pair(self, row: int, step: int, tally: Tally) -> NDArray[np.float64]:
        """The joint posterior of what other tokens are worth and of the
        potential after the step `[q, b]`.
        """
        likelihood = self._likelihood(tally.draws[[step]], tally.successes[[step]])[0]
        before, upper = self.forward[row, step], self.upper_share[row, step]
        lower = self.cell[row, step] // self.config.levels
        ahead = before[lower] * (1 - upper) + before[lower + 1] * upper
        joint = ahead * self.prior * likelihood * self.backward[row, step + 1][:, None]
        return np.asarray((joint / joint.sum()).T, np.float64)

    def value(self, rows: NDArray[np.intp], suspects: int = 12) -> NDArray[np.float64]:
        """What a rollout from each state would tell about each trace's
        `suspects` least certain steps `[rows, U]`.
        """
        cliff, mean, free, leaving = (
            each[rows] for each in (self.cliff, self.mean, self.free, self.leaving)
        )
        stake = np.minimum(cliff, TESTED) * (1 - cliff)
        chosen = np.argsort(-stake, axis=1, kind="stable")[:, :suspects]
        stake, odds = (np.take_along_axis(each, chosen, 1)[:, :, None] for each in (stake, cliff))
        together = self._joint_with_suspects(rows, chosen) - odds * mean[:, None]
        free = np.maximum(free, 1e-3)
        with_other = together[:, :, :-1] - (1 - free)[:, None] * together[:, :, 1:]
        with_other = with_other / free[:, None]
        other = np.clip((mean[:, :-1] - (1 - free) * mean[:, 1:]) / free, 0.02, 0.98)
        known = (with_other**2 * stake / np.maximum(odds * (1 - odds), 1e-4) ** 2).sum(1)
        information = np.where(leaving >= USABLE, known / (other * (1 - other)), 0.0)
        worth = np.zeros((len(rows), self.width + 1))
        for step in reversed(range(self.width)):
            here = leaving[:, step]
            worth[:, step] = here * information[:, step] + (1 - here) * worth[:, step + 1]
        return worth[:, :-1]

    def _joint_with_suspects(
        self, rows: NDArray[np.intp], chosen: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """`E[p at each state, and a cliff at the suspect]` `[rows, suspects, U
        + 1]`, from two sweeps.
        """
        result = np.zeros((*chosen.shape, self.width + 1))
        grid = self.grid.astype(np.float32)
        mass: Floats = np.zeros((*chosen.shape, self.config.levels), np.float32)
        for step in range(self.width):
            onward = self.kernel[rows, step] * self.backward[rows, step + 1, None]  # [rows, a, b]
            mass = np.matmul(mass, onward / np.maximum(onward.sum(2, keepdims=True), TINY))
            self._seed_cliff_mass(mass, chosen == step, rows, step, after=True)
            result[:, :, step + 1] = np.where(chosen <= step, mass @ grid, 0.0)
        mass = np.zeros_like(mass)
        for step in reversed(range(self.width)):
            back = self.forward[rows, step, :, None] * self.kernel[rows, step]  # [rows, a, b]
            back = back / np.maximum(back.sum(1, keepdims=True), TINY)
            mass = np.matmul(mass, back.transpose(0, 2, 1))
            self._seed_cliff_mass(mass, chosen == step, rows, step, after=False)
            result[:, :, step] = np.where(chosen >= step, mass @ grid, result[:, :, step])
        return result

    def _seed_cliff_mass(
        self,
        mass: Floats,
        where: NDArray[np.bool_],
        rows: NDArray[np.intp],
        step: int,
        *,
        after: bool,
    ) -> None:
        """Set off a suspect's mass: of a cliff at this step, by the level after
        or before it; it sums to `cliff`.
        """
        place, suspect = np.nonzero(where)
        if not len(place):
            return
        row = rows[place]
        drop, before = self.drop_kernel[row, step], self.forward[row, step]
        behind = self.backward[row, step + 1]
        if after:
            joint = np.matmul(before[:, None], drop)[:, 0] * behind
        else:
            joint = before * np.matmul(drop, behind[:, :, None])[..., 0]
        scale = self.cliff[row, step] / np.maximum(joint.sum(1), TINY)
        mass[place, suspect] = joint * scale[:, None]


def infer_chains(tallies: Sequence[Tally], prior: ChainConfig) -> PotentialChains:
    """The posterior under this prior, with all that was counted so far."""
    chains = PotentialChains([tally.steps for tally in tallies], prior)
    row, step = np.nonzero(np.ones((len(tallies), chains.width), bool))
    chains.update(row, step, tallies)
    chains.infer()
    return chains


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
