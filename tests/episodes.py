"""Runs written by hand: what a test does not care about is filled in."""

from typing import Any

from forensics.records import Trajectory

PLAIN: dict[str, Any] = {
    "id": "r", "task": "t", "policy": "p", "environment": "e", "seed": 0, "outcome": 1.0,
    "end": "terminated",
}  # fmt: skip


def episode_of(**told: Any) -> Trajectory:
    """A run that was won and ended by the rules, unless it is told otherwise."""
    return Trajectory(**{**PLAIN, **told})
