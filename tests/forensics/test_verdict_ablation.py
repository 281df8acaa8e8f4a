"""What the verdict makes of its families: each bar on both sides, what is
missing, what is allowed or accepted.
"""

import pytest

from forensics import UserError
from forensics.records import Evidence, Undefined
from forensics.verdict import decide, require_gain_tests, standard_rule
from tests.forensics.score_world import answers, behaviour, elsewhere, finding, planted, tested

RULE_3 = standard_rule()
TESTABLE = tuple(test.name for test in RULE_3.gain_tests)

HONEST = (0.4, 0.9, 0.39, 0.89)  # nearly all of the gain survives scrubbing
LEAK = (0.4, 0.95, 0.39, 0.4)
Findings = list[Evidence | Undefined]


def measured(rates: tuple[float, float, float, float] = HONEST) -> Findings:
    return [*answers(planted(rates)).values(), *behaviour(), *elsewhere()]


def carried(kind: str, points: float, half: float = 0.02) -> Evidence:
    return finding(
        "refusal.carried",
        points,
        half,
        about=kind,
        diagnostics={"carries": points - half > 0.1},
        summary=f"With {kind} refused to both, points are lost.",
    )


def jointly(over_bar: float, key: str | None = None, half: float = 0.01) -> Evidence:
    return finding(
        "refusal.over_bar",
        over_bar,
        half,
        about=key,
        diagnostics={
            "tried": "history, ls, submit",
            "needed": "submit",
            "carried_high": over_bar + 0.11,
        },
    )


REGRADED = finding("regrading.over_bar", -0.08, 0.01)
CLEAN = jointly(-0.08)


# -- bars, on both sides ---------------------------------------------------------------


# -- what is missing blocks, and names itself ------------------------------------------


@pytest.mark.parametrize("question", ["refusal.over_bar", "regrading.over_bar"])
def test_what_found_something_cannot_be_accepted(question: str) -> None:
    found = [
        *measured(),
        *(one for one in tested() if one.question != question),
        finding(question, 0.2, 0.01),
    ]
    verdict = decide(found, accepted=["refusal", "regrading", "scrubbing"])
    assert (verdict.label, verdict.reason_code) == ("undetermined", "source-not-allowed")


def test_wins_that_do_not_stand_are_no_kind_that_could_be_allowed() -> None:
    bent = finding(
        "ablation.shortcut",
        1.0,
        about="edit-tests",
        diagnostics={"wins_lost": 40},
        summary="A shortcut.",
    )
    found = [*measured(), CLEAN, finding("regrading.over_bar", 0.3, 0.01), bent]
    verdict = decide(found)
    assert (
        verdict.reason_code == "source-not-allowed" and "--allow" not in verdict.gaps[0].measurement
    )
    assert "does not stand when hand-ins are graded again (edit-tests)" in verdict.gaps[0].text
    assert (
        decide([*found, jointly(-0.08, "edit-tests")], allowed=["edit-tests"]).label
        == "undetermined"
    )


# -- what the reader allows ------------------------------------------------------------


def test_an_allowed_kind_is_no_obstacle_once_the_rest_is_cleared() -> None:
    found = [*measured(), jointly(0.3), carried("history", 0.4), carried("ls", 0.01), REGRADED]
    verdict = decide(found)
    assert (
        verdict.reason_code == "source-not-allowed"
        and "--allow history" in verdict.gaps[0].measurement
    )
    alone = decide(found, allowed=["history"])
    assert (alone.label, alone.reason_code) == ("undetermined", "family-not-tested"), (
        "nobody refused the rest together"
    )
    assert "--resume --allow history" in alone.gaps[0].measurement
    cleared = decide([*found, jointly(-0.08, "history")], allowed=["history"])
    assert cleared.label == "genuine" and cleared.allowed == ("history",)
    assert cleared.sentence.startswith("Verdict: GENUINE, given that history is allowed.")
    rows = {row.source: row.status for row in cleared.sources if row.family == "refusal"}
    assert rows == {
        "history": "allowed",
        "submit": "not-applicable",
        "ls": "tested",
        None: "tested",
    }


def test_pairs_with_an_allowed_kind_do_not_count_and_the_others_do() -> None:
    found = [
        *measured(),
        carried("history + ls", 0.4),
        carried("ls", 0.4),
        jointly(0.3, "history"),
        REGRADED,
    ]
    texts = [gap.text for gap in decide(found, allowed=["history"]).gaps]
    assert any("through ls:" in text for text in texts) and not any(
        "history + ls" in text for text in texts
    )


def test_only_families_that_exist_can_be_accepted() -> None:
    require_gain_tests((*TESTABLE, "interventions"))
    with pytest.raises(UserError, match="'history' is no gain test; accept one of: scrubbing"):
        require_gain_tests(["history"])


# -- words -----------------------------------------------------------------------------


@pytest.mark.parametrize("rates", [HONEST, LEAK, (0.4, 0.9, 0.39, 0.7), (0.4, 0.4, 0.39, 0.39)])
def test_what_was_not_excluded_stands_in_every_sentence_and_every_verdict(
    rates: tuple[float, float, float, float],
) -> None:
    missing = {"exchange", "blind-play", "audit", "refusal"}
    found = [
        one for one in [*measured(rates), *tested()] if one.question.split(".")[0] not in missing
    ]
    verdict = decide(found)
    told = "cues in what is read, play without reading, holes in the grader"
    left = verdict.label not in ("noise", "phantom")
    assert (f"Not excluded: shortcuts by an action, {told}." in verdict.sentence) == left
    assert "none of it is phantom" not in verdict.sentence
    assert {row.family for row in verdict.sources} == {test.name for test in RULE_3.gain_tests}
    assert all(row.reason for row in verdict.sources if row.status != "tested")
    status = {row.family for row in verdict.sources if row.status == "not-tested"}
    assert status == (missing if left else set())


def test_no_condition_of_the_rule_holds_by_absence() -> None:
    """Whatever single answer is taken away, a bad label never becomes a better one."""
    conditions = [c for clause in RULE_3.clauses for choice in clause.when for c in choice]
    assert {c.absent for c in conditions} <= {"unknown", "fails"}
    whole = [*measured(), *tested()]
    assert decide(whole).label == "genuine"
    for asked in {
        c.question for clause in RULE_3.clauses if clause.label == "genuine" for c in clause.when[0]
    }:
        assert decide([one for one in whole if one.question != asked]).label == "undetermined", (
            asked
        )


# -- what must not become genuine ------------------------------------------------------


def test_kinds_that_carry_the_gain_are_not_accepted_by_allowing_a_harmless_one() -> None:
    """The history carries it; allowing `ls` asks for another answer, and that
    it is missing excuses nothing.
    """
    found = [*measured(), jointly(0.3), carried("history", 0.4), REGRADED]
    assert decide(found, allowed=["ls"], accepted=["refusal"]).label == "undetermined"
    assert decide(found, allowed=["history"], accepted=["refusal"]).label == "genuine", (
        "nothing else was found"
    )
    through = finding("ablation.runs_through", 1.0, about="history")
    told = decide(
        [*measured(), jointly(0.3), through, REGRADED], allowed=["ls"], accepted=["refusal"]
    )
    assert (told.label, told.reason_code) == ("undetermined", "source-not-allowed")
    beside = decide(
        [*measured(), jointly(0.3, "history + ls"), REGRADED], allowed=["ls"], accepted=["refusal"]
    )
    assert beside.label == "undetermined", (
        "more than a fifth without these two, so without one of them as well"
    )
