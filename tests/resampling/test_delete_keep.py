"""Delete and keep, and the truncation curve, where every success probability is known; the
reader's own replay too.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, strategies as st

from resampling.study.delete_keep import (
    DeleteKeepConfig,
    TruncationConfig,
    delete_and_keep,
    restored_by_kind,
    truncation_curve,
)
from resampling.trace_rollouts import (
    Request,
    Trace,
    draw_branches,
    pass_at,
)
from tests.resampling.table_sampler import TableSampler


@dataclass(frozen=True)
class Cliff:
    trace: str
    token: int
    kind: str | None = "uncertain"


LENGTH, FALL = 40, 20
WITH_CLIFF = [0.7] * (FALL + 1) + [0.2] * (LENGTH - FALL)
NAMES = [f"trace-{i}" for i in range(30)]
TASKS = {name: f"task-{i // 2}" for i, name in enumerate(NAMES)}


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 30))
def test_pass_at_k_is_the_share_of_all_subsets_with_a_success(
    wins: int, losses: int, k: int
) -> None:
    from math import comb

    found = pass_at(k, np.array([1.0] * wins + [0.0] * losses))
    n = wins + losses
    expected = None if n < k else 1 - comb(losses, k) / comb(n, k)
    assert found == (expected if expected is None else pytest.approx(expected, abs=1e-9))


def test_deleting_a_cliff_restores_its_drop_and_deleting_a_control_restores_nothing() -> None:
    potentials = dict.fromkeys(NAMES, WITH_CLIFF)
    rows = delete_and_keep(
        [Cliff(name, FALL) for name in NAMES],
        {name: np.array(WITH_CLIFF) for name in NAMES},
        TASKS,
        TableSampler(potentials),
        DeleteKeepConfig(rollouts=64),
    )
    found = {(row.kind, row.what): row for row in restored_by_kind(rows)}
    cliff, control = found["all", "cliff"], found["all", "control"]
    assert cliff.low < 0.5 < cliff.high
    assert control.low < 0 < control.high < cliff.low
    assert (
        abs(cliff.estimate - 0.5) < 0.06 and abs(control.estimate) < 0.06
    )  # 5 standard errors of 1,920 draws
    assert (cliff.n, cliff.tasks) == (30, 15)
    assert found["uncertain", "cliff"].estimate == cliff.estimate


def test_controls_have_the_potential_of_their_cliff_and_are_no_cliffs() -> None:
    potentials = np.array([0.9] * 10 + [0.7] * 11 + [0.2] * 20)
    cliffs = [Cliff("a", 20), Cliff("a", 15)]
    for seed in range(20):
        config = DeleteKeepConfig(rollouts=1, ks=(1,), seed=seed)
        rows = delete_and_keep(
            cliffs, {"a": potentials}, {"a": "a"}, TableSampler({"a": potentials.tolist()}), config
        )
        for row in rows:
            assert row.control is not None and 10 <= row.control.token <= 20
            assert row.control.token not in (15, 20)


def test_arms_do_not_depend_on_the_order_of_requests() -> None:
    requests = [Request(trace="a", kept=k, n=3, first=first) for k in (0, 2) for first in (0, 3)]
    sampler = TableSampler({"a": [0.5, 0.5, 0.5]})
    forth, back = draw_branches(sampler, requests), draw_branches(sampler, requests[::-1])
    assert {key: arm.scores.tolist() for key, arm in forth.items()} == {
        key: arm.scores.tolist() for key, arm in back.items()
    }
    assert len(forth[requests[0].branch].scores) == 6


def trace(name: str, task: str) -> Trace:
    return Trace(
        id=name,
        task=task,
        ids=tuple(range(LENGTH + 1)),
        positions=tuple(range(1, LENGTH + 1)),
        steps=(1,) * LENGTH,
        logprobs=np.zeros(LENGTH),
        outcome=1.0,
    )


def curve_of(known_from: float, answer: int = 7) -> tuple[float, float, float]:
    """The area where a forced answer is right with .9 from a fraction on, and with .1 before it."""
    traces = [trace(name, TASKS[name]) for name in NAMES]
    forced = {
        (name, kept, (answer,)): 0.9 if kept >= known_from * LENGTH else 0.1
        for name in NAMES
        for kept in range(LENGTH + 1)
    }
    sampler = TableSampler({name: [0.0] * (LENGTH + 1) for name in NAMES}, appended=forced)
    curve = truncation_curve(
        traces, sampler, lambda trace, kept: (answer,), TruncationConfig(rollouts=16)
    )
    assert curve.area.clusters == 15 and curve.traces == 30
    area, low, high = curve.area.ends
    return low, area, high


def test_the_area_tells_an_early_answer_from_a_late_one() -> None:
    early, late = curve_of(0.0), curve_of(0.95)
    assert early[0] < 0.9 < early[2] + 1e-9
    assert late[0] < 0.1 + 0.8 * 0.05 < late[2]  # one trapezoid of width .1 rises from .1 to .9
    assert early[0] > late[2]
