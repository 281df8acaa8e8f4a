"""The reader's own replay, where every potential is known."""

import numpy as np
import pytest

from forensics.errors import UserError
from resampling.arms import READER
from resampling.study.opening import parse_places
from resampling.study.replay_tokens import replay_tokens
from resampling.traces import Trace
from tests.resampling.table_sampler import TableSampler

POTENTIALS = [0.8, 0.8, 0.1, 0.1]


def trace(probability: float = 0.5) -> Trace:
    return Trace(id="a", task="t", ids=(9, 1, 2, 3), positions=(1, 2, 3), steps=(1, 1, 1),
                 logprobs=np.log([0.9, probability, 0.9]), outcome=0.0)


def test_a_token_that_decides_is_restored_by_deleting_it_and_others_are_not() -> None:
    sampler = TableSampler({"a": POTENTIALS})
    decides, idle = replay_tokens([(trace(), 1), (trace(), 2)], sampler, 200)
    low, high = decides.restored_interval() or (0, 0)
    assert 0.4 < low < 0.7 < high
    low, high = idle.restored_interval() or (1, 1)
    assert low < 0 < high and high - low < 0.25
    assert all(request.first == READER for request in sampler.asked)


def test_intervals_cover_the_difference_as_often_as_they_say() -> None:
    covered = 0
    for seed in range(300):
        [one] = replay_tokens([(trace(), 1)], TableSampler({"a": [0.5, 0.5, 0.3, 0.3]}, seed), 40)
        low, high = one.restored_interval() or (0, 0)
        covered += low <= 0.2 <= high
    assert covered >= 280  # 95 % of 300 is 285; fewer than 280 is 1 in 40 at 95 %, and exact ends cover more


def test_a_token_without_alternatives_has_no_third_arm_and_lost_arms_say_nothing() -> None:
    [sure] = replay_tokens([(trace(1.0), 1)], TableSampler({"a": POTENTIALS}), 8)
    assert sure.others is None and sure.row()["others"] is None
    lost = frozenset(range(READER, READER + 8))
    [nothing] = replay_tokens([(trace(), 1)], TableSampler({"a": POTENTIALS}, lost=lost), 8)
    assert nothing.restored is None and nothing.restored_interval() is None
    assert nothing.deleted.missing == 8 and nothing.row()["low"] is None


def test_what_is_not_a_place_is_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="3 sampled tokens"):
        replay_tokens([(trace(), 3)], TableSampler({"a": POTENTIALS}), 8)
    for wrong in ("a", "a:", ":3", "a:x", "a:-1"):
        with pytest.raises(UserError, match="TRAJECTORY:TOKEN"):
            parse_places([wrong])
    assert parse_places(["run:with:colons:14"]) == [("run:with:colons", 14)]
