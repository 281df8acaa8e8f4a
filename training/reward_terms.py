"""Reward terms that do not look at the outcome: for studies of what a further reward dimension does to a run."""

import numpy as np

from forensics.records import Trajectory


def brevity(trajectory: Trajectory, generator: np.random.Generator) -> float | None:
    """Minus the number of turns."""
    return -float(trajectory.turns)


def tested(trajectory: Trajectory, generator: np.random.Generator) -> float | None:
    """1 if the run ran the tests (an action of the kind `test`), else 0."""
    return float(any("test" in step.kinds for _, step in trajectory.actions))


def tie_breaker(trajectory: Trajectory, generator: np.random.Generator) -> float | None:
    """Standard normal noise, whatever the policy did: the control of every further term."""
    return float(generator.standard_normal())
