"""Is a suspected token a cliff? Fresh rollouts, e-values, and a false discovery
rate over the whole log.

1. Two arms at one prefix: other tokens in place of this one (`avoid`), and this
   token. Where the token ends an action it is put back and the environment
   answers anew, so that the luck of the recorded answer is not booked on it.
2. The null is `drop <= delta0`, which is `contrast <= delta0 / (1 - pi)` (a
   null of zero would be false at almost every uncertain token, and control of
   errors against it empty). `forensics.statistics.evalues` weighs the pairs against it.
3. All candidates advance side by side, in rounds. One rests once its e-value
   would be enough if all that are still hopeful made it, and is given up when a
   drop of delta has become implausible, or at `MOST` pairs.
4. e-BH over all candidates (Wang and Ramdas, 2009.02824): they were chosen on
   other rollouts, so the rate of false discoveries among the reported is at
   most `fdr`, whatever the search's prior, the stopping, or the dependence.
5. Intervals hold at any stopping time, and for what was selected: at level `1 -
   (1 - level) R / m` for R reported of m (Xu, Wang and Ramdas, 2203.12572), the
   false coverage rate is at most `1 - level`.

Missing outcomes are counted and left out of both arms; they are never failures.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from forensics.statistics.evalues import (
    LEVELS,
    difference_interval,
    flat_weights,
    grid_means,
    log_e_values,
)
from forensics.statistics.permutation import e_benjamini_hochberg
from resampling.cliffs.cliff_search import Candidate, CliffConfig, Draws
from resampling.cliffs.trace_steps import ends_action
from resampling.trace_rollouts import Branch, Request, Rollout, Trace

PAIRS = 6  # drawn in a round
MOST = 150  # pairs for one candidate; at most twice as many are asked for
HOPELESS = 0.005  # posterior probability of a drop of `delta - SLACK` below which it is given up
SLACK = 0.02
FLAT = 0.2  # the share of the prior that does not come from the search


class CandidateTest:
    """One candidate under test."""

    def __init__(self, candidate: Candidate, trace: Trace, config: CliffConfig) -> None:
        self.candidate, ends = candidate, ends_action(trace, candidate.token)
        self.append = (trace.tokens[candidate.token],) if ends else ()
        parts = candidate.pair.reshape(LEVELS, len(candidate.pair) // LEVELS, LEVELS, -1)
        blocks = parts.sum((1, 3))
        self.prior = (1 - FLAT) * blocks / blocks.sum() + FLAT * flat_weights()
        drop = candidate.free * (grid_means()[:, None] - grid_means()[None])
        self.large = drop >= config.delta - SLACK
        self.bound = config.delta0 / candidate.free  # the largest contrast under the null
        self.others: list[float] = []
        self.these: list[float] = []
        self.missing, self.asked = 0, 0
        # the logarithm of the e-value, and the posterior probability of a large drop
        self.log_e, self.chance = 0.0, candidate.posterior

    @property
    def pairs(self) -> int:
        """Pairs of outcomes that are there."""
        return min(len(self.others), len(self.these))

    @property
    def exhausted(self) -> bool:
        """Whether all pairs that it may have are there, or were asked for in vain."""
        return self.pairs >= MOST or self.asked >= 2 * MOST

    def requests(self) -> list[Request]:
        """One round of both arms."""
        trace, token = self.candidate.trace, self.candidate.token
        kept = token if self.append else token + 1
        return [
            Request(trace=trace, kept=token, n=PAIRS, avoid=True),
            Request(trace=trace, kept=kept, n=PAIRS, append=self.append),
        ]

    def add(self, rollouts: Sequence[Rollout]) -> None:
        """Fresh rollouts of both arms, one round of them."""
        self.asked += PAIRS
        for rollout in rollouts:
            if rollout.outcome is None:
                self.missing += 1
            else:
                (self.others if rollout.avoid else self.these).append(rollout.outcome)
        others, these = self.others[: self.pairs], self.these[: self.pairs]
        self.log_e = float(log_e_values(others, these, [self.bound], self.prior)[0])
        first, second = (
            sum(arm) * np.log(grid_means()) + (len(arm) - sum(arm)) * np.log1p(-grid_means())
            for arm in (self.others, self.these)
        )
        logs = np.log(self.prior) + first[:, None] + second
        weights = np.exp(logs - logs.max())
        self.chance = float(weights[self.large].sum() / weights.sum())

    def interval(self, level: float) -> tuple[float, float]:
        """Of the contrast, at any stopping time."""
        weights = (self.prior + flat_weights()) / 2
        return difference_interval(
            self.others[: self.pairs], self.these[: self.pairs], level, weights, step=0.01
        )


def confirm(
    candidates: Sequence[Candidate],
    traces: Mapping[str, Trace],
    draws: Draws,
    config: CliffConfig,
    progress: Callable[[int, int], None] | None = None,
) -> list[CandidateTest]:
    """Test every candidate; the tests, in the order of trace and token."""
    ordered = sorted(candidates, key=lambda candidate: (candidate.trace, candidate.token))
    tests = [CandidateTest(candidate, traces[candidate.trace], config) for candidate in ordered]
    while active := unsettled(tests, config.fdr):
        if progress is not None:
            progress(len(active), draws.total.rollouts)
        requests = [request for test in active for request in test.requests()]
        rollouts = draws.draw(requests, config.budget)
        if not rollouts:
            break
        arms: dict[Branch, list[Rollout]] = {}
        for rollout in rollouts:
            arms.setdefault(rollout.branch, []).append(rollout)
        for test in active:
            test.add([one for request in test.requests() for one in arms.get(request.branch, [])])
    return tests


def unsettled(tests: Sequence[CandidateTest], fdr: float) -> list[CandidateTest]:
    """Those that are hopeful, not exhausted, and short of what they would need
    if all hopeful ones made it.
    """

    def required(reported: int) -> float:
        """The log e-value that e-BH asks for when this many are reported."""
        return float(np.log(max(len(tests), 1) / (fdr * max(reported, 1))))

    hopeful = [test for test in tests if test.chance >= HOPELESS]
    first = required(len(hopeful))
    hopeful = [test for test in hopeful if not test.exhausted or test.log_e >= first]
    second = required(len(hopeful))
    return [test for test in hopeful if test.log_e < second and not test.exhausted]


def reported(tests: Sequence[CandidateTest], fdr: float) -> list[bool]:
    """Which tests e-BH reports."""
    values = np.exp(np.minimum([test.log_e for test in tests], 700.0))
    return [bool(value <= fdr) for value in e_benjamini_hochberg(values)]
