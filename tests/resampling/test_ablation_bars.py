"""Every bar and every guard of the ablation on both sides, on policies whose
every run is planned.
"""

from pathlib import Path

import pytest

from forensics.records import Evidence, Undefined
from tests.resampling.planned_world import (
    WIN,
    Found,
    Looks,
    MarkedWorld,
    ablated,
    only_on,
    plan,
    planned_case,
)

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


# -- what runs turn to -----------------------------------------------------------------


# -- fewer tasks -----------------------------------------------------------------------


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


def test_what_is_blocked_is_not_refused_with_the_others(tmp_path: Path) -> None:
    """The policy before training needs the manual; without the listing nothing is lost."""
    before = plan((5, {"man page": "won", "": "lost"}))
    after = plan((5, {"man page": "won", "": "lost"}), (5, {"ls": "won", "": "won"}))
    found = ablated(planned_case(tmp_path, before, after))
    assert "needs man page too" in reason(found)
    assert "--allow 'man page'" in found[REFUSED, None].cure
    assert "--allow ls" not in found[REFUSED, None].cure
    assert ends(found, CARRIED, "ls")[1] < 0.1 and ends(found, about="man page")[1] < 0


# -- what is played, and what for ------------------------------------------------------


def test_what_is_allowed_stays_allowed_in_the_answer_that_allows_what_was_found(
    tmp_path: Path,
) -> None:
    after = plan((5, {"git log": "won", "": "lost"}), (5, {"ls": "won", "": "lost"}))
    found = ablated(planned_case(tmp_path, NOTHING, after, allowed=("ls",)))
    assert {about for question, about in found if question == REFUSED} == {"ls", "git log + ls"}
    assert ends(found, about="ls")[0] > 0 and ends(found, about="git log + ls")[1] < 0
    assert (WITHOUT, "ls") not in found and (CARRIED, "ls") not in found


def test_kinds_are_refused_one_by_one_only_where_all_together_are_not_cleared(
    tmp_path: Path,
) -> None:
    after = plan((10, {"ls": "won", "man page": "won", "": "won"}))
    apart, each = (
        ablated(planned_case(tmp_path / str(on), NOTHING, after), each=on) for on in (False, True)
    )
    assert (WITHOUT, "ls") not in apart and (WITHOUT, "ls") in each
    assert ends(each) == ends(apart)


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


# -- pairs -----------------------------------------------------------------------------


# -- in a fresh copy -------------------------------------------------------------------


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
