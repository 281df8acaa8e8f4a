"""Advantage estimators that are chosen by name: closed forms, all subsets counted one by
one, dead groups, and what an estimator is told of a group.
"""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from forensics.errors import UserError
from tests.training.trajectories import trajectory
from training.advantages import estimate_advantages, group_advantages
from training.estimators.best_of_k import PassAtK
from training.groups import Group
from training.losses import Objective
from training.recipe import GrpoSection
from training.rewards import outcome
from training.rollouts import RewardScorer

Rewards = list[float | None]


def group(totals: Rewards, parts: dict[str, Rewards] | None = None, **weights: float) -> Group:
    parts = parts or {"only": totals}
    return Group(
        task="a",
        trajectories=tuple(trajectory("a", 1.0, i) for i in range(len(totals))),
        components=tuple(
            {name: values[i] for name, values in parts.items()} for i in range(len(totals))
        ),
        totals=tuple(totals),
        weights=weights or dict.fromkeys(parts, 1.0),
    )


def advantages(name: str, *groups: Group, **keys: float) -> list[tuple[float | None, ...]]:
    config = GrpoSection(steps=1, advantages=name, **keys)
    return [one.values for one in estimate_advantages(groups, config)]


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=7))
def test_rloo_is_each_reward_minus_the_mean_of_the_others(rewards: list[float]) -> None:
    (found,) = advantages("rloo", group([*rewards, None]))
    for i, reward in enumerate(rewards):
        others = rewards[:i] + rewards[i + 1 :]
        assert found[i] == pytest.approx(reward - np.mean(others), abs=1e-9)
    assert found[-1] is None


def by_counting(rewards: list[float], k: int) -> list[float]:
    """Every set of k attempts is worth its best; its normalised worth is shared."""
    sets = list(combinations(range(len(rewards)), k))
    worth = np.array([max(rewards[i] for i in one) for one in sets])
    normal = (worth - worth.mean()) / worth.std()
    return [
        float(np.mean([value for one, value in zip(sets, normal, strict=True) if row in one]))
        for row in range(len(rewards))
    ]


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=3, max_size=8), st.integers(1, 7))
def test_pass_at_k_counts_every_set_of_k_attempts(rewards: list[float], k: int) -> None:
    config = PassAtK(steps=1, advantages="pass-at-k", pass_k=k)
    (found,) = estimate_advantages([group([*rewards, None])], config)
    sets = {max(one) for one in combinations(rewards, k)}
    assert (found.dead is not None) == (len(sets) < 2) and found.values[-1] is None
    wanted = [0.0] * len(rewards) if found.dead else by_counting(rewards, k)
    assert found.values[:-1] == pytest.approx(wanted, abs=1e-9)
    if k == 1 and not found.dead:
        assert found.values[:-1] == pytest.approx(group_advantages(rewards).values, rel=1e-4)


def test_pass_at_k_refuses_what_is_no_success_or_failure() -> None:
    config = PassAtK(steps=1, advantages="pass-at-k", pass_k=2)
    with pytest.raises(UserError, match=r"needs rewards that are 0 or 1 .* task a gave 0.5"):
        estimate_advantages([group([0.5, 1.0, 0.0])], config)


def test_gdpo_hears_a_quiet_reward_that_the_sum_drowns() -> None:
    """A right answer is worth 1, a short one .001: the estimator `group` gives the short
    one a thousandth of what the right one gains, GDPO the same.
    """
    right, short = [1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]
    totals = [r + 0.001 * s for r, s in zip(right, short, strict=True)]
    loud = group(totals, {"right": right, "short": [0.001 * s for s in short]})
    (plain,), (apart,) = advantages("group", loud), advantages("gdpo", loud)
    assert plain[0] - plain[1] == pytest.approx(0.001 * (plain[0] - plain[2]), rel=1e-2)
    assert apart[0] - apart[1] == pytest.approx(apart[0] - apart[2], rel=0.2)
    (silent,) = advantages("gdpo", group(totals, {"right": right, "short": short}, right=1.0))
    assert silent[0] == pytest.approx(silent[1])


def test_gdpo_lives_where_any_reward_differs_and_dead_groups_change_nothing() -> None:
    """Totals are equal, so the estimator `group` calls it dead."""
    traded = group([1.0, 1.0], {"right": [1.0, 0.0], "short": [0.0, 1.0]}, right=1.0, short=0.5)
    still = group([1.0, 1.0, None], {"right": [1.0, 1.0, None], "short": [0.0, 0.0, None]})
    config = GrpoSection(steps=1, advantages="gdpo")
    (alone,) = estimate_advantages([traded], config)
    beside, dead = estimate_advantages([traded, *[still] * 9], config)[:2]
    assert alone.dead is None and alone.values[0] > 0 > alone.values[1]
    assert beside.values == alone.values and beside.spread == 0
    assert dead.values == (0.0, 0.0, None) and dead.dead == "no reward differs in 2 attempts"
    assert estimate_advantages([group([1.0, None])], config)[0].dead == "fewer than two rewards"


def test_a_group_tells_the_weights_and_the_lengths() -> None:
    runs = [trajectory("a", 1.0, i) for i in range(2)]
    objective = Objective(overlong_buffer=2, overlong_tokens=3)
    scorer = RewardScorer(
        rewards={"right": (outcome, 0.5)}, config=GrpoSection(steps=1), objective=objective
    )
    found = scorer.group(runs, np.random.default_rng(0))
    assert found.weights == {"right": 0.5, "overlong": 1.0} and found.lengths == (2, 2)
    assert found.totals[0] == sum(found.weights[n] * x for n, x in found.components[0].items())
