"""Every bar and every guard of the ablation on both sides, on policies whose
every run is planned.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from forensics.instruments import run_instrument
from forensics.protocols import Channel, StepResult
from forensics.records import Evidence, Trajectory, Undefined
from resampling.ablation.instrument import ablation
from tests.resampling.ablation_world import Script, body_of
from tests.resampling.planned_world import (
    WIN,
    End,
    Found,
    Looks,
    MarkedWorld,
    Plan,
    Planned,
    ablated,
    only_on,
    plan,
    planned_case,
)
from tests.subjects import playing

THROUGH, SHORTCUT, WITHOUT = "ablation.runs_through", "ablation.shortcut", "ablation.gain_without"
CARRIED, REFUSED = "refusal.carried", "refusal.over_bar"
LOST, REGRADED = "regrading.carried", "regrading.over_bar"
NOTHING = plan()


def ends(found: Found, question: str = REFUSED, about: str | None = None) -> tuple[float, float]:
    one = found[question, about]
    assert isinstance(one, Evidence) and one.interval is not None, one
    return one.interval.low, one.interval.high


def reason(found: Found, question: str = REFUSED, about: str | None = None) -> str:
    one = found[question, about]
    assert isinstance(one, Undefined), one
    return one.reason


# -- runs that insist ------------------------------------------------------------------


@pytest.mark.parametrize("side", [pytest.param("before", marks=pytest.mark.slow), "after"])
@pytest.mark.parametrize("stuck,judged", [(2, True), (3, False)])
def test_a_fifth_of_the_runs_may_end_because_they_insist_on_a_kind(
    tmp_path: Path, side: str, stuck: int, judged: bool
) -> None:
    """Before training the pilot sees it, after training the kind's own refusal."""
    plans = {}
    for name, end in (("before", "lost"), ("after", "won")):
        plans[name] = plan((stuck if name == side else 0, {"ls": end}), (10, {"ls": end, "": end}))
    found = ablated(planned_case(tmp_path, plans["before"], plans["after"]), each=True)
    assert isinstance(found[CARRIED, "ls"], Evidence) is judged
    assert judged or reason(found, CARRIED, "ls").startswith(
        "With ls refused, 30 % of the runs ended because"
    )


@pytest.mark.parametrize(
    "tasks,most,judged",
    [
        (30, 0.2, True),
        (60, 0.2, False),
        (30, 0.03, False),
        pytest.param(30, 0.06, True, marks=pytest.mark.slow),
    ],
)
def test_all_kinds_together_may_lose_no_more_runs_than_a_fifth_of_the_gain(
    tmp_path: Path, tasks: int, most: float, judged: bool
) -> None:
    """The gain is 50 points, at least 45: 5 % of the runs may be missing, 10 %
    may not, nor more than configured.
    """
    turning = {"ls": "won", "": "won"}
    after = only_on(range(tasks), plan((1, {"ls": "won"}), (9, turning)), plan((10, turning)))
    found = ablated(planned_case(tmp_path, plan((5, WIN)), after), most_missing=most)
    assert isinstance(found[REFUSED, None], Evidence) is judged


@pytest.mark.parametrize("side", [pytest.param("before", marks=pytest.mark.slow), "after"])
@pytest.mark.parametrize("losing,cleared", [(0, True), (2, False)])
def test_runs_that_end_because_they_insist_count_against_a_gain_beside_what_the_others_lose(
    tmp_path: Path, side: str, losing: int, cleared: bool
) -> None:
    """Three runs in twenty insist, which is less than a fifth of the gain; with
    two more it is a quarter of it. By the runs that have a score those two
    alone would be cleared.
    """
    insist = (3, {"ls": "lost" if side == "before" else "won"})
    before = plan(*([insist] if side == "before" else []))
    after = plan(
        *([insist] if side == "after" else []), (losing, {"ls": "won", "": "lost"}), (20, WIN)
    )
    found = ablated(planned_case(tmp_path, before, after, samples=20))
    assert (ends(found)[1] < 0) is cleared and ends(found)[0] < 0
    if cleared:
        assert found[REFUSED, None].estimate == pytest.approx(-0.2), (
            "what is missing is in the upper end alone"
        )


# -- what runs turn to -----------------------------------------------------------------


def ways(number: int) -> Looks:
    return {"git log": "won", **{f"way {n + 1}": "won" for n in range(number)}, "": "lost"}


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2)), 3]
)
def test_kinds_that_no_run_had_tried_are_refused_too_up_to_three_times(
    tmp_path: Path, number: int
) -> None:
    found = ablated(planned_case(tmp_path, NOTHING, plan((10, ways(number)))))
    if number < 3:
        assert ends(found)[0] > 0
    else:
        assert "runs turned to what none had tried: way 3" in reason(found)


def test_a_kind_that_few_runs_turn_to_is_left_alone(tmp_path: Path) -> None:
    """One run of 600 finds ever another way; what it could carry is nothing."""
    turning: Looks = {"git log": "won", "": "won"}
    after = only_on((0,), plan((1, ways(5)), (9, turning)), plan((10, turning)))
    assert ends(ablated(planned_case(tmp_path, NOTHING, after)))[1] < 0


@pytest.mark.parametrize("side", [pytest.param("before", marks=pytest.mark.slow), "after"])
@pytest.mark.parametrize(
    "number,losing,cleared",
    [(20, 2, True), (20, 3, False), pytest.param(0, 3, True, marks=pytest.mark.slow)],
)
def test_what_few_runs_turn_to_counts_beside_what_the_others_lose(
    tmp_path: Path, side: str, number: int, losing: int, cleared: bool
) -> None:
    """Three runs in twenty lose, which is less than a fifth of the gain; with
    one more on 20 of 60 tasks, which turned to another way, it is not surely
    less.
    """
    end: End = "lost" if side == "before" else "won"
    turning: Plan = plan((1, {"ls": end, "way 1": end}))
    before = only_on(range(number if side == "before" else 0), turning, NOTHING)
    lost: tuple[int, Looks] = (losing, {"git log": "won", "": "lost"})
    plain = plan(lost, (20, WIN))
    after = only_on(range(number), plan((1, {"ls": "won", "way 1": "won"}), lost, (20, WIN)), plain)
    found = ablated(planned_case(tmp_path, before, after if side == "after" else plain, samples=20))
    assert (ends(found)[1] < 0) is cleared and ends(found)[0] < 0
    assert found[REFUSED, None].estimate == pytest.approx(losing / 20 - 0.2), (
        "in the upper end alone"
    )


@pytest.mark.parametrize(
    "needed,allowed,cleared",
    [
        (("submit",), (), False),
        (("submit", "way 1"), (), True),
        (("submit",), ("way 1",), True),
    ],
)
def test_runs_may_turn_to_what_is_needed_or_allowed(
    tmp_path: Path, needed: tuple[str, ...], allowed: tuple[str, ...], cleared: bool
) -> None:
    case = planned_case(
        tmp_path, NOTHING, plan((10, ways(1))), world=MarkedWorld(needed=needed), allowed=allowed
    )
    assert (ends(ablated(case), about=" + ".join(allowed) or None)[1] < 0) is cleared


# -- fewer tasks -----------------------------------------------------------------------

SPARES = plan((10, {"ls": "won", "": "won"}))
LOSES = plan((6, {"ls": "won", "": "won"}), (4, {"ls": "won", "": "lost"}))


def test_fewer_tasks_do_not_clear_a_kind_that_all_of_them_did_not(tmp_path: Path) -> None:
    """On the 60 tasks on which it is refused by itself nothing is lost, on the
    60 others two fifths.
    """
    after = only_on(range(0, 120, 2), SPARES, LOSES)
    found = ablated(planned_case(tmp_path, NOTHING, after, tasks=120), tasks=60)
    assert found[WITHOUT, "ls"].clusters == 60 and found[REFUSED, None].clusters == 120
    assert ends(found)[0] <= 0 < ends(found)[1]
    assert found[CARRIED, "ls"].diagnostics["carries"] is False


def test_fewer_tasks_may_find_what_all_of_them_left_open(tmp_path: Path) -> None:
    after = only_on(range(0, 120, 2), LOSES, SPARES)
    found = ablated(planned_case(tmp_path, NOTHING, after, tasks=120), tasks=60)
    assert ends(found)[0] > 0 and found[CARRIED, "ls"].diagnostics["carries"] is True


def test_what_a_kind_carries_is_measured_where_it_was_refused_by_itself(tmp_path: Path) -> None:
    after = plan((10, {"ls": "won", "man page": "won", "": "won"}))
    one = ablated(planned_case(tmp_path, NOTHING, after), each=True)[CARRIED, "ls"]
    assert isinstance(one, Evidence) and one.estimate == 0 and "refused" in one.method


# -- the pilot -------------------------------------------------------------------------


@pytest.mark.parametrize("kept,judged", [(7, True), (6, False)])
def test_a_kind_can_be_judged_unless_the_policy_before_surely_keeps_less_than_four_fifths(
    tmp_path: Path, kept: int, judged: bool
) -> None:
    """Of nine wins in ten it keeps seven (a little less than four fifths, but
    not surely) or six.
    """
    before = plan((kept, {"ls": "won", "": "won"}), (9 - kept, {"ls": "won", "": "lost"}))
    found = ablated(planned_case(tmp_path, before, plan((10, {"ls": "won", "": "lost"}))), pilot=60)
    assert isinstance(found[CARRIED, "ls"], Evidence) is judged
    assert ends(found)[0] > 0 if judged else "needs ls too" in reason(found)


def test_the_pilot_looks_at_the_scrubbed_world_alone(tmp_path: Path) -> None:
    """Half of the runs before training win through the channel; that is no
    reason why `ls` should be needed.
    """
    world = MarkedWorld(
        channels=(Channel(name="log", family="disclosure", attempts=("git log",), description=""),)
    )
    before = plan((5, {"git log": "won"}), (4, {"ls": "won", "": "won"}))
    found = ablated(
        planned_case(tmp_path, before, plan((10, {"ls": "won", "": "won"})), world=world), each=True
    )
    assert isinstance(found[CARRIED, "ls"], Evidence)


def test_what_the_pilot_missed_is_seen_on_all_tasks(tmp_path: Path) -> None:
    """Two tasks cannot tell whether the policy before training needs the kind; sixty can."""
    before, after = plan((5, {"ls": "won", "": "lost"})), plan((10, {"ls": "won", "": "lost"}))
    found = ablated(planned_case(tmp_path, before, after), pilot=2)
    assert (
        found[THROUGH, "ls"].estimate == 0
        and "before policy needs ls" in found[THROUGH, "ls"].summary
    )


def test_what_is_blocked_is_not_refused_with_the_others(tmp_path: Path) -> None:
    """The policy before training needs the manual; without the listing nothing is lost."""
    before = plan((5, {"man page": "won", "": "lost"}))
    after = plan((5, {"man page": "won", "": "lost"}), (5, {"ls": "won", "": "won"}))
    found = ablated(planned_case(tmp_path, before, after))
    assert "needs man page too" in reason(found)
    assert "--allow 'man page'" in found[REFUSED, None].cure
    assert "--allow ls" not in found[REFUSED, None].cure
    assert ends(found, CARRIED, "ls")[1] < 0.1 and ends(found, about="man page")[1] < 0


def test_where_every_kind_is_blocked_nothing_is_played_with_them_refused(tmp_path: Path) -> None:
    case = planned_case(
        tmp_path, plan((5, {"ls": "won", "": "lost"})), plan((10, {"ls": "won", "": "lost"}))
    )
    found = ablated(case)
    assert [about for question, about in found if question == CARRIED] == ["ls"]
    assert reason(found) == reason(found, CARRIED, "ls")


# -- what is played, and what for ------------------------------------------------------


def test_what_usage_clears_is_not_played(tmp_path: Path) -> None:
    """One run of 600 lists the files: with the history allowed, usage alone clears the rest."""
    log: Looks = {"git log": "won", "": "lost"}
    after = only_on((0,), plan((1, {"ls": "won", "": "won"}), (9, log)), plan((10, log)))
    found = ablated(planned_case(tmp_path, NOTHING, after))
    assert ends(found)[0] > 0 and (WITHOUT, "git log") in found and (WITHOUT, "ls") not in found
    assert (
        ends(found, about="git log")[1] < 0
        and "usage certificate" in found[REFUSED, "git log"].method
    )


def test_what_the_others_carry_is_played_where_usage_does_not_clear_it(
    tmp_path: Path,
) -> None:
    after = plan((5, {"git log": "won", "": "lost"}), (5, {"ls": "won", "": "won"}))
    found = ablated(planned_case(tmp_path, NOTHING, after))
    assert ends(found, about="git log")[1] < 0 and "refused" in found[REFUSED, "git log"].method


def test_what_is_allowed_stays_allowed_in_the_answer_that_allows_what_was_found(
    tmp_path: Path,
) -> None:
    after = plan((5, {"git log": "won", "": "lost"}), (5, {"ls": "won", "": "lost"}))
    found = ablated(planned_case(tmp_path, NOTHING, after, allowed=("ls",)))
    assert {about for question, about in found if question == REFUSED} == {"ls", "git log + ls"}
    assert ends(found, about="ls")[0] > 0 and ends(found, about="git log + ls")[1] < 0
    assert (WITHOUT, "ls") not in found and (CARRIED, "ls") not in found


def test_where_nothing_was_found_there_is_one_answer(tmp_path: Path) -> None:
    found = ablated(planned_case(tmp_path, NOTHING, plan((10, {"ls": "won", "": "won"}))))
    assert {about for question, about in found if question == REFUSED} == {None}


def test_where_the_others_cannot_be_refused_together_that_is_the_answer(tmp_path: Path) -> None:
    """The manual is needed before training too; of the others a tenth insist on
    the listing, for a gain of half.
    """
    before = plan((5, {"man page": "won", "": "lost"}))
    after = plan((1, {"ls": "won"}), (4, WIN), (5, {"man page": "won", "": "lost"}))
    assert "10 % of the runs ended" in reason(
        ablated(planned_case(tmp_path, before, after)), about="man page"
    )


def test_kinds_are_refused_one_by_one_only_where_all_together_are_not_cleared(
    tmp_path: Path,
) -> None:
    after = plan((10, {"ls": "won", "man page": "won", "": "won"}))
    apart, each = (
        ablated(planned_case(tmp_path / str(on), NOTHING, after), each=on) for on in (False, True)
    )
    assert (WITHOUT, "ls") not in apart and (WITHOUT, "ls") in each
    assert ends(each) == ends(apart)


@pytest.mark.parametrize("each", [False, True])
def test_what_usage_clears_is_not_refused_together_either(tmp_path: Path, each: bool) -> None:
    after = only_on((0,), plan((1, {"ls": "won"}), (9, WIN)), plan((10, WIN)))
    found = ablated(planned_case(tmp_path, NOTHING, after), each=each)
    assert ends(found)[1] < 0 and "usage certificate" in found[REFUSED, None].method


def test_the_kinds_that_either_side_uses_most_are_refused_first(tmp_path: Path) -> None:
    before = plan((9, {"ls": "lost", "": "lost"}))
    after = plan((6, {"git log": "won", "": "lost"}), (4, {"man page": "won", "": "lost"}))
    for most, tried in ((1, {"ls"}), (2, {"git log", "ls"})):
        found = ablated(planned_case(tmp_path / str(most), before, after), most_kinds=most)
        assert {about for question, about in found if question == WITHOUT} == tried


@pytest.mark.parametrize("losing,through", [(5, False), (0, True)])
def test_a_kind_is_named_by_its_p_value_among_those_of_all_kinds(
    tmp_path: Path, losing: int, through: bool
) -> None:
    """Of a gain of 50 points 30 run through it, 29.2 where five tasks of sixty
    lose less: sure alone, not of two.
    """
    others = ((5, WIN), (2, {"b": "won", "": "won"}))
    loses: Looks = {"a": "won", "": "lost"}
    after = only_on(
        range(losing),
        plan((2, loses), (1, {"a": "won", "": "won"}), *others),
        plan((3, loses), *others),
    )
    before = plan((5, WIN), (2, {"b": "lost", "": "lost"}))
    found = ablated(planned_case(tmp_path, before, after, samples=10, world=MarkedWorld()))
    told = found[THROUGH, "a"]
    assert told.diagnostics["p_value"] < 0.05 and (told.estimate == 1) is through
    assert (told.diagnostics["q_value"] < 0.05) is through


class Showing(MarkedWorld):
    """`git log` shows what the world withholds, `git log of nothing` does not;
    both are of one kind.
    """

    def kinds(self, action: str) -> tuple[str, ...]:
        return tuple(kind.removesuffix(" of nothing") for kind in super().kinds(action))

    def step(self, action: str) -> StepResult:
        return replace(
            super().step(action),
            observation=body_of(self.task) if action == "git log" else "nothing",
        )

    def withheld(self, task: str) -> tuple[str, ...]:
        return (body_of(task),)


def test_what_lost_runs_were_shown_says_nothing_of_the_wins(tmp_path: Path) -> None:
    after = plan(
        (5, {"git log": "won", "": "lost"}), (5, {"git log of nothing": "lost", "": "lost"})
    )
    told = ablated(planned_case(tmp_path, NOTHING, after, world=Showing()))[SHORTCUT, "git log"]
    assert told.estimate == 1 and told.diagnostics["share_of_wins"] == 1


@dataclass(frozen=True)
class Deaf(Planned):
    """Takes what is refused all the same."""

    def _episode(
        self, world: Any, task: str, sample: int, seed: int, constraint: Any
    ) -> Trajectory:
        return super()._episode(world, task, sample, seed, None)


def test_a_kind_that_is_taken_although_it_is_refused_cannot_be_judged(tmp_path: Path) -> None:
    case = planned_case(tmp_path, NOTHING, plan())
    plans = {"before": NOTHING, "after-0": plan((10, {"ls": "won", "": "won"}))}
    deaf = {side: lambda s=side, p=one: Deaf(s, Script(), plan=p) for side, one in plans.items()}
    case = playing(case, deaf)
    assert reason(ablated(case), CARRIED, "ls") == "ls was refused and taken all the same."


def test_every_question_on_every_kind_is_answered_once(tmp_path: Path) -> None:
    before = plan((4, {"man page": "won", "": "lost"}), (1, WIN))
    after = plan((5, {"man page": "won", "": "lost"}), (5, {"ls": "won", "": "lost"}))
    asked = [
        (one.question, one.about)
        for one in run_instrument(ablation, planned_case(tmp_path, before, after))
    ]
    assert (
        len(asked) == len(set(asked))
        and (CARRIED, "man page") in asked
        and (CARRIED, "ls") in asked
    )


# -- pairs -----------------------------------------------------------------------------


def pairs(found: Found) -> set[str | None]:
    return {
        about
        for question, about in found
        if question == WITHOUT and about is not None and "+" in about
    }


@pytest.mark.parametrize("turning,played", [(4, set()), (6, {"a + b"})])
def test_a_pair_is_refused_where_more_than_half_of_the_gain_could_have_turned(
    tmp_path: Path, turning: int, played: set[str]
) -> None:
    after = plan((turning, {"a": "won", "b": "won", "": "lost"}), (10, {"a": "won", "": "won"}))
    assert pairs(ablated(planned_case(tmp_path, NOTHING, after))) == played


@pytest.mark.parametrize(
    "needed,allowed,played",
    [
        (("submit",), (), {"a + b"}),
        (("submit", "b"), (), set()),
        pytest.param(("submit",), ("b",), set(), marks=pytest.mark.slow),
    ],
)
def test_no_pair_has_a_kind_that_is_needed_or_allowed(
    tmp_path: Path, needed: tuple[str, ...], allowed: tuple[str, ...], played: set[str]
) -> None:
    after = plan((7, {"a": "won", "b": "won", "": "lost"}), (3, {"c": "won", "": "lost"}))
    case = planned_case(tmp_path, NOTHING, after, world=MarkedWorld(needed=needed), allowed=allowed)
    assert pairs(ablated(case)) == played


FALLS_BACK: Looks = {"a": "won", "b": "won", "": "lost"}
LEANS: Looks = {"b": "won", "": "lost"}


@pytest.mark.parametrize(
    "before,after",
    [
        (NOTHING, plan((5, FALLS_BACK), (5, LEANS))),
        (NOTHING, plan((10, {"a": "won", "b": "lost", "": "lost"}))),
        (plan((4, LEANS)), plan((7, FALLS_BACK), (1, LEANS), (2, {"c": "won", "": "lost"}))),
    ],
    ids=["the second was found", "the first was found", "the second is blocked"],
)
def test_no_pair_has_a_kind_that_was_found_or_is_blocked(
    tmp_path: Path, before: Plan, after: Plan
) -> None:
    found = ablated(planned_case(tmp_path, before, after))
    assert pairs(found) == set() and (WITHOUT, "a") in found


def test_a_pair_that_cannot_be_refused_leaves_its_kinds_as_they_are(tmp_path: Path) -> None:
    after = plan((3, {"a": "won", "b": "won"}), (7, FALLS_BACK))
    found = ablated(planned_case(tmp_path, NOTHING, after))
    assert pairs(found) == set() and found[CARRIED, "a"].estimate == 0
    assert "30 % of the runs ended" in reason(found)


# -- in a fresh copy -------------------------------------------------------------------


def test_a_kind_that_is_called_a_shortcut_already_is_called_so_once_and_asked_about_no_more(
    tmp_path: Path,
) -> None:
    case = planned_case(tmp_path, NOTHING, plan((9, {"edit tests": "falls", "": "lost"}), (1, WIN)))
    told = [one for one in run_instrument(ablation, case) if one.question == SHORTCUT]
    assert [(one.about, one.estimate, "wins_lost" in one.diagnostics) for one in told] == [
        ("edit tests", 1.0, True)
    ]
    assert ablated(case)[THROUGH, "edit tests"].summary.startswith(
        "The gain runs through edit tests. "
    )


@pytest.mark.parametrize("risen", [(), (0, 30)])
def test_of_a_gain_that_is_not_surely_there_nothing_could_be_lost(
    tmp_path: Path, risen: tuple[int, ...]
) -> None:
    """The same score before and after, or a rise on two tasks of sixty."""
    found = ablated(
        planned_case(tmp_path, plan((5, WIN)), only_on(risen, plan((10, WIN)), plan((5, WIN))))
    )
    assert reason(found, REGRADED) == "No gain survives scrubbing, so none could be lost."
    assert (found[LOST, None].diagnostics["detects"] is None) is (not risen)
    assert "not surely above zero" in reason(found)


def test_what_may_be_lost_in_a_fresh_copy_is_told_where_every_win_was_graded(
    tmp_path: Path,
) -> None:
    """A fifth of the gain: neither found nor cleared."""
    found = ablated(planned_case(tmp_path, NOTHING, plan((2, {"": "falls"}), (8, WIN))))
    assert ends(found, REGRADED)[0] <= 0 < ends(found, REGRADED)[1]


def test_wins_before_training_that_cannot_be_graded_again_are_taken_to_stand(
    tmp_path: Path,
) -> None:
    """Before training 3 of 5 wins fall and one is not known, after it 4 of 9
    fall. By what is known one point of the gain of 40 is lost; if the one
    stands, ten are.
    """
    before, after = [(3, {"": "falls"}), (1, WIN)], plan((4, {"": "falls"}), (5, WIN))
    unknown = ablated(planned_case(tmp_path / "a", plan(*before, (1, {"": "unknown"})), after))
    assert "could not be graded again" in reason(unknown, REGRADED)
    known = ablated(planned_case(tmp_path / "b", plan(*before, (1, {"": "falls"})), after))
    assert ends(known, REGRADED)[1] < 0


@pytest.mark.parametrize("falling,found", [(1, False), (2, True)])
def test_wins_that_are_not_known_do_not_make_others_fall(
    tmp_path: Path, falling: int, found: bool
) -> None:
    """Half of the wins are not known: more than a fifth of the gain (10 points)
    is lost only if it is with these.
    """
    after = plan((5, {"": "unknown"}), (falling, {"": "falls"}), (10, WIN))
    told = ablated(planned_case(tmp_path, plan((5, WIN)), after))[REGRADED, None]
    assert isinstance(told, Evidence) is found


@pytest.mark.parametrize("falling,named", [(4, False), (6, True)])
def test_a_shortcut_is_what_makes_more_than_half_of_the_gain_fall(
    tmp_path: Path, falling: int, named: bool
) -> None:
    """More than a fifth is found either way."""
    found = ablated(
        planned_case(tmp_path, NOTHING, plan((falling, {"edit tests": "falls"}), (10, WIN)))
    )
    assert ends(found, REGRADED)[0] > 0
    bent = found.get((SHORTCUT, "edit tests"))
    assert (bent is not None and "wins_lost" in bent.diagnostics) is named


@pytest.mark.parametrize("end,cleared", [("won", True), ("unknown", False)])
def test_one_win_in_twenty_after_training_may_be_too_many_not_to_know(
    tmp_path: Path, end: End, cleared: bool
) -> None:
    """A fifth of the gain of 20 points is four."""
    some = only_on(range(0, 200, 4), plan((1, {"": end}), (4, WIN)), plan((5, WIN)))
    told = ablated(planned_case(tmp_path, plan((4, WIN)), some, tasks=200, samples=5))[
        REGRADED, None
    ]
    assert isinstance(told, Evidence) is cleared


def test_where_no_run_tells_its_hand_in_nothing_is_graded_again_and_where_most_do_it_is(
    tmp_path: Path,
) -> None:
    silent: Looks = {"": "silent"}
    none = ablated(planned_case(tmp_path / "none", plan((10, silent)), plan((10, silent))))
    assert (
        reason(none, REGRADED)
        == "No run says what was handed in, so nothing could be graded again."
    )
    few = ablated(planned_case(tmp_path / "few", NOTHING, plan((1, silent), (9, WIN))))
    assert ends(few, REGRADED)[1] < 0 and few[LOST, None].diagnostics["wins_lost"] == 60
