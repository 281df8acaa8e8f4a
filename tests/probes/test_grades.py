"""Grades of steps: the numbers by hand, the identities, and what has none."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from probes.grades.step_grades import (
    ALL,
    CONFIDENCE,
    DEFAULT,
    LENGTH,
    LOWEST_GROUP,
    NOT_DRAWN,
    NOT_READ,
    REDUCTIONS,
    Aggregation,
    TopConfidence,
    grade,
    lowest_group,
)
from tests.probes.scored_runs import scored

POLICY = [[-0.1, -0.3], [-1.0], [-0.2, -0.2, -0.5]]
REFERENCE = [[-0.5, -0.3], [-0.4], [-0.8, -0.5, -0.5]]
# steps: (.4 + 0)/2 = .2; -.6; (.6 + .3 + 0)/3 = .3; their mean -.1/3
LOGPROBS = st.lists(
    st.lists(st.tuples(*[st.floats(-30, 0)] * 2), min_size=1, max_size=4), min_size=1, max_size=5
)


def test_the_default_is_mean_over_tokens_then_mean_over_steps() -> None:
    assert (DEFAULT.tokens, DEFAULT.steps) == ("mean", "mean")
    found = grade(scored(POLICY, REFERENCE))
    assert [step.grade for step in found.steps] == pytest.approx([0.2, -0.6, 0.3])
    assert found.grade == pytest.approx(-0.1 / 3)
    assert [step.ratio_sum for step in found.steps] == pytest.approx([0.4, -0.6, 0.9])
    assert [(step.step, step.tokens) for step in found.steps] == [(1, 2), (3, 1), (5, 3)]


def test_baselines_by_hand_higher_should_mean_success() -> None:
    more = {
        "entropy": [[1.0, 3.0], [4.0], [0.0, 0.0, 3.0]],
        "self_certainty": [[2.0, 2.0], [1.0], [3.0, 3.0, 3.0]],
        CONFIDENCE: [[5.0, 1.0], [3.0], [4.0, 4.0, 4.0]],
    }
    found = grade(scored(POLICY, REFERENCE, **more)).scores
    assert found["log-probability, policy"] == pytest.approx((-0.2 - 1.0 - 0.3) / 3)
    assert found["log-probability, reference"] == pytest.approx((-0.4 - 0.4 - 0.6) / 3)
    assert found["entropy"] == pytest.approx(-(2.0 + 4.0 + 1.0) / 3)
    assert found["self-certainty"] == pytest.approx(2.0)
    assert found[LENGTH] == -6.0
    assert found[LOWEST_GROUP] == pytest.approx(21 / 6)


def test_the_lowest_group_is_the_least_mean_of_any_window() -> None:
    values = np.array([5.0, 1.0, 3.0, 4.0, 4.0, 0.0])
    assert lowest_group(values, 2) == 2.0  # (3, 4, 4 and 0 give 2) (1, 3 too)
    assert lowest_group(values, 3) == pytest.approx(8 / 3)
    assert lowest_group(values, 100) == pytest.approx(17 / 6)
    assert lowest_group(None) is None and lowest_group(np.array([])) is None
    assert lowest_group(np.array([1.0, np.nan])) is None


def test_top_confidence_is_minus_the_mean_log_probability_of_the_likeliest() -> None:
    spread = torch.log(torch.tensor([[0.5, 0.3, 0.1, 0.1], [1.0, 0.0, 0.0, 0.0]]))
    found = TopConfidence(2)(spread, None, None)
    assert found[0].item() == pytest.approx(-(np.log(0.5) + np.log(0.3)) / 2)
    assert found[1].item() == 0.0  # only one token has a chance
    assert TopConfidence(20)(spread[:1], None, None).item() == pytest.approx(
        -np.log([0.5, 0.3, 0.1, 0.1]).mean()
    )


@given(LOGPROBS)
def test_exchanged_checkpoints_flip_the_sign_exactly(
    values: list[list[tuple[float, float]]],
) -> None:
    policy, reference = ([[pair[side] for pair in step] for step in values] for side in (0, 1))
    there, back = grade(scored(policy, reference)), grade(scored(reference, policy))
    assert there.grade == -back.grade
    assert [step.grade for step in there.steps] == [-step.grade for step in back.steps]


@given(LOGPROBS)
def test_identical_checkpoints_give_exactly_zero(values: list[list[tuple[float, float]]]) -> None:
    policy = [[pair[0] for pair in step] for step in values]
    found = grade(scored(policy, policy))
    assert found.grade == 0 and all(step.grade == 0 == step.ratio_sum for step in found.steps)


def test_steps_without_a_grade_are_none_and_take_no_part() -> None:
    whole = grade(scored(POLICY[1:], REFERENCE[1:]))
    found = grade(scored([[], *POLICY[1:]], [[], *REFERENCE[1:]]))
    assert found.steps[0].grade is None and found.steps[0].reason == NOT_DRAWN
    assert found.grade == whole.grade
    nan = float("nan")
    cut = grade(scored([[nan, -0.3], *POLICY[1:]], [[nan, -0.3], *REFERENCE[1:]], unread=[1]))
    assert cut.steps[0].grade is None and cut.steps[0].reason == NOT_READ
    assert cut.steps[0].columns["policy"] is None and cut.grade == whole.grade


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_every_aggregation_is_what_it_says(one: Aggregation) -> None:
    ways = {
        "mean": np.mean,
        "sum": np.sum,
        "min": np.min,
        "max": np.max,
        "last": lambda values: values[-1],
    }
    assert set(ways) == set(REDUCTIONS)
    ratios = [np.subtract(*pair) for pair in zip(POLICY, REFERENCE, strict=True)]
    expected = ways[one.steps](np.array([ways[one.tokens](values) for values in ratios]))
    assert grade(scored(POLICY, REFERENCE), one).grade == pytest.approx(expected)
