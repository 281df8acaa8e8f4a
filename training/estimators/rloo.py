"""RLOO (2402.14740): each reward minus the mean of the others in its group, divided by
nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from training.advantages import group_advantages
from training.groups import Estimator, Group, GroupAdvantages
from training.recipe import GrpoSection


def leave_one_out(groups: Sequence[Group], config: GrpoSection) -> list[GroupAdvantages]:
    """The reward minus the mean of all, times n / (n - 1)."""
    return [_of_group(group, config.dead_tolerance) for group in groups]


def _of_group(group: Group, tolerance: float) -> GroupAdvantages:
    centred = group_advantages(group.totals, "none", tolerance)
    number = sum(total is not None for total in group.totals)
    scale = number / max(number - 1, 1)
    values = tuple(None if value is None else scale * value for value in centred.values)
    return replace(centred, values=values)


rloo = Estimator(estimate=leave_one_out, idle=("scaling",))
