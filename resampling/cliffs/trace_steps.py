"""A trace reduced to the places where its potential can move, and rollouts
booked on them.

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

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

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
