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
    found = []
    for group in groups:
        centred = group_advantages(group.totals, "none", config.dead_tolerance)
        number = sum(total is not None for total in group.totals)
        scale = number / max(number - 1, 1)
        values = tuple(None if value is None else scale * value for value in centred.values)
        found.append(replace(centred, values=values))
    return found


rloo = Estimator(estimate=leave_one_out, idle=("scaling",))
