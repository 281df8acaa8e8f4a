"""Monte-Carlo advantages of steps: what the value of going on is after a step,
minus what it was before.

1. From the boundary before every step a policy continues the run many times, in
   the environment restored there.
2. The value there is the mean score; the value after the last step is the run's
   own score.
3. Two halves of the continuations say how reliable the advantages are, and so
   how large any correlation can be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forensics.protocols import SamplingSettings
from forensics.records import Trajectory
from resampling import LocalSampler, Request, draw_branches


@dataclass(frozen=True, kw_only=True)
class Valued:
    """One run. `advantages [steps]` of its actions, in order; `halves [2,
    steps]`: from half of the continuations.
    """

    run: Trajectory
    advantages: np.ndarray
    halves: np.ndarray


def boundaries(run: Trajectory) -> list[int]:
    """How many tokens the policy had drawn before each action."""
    drawn = [sum(step.sampled or ()) for _, step in run.actions]
    return np.cumsum([0, *drawn[:-1]]).tolist() if drawn else []


def usable(run: Trajectory) -> bool:
    """More than one action, a score, and a token drawn in every action."""
    return (
        run.outcome is not None
        and run.turns > 1
        and all(sum(step.sampled or ()) for _, step in run.actions)
    )


def valued(
    runs: Sequence[Trajectory], policy: Any, world: Any, continuations: int, seed: int
) -> list[Valued]:
    """`policy` continues `continuations` times from every boundary of every run."""
    requests = [
        Request(trace=run.id, kept=kept, n=continuations)
        for run in runs
        for kept in boundaries(run)
    ]
    sampler = LocalSampler(policy, world, runs, SamplingSettings(), seed=seed)
    scores = {
        (branch.trace, branch.kept): sorted(drawn.outcomes.items())
        for branch, drawn in draw_branches(sampler, requests).items()
    }
    return [_valued(run, [scores[run.id, kept] for kept in boundaries(run)]) for run in runs]


def _valued(run: Trajectory, scores: Sequence[Sequence[tuple[int, float]]]) -> Valued:
    halves = [
        _advantages(
            [[score for number, score in place if number % 2 == half] for place in scores], run
        )
        for half in (0, 1)
    ]
    return Valued(
        run=run,
        advantages=_advantages([[score for _, score in place] for place in scores], run),
        halves=np.stack(halves),
    )


def _advantages(scores: Sequence[Sequence[float]], run: Trajectory) -> np.ndarray:
    assert run.outcome is not None
    return np.diff([*(float(np.mean(place)) for place in scores), run.outcome])


def ceiling(values: Sequence[Valued]) -> float | None:
    """The largest correlation that anything can be expected to have with these
    advantages: the root of their reliability (Spearman and Brown, from two
    halves). `None` where the halves do not go together.
    """
    first, second = np.concatenate([one.halves for one in values], axis=1)
    if first.std() == 0 or second.std() == 0:
        return None
    together = float(np.corrcoef(first, second)[0, 1])
    return float(np.sqrt(2 * together / (1 + together))) if together > 0 else None


def losing_step(one: Valued, least: float) -> int | None:
    """The number of the step with the largest drop, in a run that was lost;
    `None` where no drop is that large.
    """
    worst = int(one.advantages.argmin())
    lost = one.run.outcome == 0 and one.advantages[worst] <= -least
    return one.run.actions[worst][0] if lost else None
