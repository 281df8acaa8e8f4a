"""Placeholder until the readers' own comes."""

from collections.abc import Sequence

from forensics.actions.action import Action
from forensics.records import Trajectory


def unread_actions(trajectory: Trajectory, actions: Sequence[Action]) -> str | None:
    return None
