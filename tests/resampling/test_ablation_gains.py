"""The numbers of one kind: each bar at exactly its value or just beside it, on
runs whose rates are given.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forensics.errors import MissingInput, UserError
from forensics.layers.decomposition import OPEN, Runs
from forensics.records import Step, Trajectory, Undefined
from forensics.statistics import Contrast, Estimate
from resampling.ablation.ablation_evidence import AblationEvidence, KindResult
from resampling.ablation.gains import (
    AblationConfig,
    Bars,
    Carried,
    Gains,
    Judged,
    before_needs,
    certificate,
    compare,
    require_gain,
)
from resampling.ablation.instrument import FEWEST, Regraded, regraded, telling_kind
from resampling.ablation.refusal import scrubbed_world
from resampling.ablation.refused_runs import Played, Side, read_side, substitutes
from resampling.ablation.returned_answers import holds_answer
from tests.forensics.score_world import PROVENANCE, runs_of, stored_case
from tests.resampling.planned_world import WIN, ablated, plan, planned_case

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
        points=Estimate(estimate=0.3, low=0.1, high=0.5),
        over_bar=ends,
        played=True,
        runs=9,
        tasks=9,
        gain=gain_of(0.5, 0.4, 0.6),
    )


# -- bars ------------------------------------------------------------------------------


def test_the_bars_are_the_same_wherever_they_are_named() -> None:
    assert AblationConfig().bars == Bars() == Bars(level=0.95, half=0.5, kept=0.8)


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


@pytest.mark.parametrize("after_without,through", [(11, False), (9, True)])
def test_the_gain_runs_through_what_takes_more_than_half_of_it(
    after_without: int, through: bool
) -> None:
    """Of 80 points 35 or 45 are lost."""
    assert (gains(rate(2), rate(18), rate(2), rate(after_without)).p_value < 0.05) is through


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
    "before_without,dispensable",
    [
        (rate(14), True),
        (rate(12), False),
        (rate(9, 16), True),
    ],
)
def test_a_kind_is_dispensable_unless_surely_less_than_four_fifths_of_the_score_before_is_kept(
    before_without: Runs, dispensable: bool
) -> None:
    """Of 16 wins in 20: more than 12.8, fewer, and fewer but not surely so."""
    assert gains(rate(16), rate(20), before_without, rate(20)).dispensable is dispensable
    assert (before_needs(rate(16), before_without, Bars()).high >= 0) is dispensable


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
    assert told.points.estimate == pytest.approx(most) and told.over_bar.estimate == pytest.approx(
        most - 0.1
    )


@pytest.mark.parametrize("low,raises", [(-0.01, True), (0.0, True), (0.01, False)])
def test_a_gain_is_required_that_is_surely_above_zero(low: float, raises: bool) -> None:
    if raises:
        with pytest.raises(MissingInput, match="not surely above zero"):
            require_gain(gain_of(0.1, low, 0.2), ())
    else:
        require_gain(gain_of(0.1, low, 0.2), ())


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
    assert told.points.estimate == pytest.approx(0.3) and told.points.low == 0
    assert told.over_bar.ends == pytest.approx((0.3 - 0.1, -0.12, told.points.high - 0.08))
    assert bound(side(0, 90), side(90, 0)).points.high == 1, "no more than everything"


def test_the_upper_ends_of_both_sides_are_added() -> None:
    none, before, after = side(0, 0), side(0, 10), side(20, 0)
    both = bound(before, after).points.high + bound(none, none).points.high
    assert both == pytest.approx(bound(none, after).points.high + bound(before, none).points.high)
    assert bound(side(0, 20), none).points.high == pytest.approx(bound(none, after).points.high), (
        "either side alike"
    )


def test_no_kind_carries_nothing() -> None:
    told = certificate(Played(before=side(0, 9), afters=(side(9, 0),)), (), gain_of(0.5, 0.4, 0.6))
    assert (
        told.points.ends == (0, 0, 0)
        and told.over_bar.ends == pytest.approx((-0.1, -0.12, -0.08))
        and told.cleared
    )


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


def test_of_what_was_found_the_worst_is_the_answer(tmp_path: Path) -> None:
    case = planned_case(
        tmp_path, plan(), plan((3, {"a": "won", "": "lost"}), (7, {"b": "won", "": "lost"}))
    )
    told = ablated(case)["refusal.over_bar", None]
    assert told.estimate == pytest.approx(0.8), "both together: all of the gain but a fifth"


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


def test_what_a_test_would_have_seen_is_a_bound_or_a_width_and_no_more_than_all() -> None:
    maker = AblationEvidence(provenance=PROVENANCE)
    told = carried(-0.1, 0.1)
    for one, detects in (
        (told, 0.66152),
        (replace(told, played=False), 1.0),
        (replace(told, points=Estimate(estimate=0.5, low=-0.5, high=1.0)), 1.0),
        (replace(told, gain=gain_of(0.0, -0.1, 0.1)), None),
    ):
        assert maker.carried(("ls",), one).diagnostics["detects"] == pytest.approx(detects)
    assert maker.jointly(None, told, ("ls",), ("ls", "cat")).diagnostics["needed"] == "ls", (
        "of those that were tried"
    )


@pytest.mark.parametrize("low,told", [(-0.01, False), (0.0, False), (0.01, True)])
def test_what_is_lost_in_a_fresh_copy_is_held_against_a_gain_that_is_surely_there(
    low: float, told: bool
) -> None:
    numbers = replace(gains(rate(4), rate(14), rate(4), rate(14)), gain=gain_of(0.1, low, 0.2))
    _, answer = AblationEvidence(provenance=PROVENANCE).regraded(numbers, 0, 9)
    assert answer.question == "regrading.over_bar" and isinstance(answer, Undefined) is not told


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


def test_the_side_that_misses_most_counts() -> None:
    full, half = side(0, 0), replace(side(0, 0), missing=0.5)
    assert (
        Played(before=full, afters=(full, half)).missing
        == 0.5
        == Played(before=half, afters=(full,)).missing
    )


def test_what_is_missing_on_both_sides_may_all_go_against_a_gain() -> None:
    some, more = replace(side(0, 0), missing=0.1), replace(side(0, 0), missing=0.25)
    assert Played(before=some, afters=(some, more)).missing_in_all == pytest.approx(0.35)
    own = carried(-0.2, -0.1)
    worst = own.at_worst(own, 0.25)
    assert worst.over_bar.ends == pytest.approx((-0.15, -0.2, 0.15)) and not worst.cleared
    assert (
        worst.points.ends == pytest.approx((0.3, 0.1, 0.75))
        and own.at_worst(own, 0.9).points.high == 1
    )


def test_the_worst_case_reaches_higher_and_never_less_high() -> None:
    own, higher = carried(-0.2, -0.1), carried(-0.1, 0.1)
    assert own.at_worst(higher, 0.0).over_bar.ends == pytest.approx((-0.15, -0.2, 0.1))
    assert own.at_worst(higher, 0.0).points.estimate == own.points.estimate
    assert higher.at_worst(own, 0.0) == higher


def used(before: dict[str, float], *afters: dict[str, float]) -> Played:
    sides = [replace(side(0, 0), usage=usage) for usage in (before, *afters)]
    return Played(before=sides[0], afters=tuple(sides[1:]))


def test_kinds_of_either_side_count_and_usage_is_the_mean_over_training_seeds() -> None:
    played = used({"a": 0.1}, {"b": 0.4}, {"b": 0.2, "c": 1.0})
    assert played.kinds == ("a", "b", "c") and played.after_kinds == ("b", "c")
    assert played.after_usage("b") == pytest.approx(0.3)


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


def test_logs_are_read_in_the_scrubbed_world_only_where_they_hold_one(tmp_path: Path) -> None:
    row = {"t": [(1.0, "terminated")]}
    bare = stored_case(tmp_path / "a", {("before", ()): row}, "log")
    both = stored_case(tmp_path / "b", {("before", ()): row, ("before", ("log",)): row}, "log")
    none = stored_case(tmp_path / "c", {("before", ()): row})
    assert [scrubbed_world(case) for case in (bare, both, none)] == [OPEN, ("log",), OPEN]
    assert scrubbed_world(
        replace(bare, subjects=planned_case(tmp_path, plan(), plan()).subjects)
    ) == ("log",)


def test_without_runs_after_training_nothing_is_said(tmp_path: Path) -> None:
    case = stored_case(tmp_path, {("before", ()): {"t": [(1.0, "terminated")]}})
    assert {one.reason for one in ablated(case).values() if isinstance(one, Undefined)} == {
        "The case has no runs after training."
    }


# -- hand-ins --------------------------------------------------------------------------


def run(outcome: float | None, submission: str | None = "x", kind: str = "edit") -> Trajectory:
    return Trajectory(
        id="r",
        task="t",
        policy="p",
        environment="e",
        seed=0,
        outcome=outcome,
        submission=submission,
        end="terminated",
        steps=(Step(role="assistant", text="", kinds=(kind,)), Step(role="tool", text="seen")),
    )


def test_a_win_is_half_of_the_score_at_least() -> None:
    assert (
        Regraded(run(0.5), 0.49).lost
        and not Regraded(run(0.5), 0.5).lost
        and not Regraded(run(0.49), 0.0).lost
    )
    assert Regraded(run(0.5), 0.5).stands and not Regraded(run(0.5), 0.49).stands
    assert not Regraded(run(0.4), 1.0).stands and not Regraded(run(1.0), None).lost


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


def test_whatever_scored_is_graded_again_and_what_scored_nothing_is_not() -> None:
    graded: list[str] = []

    def regrade(task: str, submission: str) -> dict[str, float | None]:
        graded.append(submission)
        return {"outcome": 0.1}

    runs = [
        run(0.3, "little"),
        run(0.0, "none"),
        run(1.0, None),
        run(1.0, "little"),
        run(None, "unknown"),
    ]
    assert [one.score for one in regraded(runs, regrade)] == [0.1, 0.0, 0.1, 0.1, None]
    assert graded == ["little", ""], "each hand-in of a task once"


def test_a_message_to_the_user_is_no_broken_grader() -> None:
    def refuses(task: str, submission: str) -> dict[str, float | None]:
        raise UserError("this grader takes other options")

    with pytest.raises(UserError):
        regraded([run(1.0)], refuses)


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


@pytest.mark.parametrize("standing,told", [(FEWEST - 1, None), (FEWEST, "edit")])
def test_with_fewer_than_five_wins_that_stand_the_runs_before_training_are_the_rest(
    standing: int, told: str | None
) -> None:
    assert FEWEST == 5
    lost, stands = Regraded(run(1.0), 0.0), Regraded(run(1.0, kind="submit"), 1.0)
    failed = Regraded(run(0.0), 0.0)
    assert telling_kind([failed] * 9, [lost, *[stands] * standing]) == told


def test_nothing_tells_apart_where_nothing_is_lost(tmp_path: Path) -> None:
    assert telling_kind([], [Regraded(run(1.0), 1.0)] * 9) is None
    found = ablated(planned_case(tmp_path, plan(), plan((10, WIN))))
    assert {about for question, about in found if question == "ablation.shortcut"} == {None}
