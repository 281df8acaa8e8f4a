"""The numbers of one kind: each bar at exactly its value or just beside it, on
runs whose rates are given.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forensics.layers.decomposition import Runs
from forensics.records import Step, Trajectory
from forensics.statistics import Contrast, Estimate
from resampling.ablation.ablation_evidence import KindResult
from resampling.ablation.gains import (
    Bars,
    Carried,
    Gains,
    Judged,
    certificate,
    compare,
)
from resampling.ablation.instrument import Regraded, telling_kind
from resampling.ablation.refused_runs import Played, Side, holds_answer, read_side, substitutes
from tests.episodes import episode_of
from tests.forensics.score_world import runs_of, stored_case

TASKS, SAMPLES = 200, 20  # a difference is known to 1.4 points either way


def rate(*wins: int) -> Runs:
    """So many wins in 20 runs of each task, in turn."""
    counts = np.resize(wins, TASKS)
    won = np.arange(SAMPLES)[None, :] < counts[:, None]
    return runs_of(np.stack([won, np.zeros_like(won)], axis=-1).astype(float))


def gains(before: Runs, after: Runs, before_without: Runs, after_without: Runs) -> Gains:
    return compare((before, (after,)), (before_without, (after_without,)), Bars())


def gain_of(estimate: float, low: float, high: float) -> Contrast:
    known = gains(rate(4), rate(14), rate(4), rate(14)).gain
    return replace(known, estimate=estimate, low=low, high=high)


def carried(low: float, high: float) -> Carried:
    ends = Estimate(estimate=(low + high) / 2, low=low, high=high)
    return Carried(
        carried=Estimate(estimate=0.3, low=0.1, high=0.5),
        over_bar=ends,
        played=True,
        runs=9,
        clusters=9,
        whole=gain_of(0.5, 0.4, 0.6),
    )


# -- bars ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "low,high,cleared,found",
    [
        (-0.2, 0.0, True, False),
        (-0.2, 0.01, False, False),
        (0.0, 0.2, False, False),
        (0.01, 0.2, False, True),
        (-0.01, 0.2, False, False),
    ],
)
def test_cleared_is_surely_at_most_a_fifth_and_found_is_surely_more(
    low: float, high: float, cleared: bool, found: bool
) -> None:
    assert (carried(low, high).cleared, carried(low, high).found) == (cleared, found)


@pytest.mark.parametrize(
    "before,after,before_without,after_without",
    [
        (10, 16, 8, 12),  # of 30 points 20 are left: 20 are lost after training, but 10 before it
        (6, 18, 14, 18),  # a third is left, but after training nothing is lost
        (12, 10, 12, 6),  # a loss: there is no gain that could run through anything
    ],
)
def test_all_three_parts_of_running_through_are_asked(
    before: int, after: int, before_without: int, after_without: int
) -> None:
    assert gains(rate(before), rate(after), rate(before_without), rate(after_without)).p_value > 0.5


@pytest.mark.parametrize(
    "before_without,after_without,most",
    [
        (rate(7), rate(10), 0.4),  # 35 points of the gain, 40 of the score after training
        (rate(2), rate(10), 0.1),  # the policy before training needs it: only the gain counts
        (rate(14), rate(18), 0.3),  # the policy before training does better without
        (rate(0, 12), rate(10), 0.4),  # needs it, but not surely so
    ],
)
def test_a_kind_carries_the_larger_of_what_the_gain_and_the_policy_after_lose(
    before_without: Runs, after_without: Runs, most: float
) -> None:
    told = gains(rate(8), rate(18), before_without, after_without).carried
    assert told.carried.estimate == pytest.approx(most) and told.over_bar.estimate == pytest.approx(
        most - 0.1
    )


# -- the certificate -------------------------------------------------------------------


def side(won: int, lost: int) -> Side:
    """Of 100 tasks with one run each, so many that tried `ls` and won or lost."""
    tried = [*won * [1.0], *lost * [0.0]]
    rows = [(f"t{i}", score, frozenset({"ls", "submit"})) for i, score in enumerate(tried)]
    rows += [(f"t{i}", 0.5, frozenset({"submit"})) for i in range(len(rows), 100)]
    return Side(runs=rate(4), usage={}, scored=tuple(rows), missing=0.0)


def bound(before: Side, *afters: Side) -> Carried:
    return certificate(Played(before=before, afters=afters), ("ls", "pwd"), gain_of(0.5, 0.4, 0.6))


def test_the_certificate_is_held_against_a_fifth_of_the_gain_at_its_worst() -> None:
    told = bound(side(0, 10), side(20, 0))
    assert told.carried.estimate == pytest.approx(0.3) and told.carried.low == 0
    assert told.over_bar.ends == pytest.approx((0.3 - 0.1, -0.12, told.carried.high - 0.08))
    assert bound(side(0, 90), side(90, 0)).carried.high == 1, "no more than everything"


# -- what was found --------------------------------------------------------------------


def test_what_a_reader_would_have_to_allow_is_the_least_found_and_what_cannot_be_judged() -> None:
    open_, sure = carried(-0.1, 0.1), carried(0.1, 0.2)
    judged = Judged(
        carried={("a",): sure, ("a", "b"): sure, ("c", "d"): sure, ("e",): open_, ("f",): open_}
    )
    assert judged.named() == {"a", "c", "d"}
    judged.runs_through.add(("f",))
    assert judged.named() == {
        "a",
        "c",
        "d",
        "f",
    }, "the gain runs through it, whatever it carries by its interval"
    judged.not_jointly["g", "h"] = "They insist."
    assert judged.named() == {"a", "c", "d", "f", "g", "h"} and judged.reasons == ("They insist.",)
    judged.not_refusable.update({"i": "It is needed.", "j": "It is needed."})
    assert judged.named() == {
        "a",
        "c",
        "d",
        "f",
        "i",
        "j",
    }, "without these the others may be refused together"
    assert judged.reasons == ("It is needed.", "They insist.")


def test_a_shortcut_is_what_the_gain_runs_through_and_holds_the_answer_or_does_not_stand() -> None:
    numbers = gains(rate(2), rate(18), rate(2), rate(2))

    def shortcut(holds: bool | None, *, through: bool, bent: bool = False) -> bool | None:
        return KindResult(
            kinds=("ls",),
            gains=numbers,
            q_value=0.0,
            missing=0.0,
            runs_through=through,
            bent=bent,
            contents=holds_answer((), ("ls",), None, 1, 0.95)._replace(holds=holds),
        ).shortcut

    assert shortcut(True, through=True) is True and shortcut(True, through=False) is False
    assert shortcut(False, through=True) is False and shortcut(None, through=True) is None
    assert shortcut(False, through=False, bent=True) is True


# -- runs ------------------------------------------------------------------------------


def test_a_run_without_a_score_is_missing_and_so_is_one_that_broke_whatever_it_scored(
    tmp_path: Path,
) -> None:
    ends = [
        (1.0, "errored"),
        (None, "terminated"),
        (1.0, "terminated"),
        (0.0, "terminated"),
        (None, "errored"),
    ]
    told = read_side(stored_case(tmp_path, {("before", ()): {"t": ends}}).stored["before", ()])
    assert told.missing == 0.6 and [score for _, score, _ in told.scored] == [1.0, 0.0]


def used(before: dict[str, float], *afters: dict[str, float]) -> Played:
    sides = [replace(side(0, 0), usage=usage) for usage in (before, *afters)]
    return Played(before=sides[0], afters=tuple(sides[1:]))


def test_a_pair_needs_a_turn_that_could_carry_half_of_the_gain() -> None:
    plain = used({}, {"used before": 0.7, "little turn": 0.5})
    without = used(
        {}, {"often": 0.9, "seldom": 0.3, "used before": 0.8, "little turn": 0.75, "barred": 1.0}
    )
    found = {("a",): without, ("a", "z"): without, ("often",): used({}, {"a": 0.95})}
    assert substitutes(found, plain, 0.4, 9, ["barred"]) == [("a", "often"), ("a", "little turn")]
    assert substitutes(found, plain, 0.4, 1, ["barred"]) == [("a", "often")]
    first = {("a",): used({}, {"b": 0.6, "c": 0.7}), ("b",): used({}, {"a": 0.9})}
    assert substitutes(first, plain, 0.4, 9, []) == [
        ("a", "b"),
        ("a", "c"),
    ], "by the stronger of both turns"
    assert substitutes(dict(reversed(first.items())), plain, 0.4, 9, []) == [("a", "b"), ("a", "c")]


# -- the case --------------------------------------------------------------------------


# -- hand-ins --------------------------------------------------------------------------


def run(outcome: float | None, submission: str | None = "x", kind: str = "edit") -> Trajectory:
    return episode_of(
        outcome=outcome,
        submission=submission,
        steps=(Step(role="assistant", text="", kinds=(kind,)), Step(role="tool", text="seen")),
    )


def test_only_a_score_can_be_untold_and_it_stands_or_falls_as_a_whole() -> None:
    untold, half, nothing = (
        Regraded(run(0.3), None),
        Regraded(run(1.0), 0.4),
        Regraded(run(None), None),
    )
    assert (untold.untold, half.untold, nothing.untold, Regraded(run(0.0), None).untold) == (
        True,
        False,
        False,
        False,
    )
    assert (untold.supposing(untold.run.outcome).score, untold.supposing(0.0).score) == (0.3, 0.0)
    assert (half.supposing(half.run.outcome), half.supposing(0.0), nothing.supposing(0.0)) == (
        half,
        half,
        nothing,
    )


@pytest.mark.parametrize("elsewhere,told", [(4, "edit"), (5, None)])
def test_a_kind_tells_lost_wins_apart_where_it_is_more_frequent_by_more_than_half(
    elsewhere: int, told: str | None
) -> None:
    """All that is lost used it; of ten wins that stand, four or five did."""
    lost = [Regraded(run(1.0), 0.0)] * 3
    stands = [
        Regraded(run(1.0, kind="edit" if number < elsewhere else "submit"), 1.0)
        for number in range(10)
    ]
    assert telling_kind([], [*lost, *stands]) == told
    assert telling_kind(stands, lost) == told, "before training as well as after it"
