"""Named rewards. A reward is a function of a finished trajectory and a random
stream; `None` means missing.

They are not asked about episodes that the environment broke: those never have a
reward (`training.rollouts`).

Reward terms that do not look at the outcome: for studies of what a further
reward dimension does to a run.
"""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from forensics.errors import UserError
from forensics.plugins import load_plugin
from forensics.records import Trajectory

DISCOUNT = 0.4  # a turn, in the reward `discounted`
Reward = Callable[[Trajectory, np.random.Generator], float | None]
Rewards = Mapping[str, tuple[Reward, float]]  # by name, each with its weight


def outcome(trajectory: Trajectory, generator: np.random.Generator) -> float | None:
    """The environment's score."""
    return trajectory.outcome


def coin(trajectory: Trajectory, generator: np.random.Generator) -> float | None:
    """A fair coin, whatever the policy did: RL without a signal."""
    return None if trajectory.outcome is None else float(generator.random() < 0.5)


def tests_run(trajectory: Trajectory, generator: np.random.Generator) -> float | None:
    """How often the policy ran the tests, whatever they said: a shaped reward
    that can be farmed.
    """
    return float(sum(step.kinds.count("test") for _, step in trajectory.actions))


def discounted(trajectory: Trajectory, generator: np.random.Generator) -> float | None:
    """The score times 0.4 for every turn after the first: haste pays more than care."""
    return (
        None
        if trajectory.outcome is None
        else trajectory.outcome * DISCOUNT ** (trajectory.turns - 1)
    )


def load_rewards(weights: Mapping[str, float]) -> dict[str, tuple[Reward, float]]:
    """Named rewards with their weights; unknown names are refused."""
    if not weights:
        raise UserError(
            "the recipe names no reward; add a line such as `outcome = 1.0` under [rewards]"
        )
    return {
        name: (load_plugin("forensics.rewards", name), weight) for name, weight in weights.items()
    }


def as_number(value: Any) -> float | None:
    """`value` as a float, if it is one finite number (a bool, a NumPy scalar
    and a tensor of no dimensions are).
    """
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    try:
        return float(value) if isinstance(value, Real) and np.isfinite(float(value)) else None
    except OverflowError:  # a whole number beyond every float
        return None


def brevity(trajectory: Trajectory, generator: np.random.Generator) -> float | None:
    """Minus the number of turns."""
    return -float(trajectory.turns)


def terse(trajectory: Trajectory, generator: np.random.Generator) -> float | None:
    """Minus the number of tokens that the policy drew; missing where they are not recorded."""
    drawn = [step.sampled for _, step in trajectory.actions]
    return None if None in drawn else -float(sum(map(sum, filter(None, drawn))))


def tested(trajectory: Trajectory, generator: np.random.Generator) -> float | None:
    """1 if the run ran the tests (an action of the kind `test`), else 0."""
    return float(any("test" in step.kinds for _, step in trajectory.actions))


def tie_breaker(trajectory: Trajectory, generator: np.random.Generator) -> float | None:
    """Standard normal noise, whatever the policy did: the control of every further term."""
    return float(generator.standard_normal())
