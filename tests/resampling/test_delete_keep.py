"""Delete and keep, and the truncation curve, where every success probability is known; the
reader's own replay too.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forensics.errors import MissingInput, UserError
from resampling.study.cliff_run import parse_places
from resampling.study.delete_keep import (
    DeleteKeepConfig,
    TruncationConfig,
    delete_and_keep,
    replay_tokens,
    restored_by_kind,
    truncation_curve,
)
from resampling.trace_rollouts import (
    DELETE_KEEP,
    READER,
    BranchOutcomes,
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


def test_many_draws_succeed_after_deletion_by_construction() -> None:
    rows = delete_and_keep(
        [Cliff("a", 0)], {"a": np.array([0.3, 0.3])}, {"a": "a"}, TableSampler({"a": [0.3, 0.3]})
    )
    assert rows[0].cliff.delete[64] == rows[0].cliff.keep[64] == 1.0
    assert rows[0].control is None  # there is no other position


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


def test_delete_and_keep_never_reuses_what_was_searched_with() -> None:
    sampler = TableSampler({"a": WITH_CLIFF})
    delete_and_keep([Cliff("a", FALL)], {"a": np.array(WITH_CLIFF)}, {"a": "a"}, sampler)
    assert sampler.asked and all(request.first >= DELETE_KEEP for request in sampler.asked)


def test_missing_rollouts_are_counted_and_are_no_failures() -> None:
    lost = frozenset(range(DELETE_KEEP, DELETE_KEEP + 10))
    config = DeleteKeepConfig(rollouts=20, ks=(1, 20))
    sampler = TableSampler({"a": [1, 1]}, lost=lost)
    rows = delete_and_keep([Cliff("a", 0)], {"a": np.ones(2)}, {"a": "a"}, sampler, config)
    assert rows[0].cliff.missing == 20
    assert rows[0].cliff.delete == {1: 1.0, 20: None}


def test_arms_do_not_depend_on_the_order_of_requests() -> None:
    requests = [Request(trace="a", kept=k, n=3, first=first) for k in (0, 2) for first in (0, 3)]
    sampler = TableSampler({"a": [0.5, 0.5, 0.5]})
    forth, back = draw_branches(sampler, requests), draw_branches(sampler, requests[::-1])
    assert {key: arm.scores.tolist() for key, arm in forth.items()} == {
        key: arm.scores.tolist() for key, arm in back.items()
    }
    assert len(forth[requests[0].branch].scores) == 6


def test_an_arm_without_scores_is_empty() -> None:
    assert pass_at(1, BranchOutcomes().scores) is None


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


def test_a_curve_needs_two_tasks_and_fractions_from_zero_to_one() -> None:
    with pytest.raises(MissingInput):
        truncation_curve(
            [trace("a", "a")], TableSampler({"a": [0.5] * (LENGTH + 1)}), lambda trace, kept: ()
        )
    with pytest.raises(ValueError, match="from 0 to 1"):
        TruncationConfig(fractions=(0.2, 1.0))


@pytest.mark.parametrize("times,least", [(70, 63), pytest.param(200, 184, marks=pytest.mark.slow)])
def test_the_interval_of_what_deletion_restores_covers_with_few_tasks(
    times: int, least: int
) -> None:
    """Eight tasks whose cliffs restore .2 to .6, 32 draws an arm: the interval
    holds the mean that they came from.
    """
    covered, widths = 0, []
    for seed in range(times):
        rng = np.random.default_rng(seed)
        falls = rng.uniform(0.2, 0.6, 8)
        potentials = {f"t{i}": [0.8, 0.8 - fall] for i, fall in enumerate(falls)}
        rows = delete_and_keep(
            [Cliff(name, 0) for name in potentials],
            {name: np.array(p) for name, p in potentials.items()},
            {name: name for name in potentials},
            TableSampler(potentials, seed),
            DeleteKeepConfig(rollouts=32),
        )
        found = next(
            row for row in restored_by_kind(rows) if (row.kind, row.what) == ("all", "cliff")
        )
        covered += found.low <= 0.4 <= found.high
        widths.append(found.high - found.low)
    # 95 % of 200 is 190; fewer than 184 comes by chance once in 300 times, 63 of 70 once in 30
    assert covered >= least
    assert np.mean(widths) < 0.4


POTENTIALS = [0.8, 0.8, 0.1, 0.1]


def one_token(probability: float = 0.5) -> Trace:
    return Trace(
        id="a",
        task="t",
        ids=(9, 1, 2, 3),
        positions=(1, 2, 3),
        steps=(1, 1, 1),
        logprobs=np.log([0.9, probability, 0.9]),
        outcome=0.0,
    )


def test_a_token_that_decides_is_restored_by_deleting_it_and_others_are_not() -> None:
    sampler = TableSampler({"a": POTENTIALS})
    decides, idle = replay_tokens([(one_token(), 1), (one_token(), 2)], sampler, 200)
    assert decides.restored and idle.restored
    assert 0.4 < decides.restored.low < 0.7 < decides.restored.high
    _, low, high = idle.restored.ends
    assert low < 0 < high and high - low < 0.25
    assert all(request.first == READER for request in sampler.asked)


def test_intervals_cover_the_difference_as_often_as_they_say() -> None:
    covered = 0
    for seed in range(300):
        [one] = replay_tokens(
            [(one_token(), 1)], TableSampler({"a": [0.5, 0.5, 0.3, 0.3]}, seed), 40
        )
        assert one.restored
        covered += one.restored.low <= 0.2 <= one.restored.high
    assert (
        covered >= 280
    )  # 95 % of 300 is 285; fewer than 280 is 1 in 40 at 95 %, and exact ends cover more


def test_a_token_without_alternatives_has_no_third_arm_and_lost_arms_say_nothing() -> None:
    [sure] = replay_tokens([(one_token(1.0), 1)], TableSampler({"a": POTENTIALS}), 8)
    assert sure.others is None and sure.row()["others"] is None
    lost = frozenset(range(READER, READER + 8))
    [nothing] = replay_tokens([(one_token(), 1)], TableSampler({"a": POTENTIALS}, lost=lost), 8)
    assert nothing.restored is None
    assert nothing.deleted.missing == 8 and nothing.row()["low"] is None


def test_what_is_not_a_place_is_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="3 sampled tokens"):
        replay_tokens([(one_token(), 3)], TableSampler({"a": POTENTIALS}), 8)
    for wrong in ("a", "a:", ":3", "a:x", "a:-1"):
        with pytest.raises(UserError, match="TRAJECTORY:TOKEN"):
            parse_places([wrong])
    assert parse_places(["run:with:colons:14"]) == [("run:with:colons", 14)]
