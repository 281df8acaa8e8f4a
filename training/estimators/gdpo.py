"""GDPO (2601.05242): each reward is normalised apart, so that none drowns in another's
spread.

1. Within a group, each named reward minus its mean, divided by its standard deviation.
2. Their sum by the weights of the rewards.
3. That sum, normalised over the attempts of all living groups of the step. A group
   lives where any weighted reward differs between its attempts.

Standard deviations are those of a sample plus 1e-4, as in TRL (`group` takes the
population's plus 1e-6). Departure: TRL normalises over dead groups as well; then the
more of them there are, the larger are the advantages of the others.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.groups import Estimator, Group, GroupAdvantages
from training.recipe import GrpoSection

FLOOR = 1e-4


def decoupled(groups: Sequence[Group], config: GrpoSection) -> list[GroupAdvantages]:
    """Advantages of all groups of a step."""
    found = [_summed(group, config.dead_tolerance) for group in groups]
    living = [x for one in found if one.dead is None for x in one.values if x is not None]
    if not living:
        return found
    mean, scale = float(np.mean(living)), float(np.std(living, ddof=1)) + FLOOR
    return [
        one
        if one.dead is not None
        else replace(one, values=tuple(x if x is None else (x - mean) / scale for x in one.values))
        for one in found
    ]


def _summed(group: Group, tolerance: float) -> GroupAdvantages:
    """The weighted sum of a group's normalised rewards."""
    known = {row: total for row, total in enumerate(group.totals) if total is not None}
    few, varies, sums = len(known) < 2, False, np.zeros(len(known))
    for name, weight in group.weights.items():
        rewards = np.array([group.components[row][name] for row in known], dtype=np.float64)
        if weight and not few and np.ptp(rewards) > tolerance:
            sums += weight * (rewards - rewards.mean()) / (rewards.std(ddof=1) + FLOOR)
            varies = True
    values = dict(zip(known, sums.tolist(), strict=True))
    same = "fewer than two rewards" if few else f"no reward differs in {len(known)} attempts"
    return GroupAdvantages(
        values=tuple(values.get(row) for row in range(len(group.totals))),
        dead=None if varies else same,
        spread=None if few else float(np.std(list(known.values()))),
    )


gdpo = Estimator(estimate=decoupled, idle=("scaling",))
