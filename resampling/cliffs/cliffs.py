"""At which token was a run won or lost? Cliffs with an error guarantee.

1. Search (`cliff_search`): the bound prunes, a posterior over all rollouts
   suspects.
2. Confirm (`confirmation`): fresh rollouts of this token against others at the
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
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from forensics.errors import UserError
from forensics.progress import Progress
from forensics.statistics import Estimate
from resampling.cliffs.cliff_search import CliffConfig, Draws, potential_curves, search
from resampling.cliffs.confirmation import CandidateTest, confirm, reported
from resampling.trace_rollouts import Sampler, Trace

if TYPE_CHECKING:  # it loads torch
    from forensics.policies.text_scores import TopTokens

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
