"""The reader's own replay: cut a run before a token, after it, or put others in its place, and sample afresh."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forensics.errors import UserError
from forensics.statistics import clopper_pearson
from resampling.arms import READER, SUCCESS, Arm, draw_arms, place
from resampling.rollouts import Request, Sampler
from resampling.traces import Trace


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Successes of one arm with an exact 95 % interval; `estimate` is `None` where no rollout came back."""

    successes: int
    n: int
    missing: int
    estimate: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One token: runs that go on from before it (`deleted`), from after it (`kept`), with another in its place
    (`others`, `None` where it is the only token that can be drawn). `restored`: deleted minus kept."""

    trace: str
    token: int
    probability: float
    deleted: Rate
    kept: Rate
    others: Rate | None

    @property
    def restored(self) -> float | None:
        if self.deleted.estimate is None or self.kept.estimate is None:
            return None
        return self.deleted.estimate - self.kept.estimate

    def restored_interval(self) -> tuple[float, float] | None:
        """Of the difference of two independent shares (Newcombe, Statistics in Medicine 1998), from exact ends."""
        first, second, difference = self.deleted, self.kept, self.restored
        if difference is None or first.estimate is None or second.estimate is None:
            return None
        assert first.low is not None and first.high is not None and second.low is not None and second.high is not None
        low = difference - float(np.hypot(first.estimate - first.low, second.high - second.estimate))
        high = difference + float(np.hypot(first.high - first.estimate, second.estimate - second.low))
        return max(low, -1.0), min(high, 1.0)

    def row(self) -> dict[str, Any]:
        """As one JSON object."""
        interval = self.restored_interval()
        arms = {name: arm and vars(arm) for name, arm in (
            ("deleted", self.deleted), ("kept", self.kept), ("others", self.others))}
        return {"trajectory": self.trace, "token": self.token, "probability": self.probability, **arms,
                "restored": self.restored, "low": interval and interval[0], "high": interval and interval[1]}


def replay_tokens(
    places: Sequence[tuple[Trace, int]], sampler: Sampler, n: int, first: int = READER
) -> list[Replayed]:
    """`n` continuations of each arm. `first`: the number of the first, so that nothing is drawn a second time.

    Raises `UserError` for a token that its run does not have.
    """
    for trace, token in places:
        if not 0 <= token < len(trace):
            raise UserError(f"trajectory {trace.id} has {len(trace)} sampled tokens, 0 to {len(trace) - 1}, so none is "
                            f"number {token}")
    asked = [_requests(trace, token, n, first) for trace, token in places]
    arms = draw_arms(sampler, (request for row in asked for request in row))
    return [
        Replayed(
            trace=trace.id, token=token, probability=float(trace.probabilities[token]),
            deleted=_rate(arms[place(row[0])]), kept=_rate(arms[place(row[1])]),
            others=_rate(arms[place(row[2])]) if len(row) > 2 else None,
        )
        for (trace, token), row in zip(places, asked, strict=True)
    ]


def _requests(trace: Trace, token: int, n: int, first: int) -> list[Request]:
    cuts = [Request(trace=trace.id, kept=kept, n=n, first=first) for kept in (token, token + 1)]
    only = trace.probabilities[token] >= 1  # nothing else can be drawn
    return cuts if only else [*cuts, Request(trace=trace.id, kept=token, n=n, first=first, avoid=True)]


def _rate(arm: Arm) -> Rate:
    scores = arm.scores
    if not len(scores):
        return Rate(successes=0, n=0, missing=arm.missing, estimate=None, low=None, high=None)
    won = int((scores >= SUCCESS).sum())
    low, high = clopper_pearson(won, len(scores))
    return Rate(successes=won, n=len(scores), missing=arm.missing, estimate=won / len(scores), low=low, high=high)
