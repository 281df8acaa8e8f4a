"""Whether the sampler and the scorer say the same of the tokens that were drawn."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from probes.scored import Scored


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Distance of the scorer's log-probabilities from the sampler's, nats: `mean` and `largest`, over `tokens`.

    `None` where no token has both. A sampler in another precision, or under other settings, shows here.
    """

    mean: float | None
    largest: float | None
    tokens: int


def sampler_agreement(log: Iterable[Scored]) -> Agreement:
    """Over all tokens that were read and whose log-probability the log has."""
    total, largest, tokens = 0.0, 0.0, 0
    for scored in log:
        gaps = _gaps(scored)
        total += float(gaps.sum())
        largest = max(largest, float(gaps.max(initial=0.0)))
        tokens += len(gaps)
    return Agreement(mean=total / tokens, largest=largest, tokens=tokens) if tokens else Agreement(
        mean=None, largest=None, tokens=0)


def _gaps(scored: Scored) -> Any:
    """Of each token with both."""
    if scored.retokenised:
        return np.empty(0)
    told = np.full(len(scored.step), np.nan)
    for number, step in enumerate(scored.trajectory.steps):
        if step.logprobs is not None:
            told[scored.step == number] = step.logprobs
    gaps = np.abs(scored.columns["policy"] - told)
    return gaps[np.isfinite(gaps)]
