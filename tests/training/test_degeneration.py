"""The study of echo and collapse: when a layer counts as having noticed, and
that a control differs in its reward.
"""

import pytest

from experiments.degeneration.noticing import (
    Audit,
    cause_is_there,
    ever,
    level,
    new_alerts,
    noticed,
)
from experiments.degeneration.runs import AUDIT, BRANCHES, CONTROL, Run, recipe_of
from forensics.layers.train_columns import StepNumbers


def audits(*fires: bool) -> list[Audit]:
    return [
        Audit(
            step=10 * (n + 1),
            fires={"behaviour": fire},
            alerts=(),
            label="noise",
            turns_before=5,
            turns_after=5,
            gain=(0, 0, 0),
        )
        for n, fire in enumerate(fires)
    ]


@pytest.mark.parametrize(
    ("fires", "first", "at_all"),
    [
        ((False, False, False), None, False),
        ((False, True, True), 20, True),
        ((True, True, True), 10, True),
        (
            (True, False, True),
            30,
            True,
        ),  # an alarm that went away again was not the one that stayed
        ((True, True, False), None, True),
    ],
)
def test_noticed_is_the_first_audit_from_which_it_fires_to_the_end(
    fires: tuple[bool, ...], first: int | None, at_all: bool
) -> None:
    assert noticed(audits(*fires), "behaviour") == first
    assert ever(audits(*fires), "behaviour") is at_all


def steps(measure: str, *values: float) -> list[StepNumbers]:
    return [
        StepNumbers(step=n, means={measure: {"a": value - 0.01, "b": value + 0.01}}, runs=2)
        for n, value in enumerate(values)
    ]


def test_an_alert_line_counts_only_where_it_was_not_crossed_from_the_start() -> None:
    assert not new_alerts(
        steps("turns", *[4.0] * 20)
    )  # below 5 all the time: this world is like that
    assert [
        text
        for text in new_alerts(steps("turns", *[6.0] * 15, *[4.0] * 5))
        if text.startswith("turns warning")
    ]
    assert not new_alerts(steps("dead share", *[0.1] * 20))
    dead = new_alerts(steps("dead share", *[0.1] * 15, *[0.6] * 5))
    assert len(dead) == 2 and any("critical" in text for text in dead)


def test_the_ratio_of_failed_to_successful_turns_is_worked_out() -> None:
    both = [
        StepNumbers(
            step=0,
            means={"turns of failed runs": {"a": 9.0}, "turns of successful runs": {"b": 3.0}},
            runs=2,
        )
    ]
    assert level(both, "turns of failed runs: ratio") == pytest.approx(3)
    assert level(steps("turns", 4.0), "turns of failed runs: ratio") is None


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_control_branch_is_the_same_run_without_the_planted_reward(branch: str) -> None:
    planted, control = (recipe_of(branch.removesuffix(CONTROL) + end) for end in ("", CONTROL))
    assert control.rewards == {"outcome": 1.0} != planted.rewards
    assert control.model_copy(update={"rewards": planted.rewards}) == planted
    assert planted.audit == AUDIT


@pytest.mark.parametrize(
    ("branch", "before", "after", "high", "there"),
    [
        ("echo", 5.0, 10.0, 0.1, True),
        ("echo", 5.0, 9.9, 0.1, False),
        ("echo", 5.0, 12.0, -0.01, False),
        ("collapse", 4.0, 1.4, -0.1, True),
        ("collapse", 4.0, 1.6, 0.1, False),
        ("echo-control", 5.0, 12.0, 0.1, None),
    ],
)
def test_the_cause_is_judged_without_the_verdict(
    branch: str,
    before: float,
    after: float,
    high: float,
    there: bool | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    last = Audit(
        step=70,
        fires={},
        alerts=(),
        label="noise",
        turns_before=before,
        turns_after=after,
        gain=(high - 0.1, high - 0.2, high),
    )
    assert (
        cause_is_there(Run(branch=branch, seed=0, folder=tmp_path_factory.mktemp("run")), last)
        is there
    )
