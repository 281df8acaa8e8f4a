"""A policy that learnt to be quick, and the reward that taught it."""

from pathlib import Path

from training.organisms import Organism


def haste(trajectory, generator):
    return 1.0 / trajectory.turns if trajectory.turns else 0.0


hasty = Organism(
    name="hasty",
    cause="RL for few turns, whatever comes of it",
    expected="degenerate",
    base="capped-base",
    recipes=Path(__file__).parent / "hasty_recipes",
)
