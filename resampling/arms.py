"""Drawing several arms (prefixes to go on from) and keeping their outcomes together."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from resampling.rollouts import Request, Sampler

# Numbers of rollouts by purpose: what confirms or replays must never be what was searched with.
DELETE_KEEP, ALTERNATIVES, TRUNCATION, READER = (n << 21 for n in (2, 3, 4, 5))

SUCCESS = 0.5  # the score from which a run is a success

Place = tuple[str, int, tuple[int, ...], bool]  # trace, kept, append, avoid


@dataclass
class Arm:
    """Outcomes of one prefix, by the number of their rollout; `missing` counts rollouts without a score."""

    outcomes: dict[int, float] = field(default_factory=dict)
    missing: int = 0

    @property
    def scores(self) -> np.ndarray:
        """`[n]` in the order of their numbers, whatever the order in which they came."""
        return np.array([self.outcomes[number] for number in sorted(self.outcomes)])


def place(request: Request) -> Place:
    return request.trace, request.kept, request.append, request.avoid


def draw_arms(sampler: Sampler, requests: Iterable[Request]) -> dict[Place, Arm]:
    """Every request drawn; several requests of one prefix make one arm, what was asked twice is drawn once."""
    wanted = list(dict.fromkeys(requests))
    arms = {place(request): Arm() for request in wanted}
    for rollout in sampler.draw(wanted):
        arm = arms[rollout.trace, rollout.kept, rollout.append, rollout.avoid]
        if rollout.outcome is None:
            arm.missing += 1
        else:
            arm.outcomes[rollout.number] = rollout.outcome
    return arms


def pass_at(k: int, scores: np.ndarray) -> float | None:
    """The unbiased chance that one of k draws succeeds (2107.03374); `None` with fewer than k draws.

    `scores` `[n]`; a success is a score of at least one half.
    """
    n, failures = len(scores), int((scores < SUCCESS).sum())
    if n < k:
        return None
    return float(1 - np.prod(np.maximum(1 - k / np.arange(failures + 1, n + 1), 0))) if n > failures else 0.0
