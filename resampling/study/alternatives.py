"""What else could have been drawn at a prefix, and how the run would have gone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forensics.policies.top_tokens import TopTokens
from forensics.statistics import clopper_pearson
from resampling.arms import ALTERNATIVES, SUCCESS, draw_arms, place
from resampling.rollouts import Request, Sampler
from resampling.traces import Trace

MOST = 10


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """One token at the place of another: its probability under the sampler and its potential, by `n` rollouts.

    `potential` is `None` where no rollout came back. `low`, `high`: exact at 95 % for outcomes of 0 or 1.
    """

    token_id: int
    probability: float
    potential: float | None
    low: float | None
    high: float | None
    n: int


def alternatives_at(
    places: Sequence[tuple[Trace, int]], tops: Sequence[TopTokens], sampler: Sampler, *, rollouts: int = 32,
    most: int = MOST,
) -> list[list[Alternative]]:
    """The `most` probable tokens at each place `(trace, position among its sampled tokens)`, with potentials.

    `tops[i]` belongs to the trace of `places[i]`. The trace's own token is among them, drawn like the others.
    """
    choices = [_choices(trace, token, top, most) for (trace, token), top in zip(places, tops, strict=True)]
    requests = [
        [Request(trace=trace.id, kept=token, n=rollouts, first=ALTERNATIVES, append=(token_id,)) for token_id, _ in row]
        for (trace, token), row in zip(places, choices, strict=True)
    ]
    arms = draw_arms(sampler, (request for row in requests for request in row))
    return [
        [_alternative(*choice, arms[place(request)].scores) for choice, request in zip(row, asked, strict=True)]
        for row, asked in zip(choices, requests, strict=True)
    ]


def _choices(trace: Trace, token: int, top: TopTokens, most: int) -> list[tuple[int, float]]:
    """Token ids with their probabilities: those that can be drawn, the trace's own token always."""
    ids, logprobs = top.at(trace.positions[token])
    found = {int(i): float(np.exp(score)) for i, score in zip(ids[:most], logprobs[:most], strict=True)}
    drawable = {i: probability for i, probability in found.items() if probability > 0}
    own = trace.tokens[token]
    return list(({own: float(trace.probabilities[token])} | drawable).items())


def _alternative(token_id: int, probability: float, scores: np.ndarray) -> Alternative:
    if not len(scores):
        return Alternative(token_id=token_id, probability=probability, potential=None, low=None, high=None, n=0)
    low, high = clopper_pearson(float((scores >= SUCCESS).sum()), len(scores))
    return Alternative(token_id=token_id, probability=probability, potential=float(scores.mean()), low=low, high=high,
                       n=len(scores))
