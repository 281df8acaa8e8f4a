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

`Steps` is a trace reduced to the places where its potential can move, with
rollouts booked on them:
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
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resampling.trace_rollouts import Rollout, Trace


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of one trace `[U]`; state u lies before step u, state U after
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
    """The posterior for several traces side by side; shorter ones are filled up
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
