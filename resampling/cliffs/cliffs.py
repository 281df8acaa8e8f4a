"""At which token was a run won or lost? Cliffs with an error guarantee.

1. Search (`cliff_search`): the bound prunes, a posterior over all rollouts
   suspects.
2. Confirm (`confirm`): fresh rollouts of this token against others at the
   same prefix; e-values; e-BH over all candidates of the whole log.
3. Report what e-BH lets through, with drop and contrast in intervals that hold
   for selected tokens and at any stopping time, the potentials of each trace
   for a plot, the bill, and the candidates that were not confirmed.
4. Tokens that win a run are found by the same search with success and failure
   exchanged: a drop of the chance to fail is a rise of the chance to succeed,
   so everything that holds for cliffs holds for rises.

The same traces, sampler and config give the same requests in the same order, so
a sampler that stores its rollouts makes a search resumable. Taxonomy after
2606.25524: a token that was not the likeliest is sampled off; the likeliest is
deterministic up to 0.056 nats of entropy over the top 20, and uncertain above.

How a suspected token is confirmed, with a false discovery rate over the whole log:

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
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from forensics.errors import UserError
from forensics.progress import Progress
from forensics.statistics import (
    LEVELS,
    Estimate,
    difference_interval,
    e_benjamini_hochberg,
    flat_weights,
    grid_means,
    log_e_values,
)
from resampling.cliffs.cliff_search import (
    Candidate,
    CliffConfig,
    Draws,
    ends_action,
    potential_curves,
    search,
)
from resampling.trace_rollouts import Branch, Request, Rollout, Sampler, Trace

if TYPE_CHECKING:  # it loads torch
    from forensics.policies import TopTokens

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


Kind = Literal["deterministic", "uncertain", "sampled-off"]
ENTROPY_BOUND = 0.056  # nats over the top 20
TOP = 20
SEARCH_SHARE = 0.75  # of a budget; the rest confirms


def token_kind(trace: Trace, token: int, top: "TopTokens") -> Kind:
    """Sampled off where the token was not the likeliest, else deterministic or
    uncertain by the entropy. `top`: of the trace.
    """
    position = trace.positions[token]
    if top.ids[position - 1, 0] != trace.tokens[token]:
        return "sampled-off"
    return "deterministic" if top.entropies()[position - 1] <= ENTROPY_BOUND else "uncertain"


@dataclass(frozen=True, kw_only=True)
class TestedToken:
    """One candidate: `token` counts the sampled tokens of the trace from 0;
    `step` is the trajectory's.

    `drop` = `(1 - probability) contrast`; `contrast`: success with other tokens
    minus with this one; `None` where too few outcomes came. `posterior`: the
    search's P(drop >= delta), before the test.
    """

    trace: str
    token: int
    step: int
    token_id: int
    probability: float
    drop: Estimate | None
    contrast: Estimate | None
    e_value: float
    posterior: float
    kind: Kind | None
    pairs: int
    missing: int


@dataclass(frozen=True, kw_only=True)
class TraceReport:
    """One trace: tokens left by the bound, expected cliffs unseen, potentials
    by prefix `[N + 1]` with 95 % ranges.

    The potentials rest on the search's prior. Where no rollout came back (the
    bound rules out every token, or nothing answered) they are NaN: nobody knows
    them.
    """

    trace: str
    searched: int
    missed: float
    potentials: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, kw_only=True)
class CliffReport:
    """Cliffs, by trace and token, and all that was tested and not confirmed.
    The rates are those of the config.
    """

    cliffs: tuple[TestedToken, ...]
    rejected: tuple[TestedToken, ...]
    traces: tuple[TraceReport, ...]
    rollouts: int
    tokens: int
    missing: int
    exhausted: bool  # the budget ended before the search was done

    @property
    def tested(self) -> int:
        """Suspected tokens that fresh samples came back for."""
        return sum(token.pairs > 0 for token in (*self.cliffs, *self.rejected))


def find_cliffs(
    traces: Sequence[Trace],
    sampler: Sampler,
    config: CliffConfig | None = None,
    choices: Mapping[str, "TopTokens"] | None = None,
    progress: Progress | None = None,
    *,
    rises: bool = False,
) -> CliffReport:
    """The tokens that cost a run its success, over a whole log.

    `choices`: the `TOP` likeliest tokens by trace, for the taxonomy. `progress`
    hears the phase, the traces or candidates at work, and the rollouts so far.
    `rises`: tokens that raise the chance of success instead; drops and contrasts
    of the report are negative. Raises `UserError` where two traces share an id.
    """
    config = config or CliffConfig()
    by_id = {trace.id: trace for trace in traces}
    if len(by_id) != len(traces):
        raise UserError("two traces share an id; give each run its own")
    draws = Draws(sampler=sampler, rises=rises)

    def phase(name: str) -> Callable[[int, int], None] | None:
        return progress and partial(progress, name)

    search_budget = config.budget.share(SEARCH_SHARE)
    searches = search(traces, draws, config, search_budget, phase("search"))
    candidates = [candidate for each in searches.values() for candidate in each.candidates]
    tests = confirm(candidates, by_id, draws, config, phase("confirm"))
    curves = potential_curves(traces, draws.tallies, config.cautious_prior)
    passed = reported(tests, config.fdr)
    level = 1 - (1 - config.level) * (max(sum(passed), 1) / max(len(tests), 1))
    tops, names = choices or {}, [test.candidate.trace for test in tests]
    tokens = [
        _tested(test, by_id[name], level, tops.get(name), rises)
        for test, name in zip(tests, names, strict=True)
    ]
    reports = []
    for name, searched in sorted(searches.items()):
        # where rises are sought the curve is of failure
        potentials, low, high = 1 - curves[name][[0, 2, 1]] if rises else curves[name]
        reports.append(
            TraceReport(
                trace=name,
                searched=searched.searched,
                missed=searched.missed,
                potentials=potentials,
                low=low,
                high=high,
            )
        )
    return CliffReport(
        cliffs=tuple(token for token, ok in zip(tokens, passed, strict=True) if ok),
        rejected=tuple(token for token, ok in zip(tokens, passed, strict=True) if not ok),
        traces=tuple(reports),
        exhausted=draws.spent(search_budget),
        **vars(draws.total),
    )


def _tested(
    test: CandidateTest, trace: Trace, level: float, top: "TopTokens | None", rises: bool
) -> TestedToken:
    candidate, sign = test.candidate, -1 if rises else 1
    drop = contrast = None
    if test.pairs:
        mean = float(np.mean(test.others) - np.mean(test.these))
        low, high = test.interval(level)
        whole = Estimate(estimate=mean, low=min(low, mean), high=max(high, mean), level=level)
        drop, contrast = whole.scaled(sign * candidate.free), whole.scaled(sign)
    return TestedToken(
        trace=trace.id,
        token=candidate.token,
        step=trace.steps[candidate.token],
        token_id=trace.tokens[candidate.token],
        probability=1 - candidate.free,
        drop=drop,
        contrast=contrast,
        e_value=float(np.exp(min(test.log_e, 700.0))),
        posterior=candidate.posterior,
        kind=token_kind(trace, candidate.token, top) if top else None,
        pairs=test.pairs,
        missing=test.missing,
    )
