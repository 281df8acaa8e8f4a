"""OPO (2505.23585): each reward minus the mean of its group, weighted by length."""

from pydantic import Field

from training import Estimator, GroupAdvantages, GrpoSection


class Opo(GrpoSection):
    power: float = Field(1.0, ge=0)


def estimate(groups, config):
    return [advantages(group, config.power) for group in groups]


def advantages(group, power):
    known = {row: reward for row, reward in enumerate(group.totals) if reward is not None}
    if len(set(known.values())) < 2:
        values = tuple(None if reward is None else 0.0 for reward in group.totals)
        return GroupAdvantages(values=values, dead="all rewards are equal")
    sizes = {row: group.lengths[row] ** power for row in known}
    mean = sum(sizes[row] * known[row] for row in known) / sum(sizes.values())
    values = tuple(None if reward is None else reward - mean for reward in group.totals)
    spread = max(known.values()) - min(known.values())
    return GroupAdvantages(values=values, dead=None, spread=spread)


opo = Estimator(estimate=estimate, config=Opo, idle=("scaling",))
