"""Leave-one-out baseline (2402.14740): each reward minus the mean of the others."""

from training import GroupAdvantages


def estimate(groups, config):
    return [advantages(group.totals) for group in groups]


def advantages(totals):
    known = [reward for reward in totals if reward is not None]
    if len(set(known)) < 2:
        values = tuple(None if reward is None else 0.0 for reward in totals)
        return GroupAdvantages(values=values, dead="all rewards are equal")
    scale, mean = len(known) / (len(known) - 1), sum(known) / len(known)
    values = tuple(None if reward is None else scale * (reward - mean) for reward in totals)
    return GroupAdvantages(values=values, dead=None, spread=max(known) - min(known))
