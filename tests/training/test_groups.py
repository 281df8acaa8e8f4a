"""Advantages and groups: closed forms, dead groups, the variance filter, the curriculum."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forensics.errors import UserError
from training.advantages import (
    FILTER_WARMUP,
    Fresh,
    Group,
    Prioritised,
    VarianceFilter,
    group_advantages,
    step_advantages,
)
from training.environments.mini_repo import MiniRepo


def test_advantages_in_closed_form() -> None:
    """Rewards 1, 0, 0, 0: mean 1/4, deviations 3/4 and -1/4, standard deviation sqrt(3)/4."""
    values = group_advantages([1.0, 0.0, 0.0, 0.0]).values
    assert values == pytest.approx((3**0.5, -(3**-0.5), -(3**-0.5), -(3**-0.5)), rel=1e-5)
    assert group_advantages([1.0, 0.0], "none").values == (0.5, -0.5)


def test_dead_groups_say_why() -> None:
    assert (
        group_advantages([0.5, 0.5]).dead == "all 2 rewards equal 0.5"
    )  # constant, not only 0 or 1
    assert group_advantages([1.0]).dead == "fewer than two rewards"
    assert group_advantages([1.0, None]).dead == "fewer than two rewards"
    assert group_advantages([0.5, 0.5 + 1e-9], tolerance=1e-6).dead is not None
    assert group_advantages([1.0, 0.0, None]).values[2] is None
    with pytest.raises(ValueError, match="finite"):
        group_advantages([float("nan"), 1.0])


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=9), st.floats(-3, 3))
def test_advantages_are_centred_and_ignore_a_shift(rewards: list[float], shift: float) -> None:
    values = group_advantages(rewards, "none").values
    moved = group_advantages([r + shift for r in rewards], "none").values
    assert sum(v for v in values if v is not None) == pytest.approx(0, abs=1e-9)
    assert values == pytest.approx(moved, abs=1e-9)


def test_batch_scaling_sees_living_groups_only() -> None:
    """Deviations ±1/2 and ±1: standard deviation sqrt(5/8); ten dead groups
    beside them change nothing.
    """
    living = [[1.0, 0.0], [2.0, 0.0]]
    scaled = [g.values for g in step_advantages(living, "batch")]
    deviation = (5 / 8) ** 0.5
    assert scaled[0] == pytest.approx((0.5 / deviation, -0.5 / deviation), rel=1e-5)
    assert scaled[1] == pytest.approx((1 / deviation, -1 / deviation), rel=1e-5)
    diluted = step_advantages([*living, *[[1.0, 1.0]] * 10], "batch")
    assert [g.values for g in diluted[:2]] == scaled and diluted[5].dead


def test_the_variance_filter_drops_what_lies_far_below_and_never_more_than_half() -> None:
    chosen = VarianceFilter()
    generator = np.random.default_rng(0)
    usual = list(0.4 + 0.05 * generator.standard_normal(FILTER_WARMUP))
    assert chosen.judge(usual) == [None] * FILTER_WARMUP  # warming up
    assert chosen.mean == pytest.approx(np.mean(usual)) and chosen.deviation == pytest.approx(
        np.std(usual)
    )
    reasons = chosen.judge([0.01, 0.4, None, 0.4])
    assert reasons[0] is not None and "0.01" in reasons[0] and reasons[1:] == [None] * 3
    assert sum(r is not None for r in chosen.judge([0.0, 0.01, 0.0, 0.01])) == 2


def test_a_prioritised_curriculum_prefers_what_is_half_solved() -> None:
    world = MiniRepo(turns="3")
    plan = Prioritised(size=8, seed=0)
    pool = world.tasks("train", 8, 0)

    def played(task: str, successes: int) -> Group:
        from tests.training.trajectories import trajectory

        runs = tuple(trajectory(task, float(i < successes), i) for i in range(40))
        return Group(task=task, trajectories=runs, components=({},) * 40, totals=(0.0,) * 40)

    plan.learn([played(task, 20 if task == pool[3] else 0) for task in pool])
    drawn = [plan.draw(world, 2, root) for root in range(200)]
    share = {task: sum(task in tasks for tasks in drawn) / 200 for task in pool}
    assert share[pool[3]] > 0.75 and max(v for t, v in share.items() if t != pool[3]) < 0.4
    other = Prioritised(size=8, seed=0)
    other.restore(plan.state())
    assert [other.draw(world, 3, root) for root in range(9)] == [
        plan.draw(world, 3, root) for root in range(9)
    ]
    assert Fresh().draw(world, 3, 1) != Fresh().draw(world, 3, 2)


@pytest.mark.parametrize("outcome", [3.0, -0.5])
def test_a_prioritised_curriculum_refuses_outcomes_that_are_no_share(outcome: float) -> None:
    from tests.training.trajectories import trajectory

    group = Group(
        task="a", trajectories=(trajectory("a", outcome),), components=({},), totals=(0.0,)
    )
    with pytest.raises(UserError, match="outcomes in 0 to 1, and task a gave"):
        Prioritised(size=8, seed=0).learn([group])
