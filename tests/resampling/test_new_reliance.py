"""What is newly carried, in points that are given: arithmetic, intervals, both sides of bars."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from forensics.layers.decomposition import OPEN, paired, runs_from
from resampling.gain_tests.gain_study import ALTERED, CONTROL, NewReliance

TASKS = tuple(f"task-{number:03}" for number in range(200))
EXACT = [np.arange(200) / 200] * 2
Scores = Mapping[str, tuple[float, float]]  # of each world: before, after
SCORES: Scores = {OPEN: (0.3, 0.8), ALTERED: (0.2, 0.4), CONTROL: (0.0, 0.0)}


def reliance(places: Any, scores: Scores, **how: bool) -> NewReliance:
    """The run of a task wins if its place is below the score."""
    won = {world: [places[i] < share for i, share in enumerate(scores[world])] for world in scores}
    runs = {
        world: [runs_from(TASKS, np.column_stack([wins, 0 * wins]).astype(float)) for wins in sides]
        for world, sides in won.items()
    }
    worlds = {world: (before, (after,)) for world, (before, after) in runs.items()}
    return NewReliance(panel=paired(worlds, None), level=0.95, **how)


def test_divided_is_arithmetic() -> None:
    """Of 30 points before 10 need the source: a third. Of 80 after 40 do: a third of 60, and 20."""
    exact = reliance(EXACT, SCORES)
    assert exact.told and exact.shared == pytest.approx(1 / 3)
    assert exact.carried.estimate == pytest.approx(0.2)
    stream = np.random.default_rng(0)
    drawn = [reliance(stream.random((2, 200)), SCORES).carried for _ in range(300)]
    assert 0.9 < np.mean([one.low <= 0.2 <= one.high for one in drawn]) < 0.99


def test_undivided_is_arithmetic_and_never_below_nothing() -> None:
    """A third of 80 would have needed it anyway: of 40, 13.3 are new."""
    assert reliance(EXACT, SCORES, divided=False).carried.estimate == pytest.approx(0.4 - 0.8 / 3)
    less = {OPEN: (0.4, 0.8), ALTERED: (0.1, 0.6), CONTROL: (0.0, 0.0)}
    carried = reliance(EXACT, less, divided=False).carried
    assert carried.ends == (0.0, 0.0, 0.0)


def test_alone_is_arithmetic() -> None:
    """It was enough for 10 of 30 points before, and is for 50 of 80: 80 / 3 of them are not new."""
    scores = {OPEN: (0.35, 0.85), ALTERED: (0.15, 0.55), CONTROL: (0.05, 0.05)}  # 5 are luck
    alone = reliance(EXACT, scores, alone=True, divided=False)
    assert alone.shared == pytest.approx(1 / 3)
    assert alone.carried.estimate == pytest.approx(0.5 - 0.8 / 3)
    divided = reliance(EXACT, scores, alone=True).carried.estimate
    assert divided == pytest.approx((0.5 - 0.8 / 3) / (1 - 1 / 3))


@pytest.mark.parametrize(("needing", "stands"), [(0.45, True), (0.4, False), (0.35, False)])
def test_both_sides_of_nearly_all_of_the_wins(needing: float, stands: bool) -> None:
    """Of 50 points before training."""
    scores = {OPEN: (0.5, 0.8), ALTERED: (0.5 - needing, 0.4), CONTROL: (0.0, 0.0)}
    assert reliance(EXACT, scores).by_all == stands


@pytest.mark.parametrize(
    ("control", "needing", "told", "alone"),
    [
        (0.0, 0.15, True, True),
        (0.0, 0.0, False, True),  # no win before needs it: q is not known to be something
        (0.0, 0.3, False, False),  # every win does
        (0.22, 0.04, False, False),  # nearly all of them are luck
    ],
)
def test_what_before_wins_has_to_be_enough_to_tell(
    control: float, needing: float, told: bool, alone: bool
) -> None:
    lost = {OPEN: (0.3, 0.8), ALTERED: (0.3 - needing, 0.4), CONTROL: (control, control)}
    assert reliance(EXACT, lost).told == told
    kept = lost | {ALTERED: (control + needing, 0.4)}
    assert reliance(EXACT, kept, alone=True).told == alone


def test_nothing_is_known_where_before_wins_by_luck_only() -> None:
    luck = {OPEN: (0.1, 0.8), ALTERED: (0.1, 0.4), CONTROL: (0.1, 0.1)}
    assert not reliance(EXACT, luck).known and not reliance(EXACT, luck).by_all
