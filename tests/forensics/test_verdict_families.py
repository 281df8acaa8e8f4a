"""The families of tests beside scrubbing, refusal and regrading: every bar on both
sides, what a find may be called, what nothing to test is, and the parts of a gain.
"""

from itertools import product

import pytest

from forensics.records import Evidence, Undefined, Verdict, content_hash
from forensics.records.verdict import Parts
from forensics.verdict import decide, standard_rule
from tests.forensics.score_world import (
    FAMILIES,
    PROVENANCE,
    behaviour,
    elsewhere,
    family,
    finding,
    tested,
)
from tests.forensics.test_verdict_bars import LEAK, REAL, Findings, between, measured, put

RULE_3 = standard_rule()
TESTABLE = tuple(test.name for test in RULE_3.gain_tests)
NO_SKILL = tuple(test.name for test in RULE_3.gain_tests if test.kind == "needless")

EVERY = (*FAMILIES, "refusal", "regrading")
OTHERS = tuple(name for name in FAMILIES if name not in NO_SKILL)
G0, BAR = 0.48, 0.2 * 0.48


def without(findings: Findings, *families: str) -> Findings:
    return [one for one in findings if one.question.split(".")[0] not in families]


def real(*shown: Evidence | Undefined) -> Findings:
    """A gain of 50 points, 48 of them in the scrubbed world, with these answers
    in place of those of their families.
    """
    return [*without(REAL, *(one.question.split(".")[0] for one in shown)), *shown]


def untested(question: str, reason: str = "It broke.") -> Undefined:
    return Undefined(
        question=question,
        layer="sources",
        method="x",
        provenance=PROVENANCE,
        reason=reason,
        cure="Mend it.",
    )


def shown(name: str, carried: float, harm: float = 0.0) -> Verdict:
    return decide(real(*family(name, carried, harm=harm)))


# -- genuine ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "over,label,code",
    [
        (-0.0101, "genuine", None),
        (-0.0099, "undetermined", "too-wide"),  # the upper end on either side of a fifth
        (0.0099, "undetermined", "too-wide"),
        (0.0101, "undetermined", "source-not-allowed"),  # and the lower end
    ],
)
def test_a_fifth_of_the_gain_is_the_bar_of_every_family(
    name: str, over: float, label: str, code: str | None
) -> None:
    verdict = decide(real(finding(f"{name}.over_bar", over, 0.01)))
    assert (verdict.label, verdict.reason_code) == (label, code)


@pytest.mark.parametrize("name", [*EVERY, "elicitation"])
@pytest.mark.parametrize("there", [False, True], ids=["absent", "undefined"])
def test_a_family_that_was_not_tested_blocks_unless_it_is_accepted(name: str, there: bool) -> None:
    question = f"{name}.{'unlocked' if name == 'elicitation' else 'over_bar'}"
    found: Findings = [*without(REAL, name), *([untested(question)] if there else [])]
    verdict = decide(found)
    assert (verdict.label, verdict.reason_code) == ("undetermined", "family-not-tested")
    assert f"--accept {name}" in verdict.gaps[0].measurement
    taken = decide(found, accepted=[name])
    assert (taken.label, taken.accepted) == ("genuine", (name,)) and taken.rule != verdict.rule
    assert [one.status for one in taken.sources if one.family == name] == ["accepted"]
    assert decide(found, accepted=["audit" if name != "audit" else "memory"]).label != "genuine"
    assert f"given that {name} need not be tested" in taken.sentence
    (row,) = (row for row in verdict.sources if row.family == name)
    assert row.status == "not-tested" and f"--accept {name}" in row.todo


def test_an_accepted_test_that_was_made_and_cleared_is_said_to_be() -> None:
    kept = without(REAL, OTHERS[0])
    said = decide(kept, accepted=[OTHERS[0], OTHERS[1]]).sentence
    assert said.startswith(f"Verdict: GENUINE, given that {OTHERS[0]} need not be tested. ")
    assert f"{OTHERS[1]} was accepted untested, but was tested and cleared." in said
    assert decide(REAL, accepted=[OTHERS[0]]).sentence.startswith("Verdict: GENUINE. ")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_find_is_not_accepted_as_untested(name: str) -> None:
    found = real(finding(f"{name}.over_bar", 0.02, 0.01))
    assert decide(found, accepted=[name]).label == "undetermined"
    source = finding(f"{name}.carried", BAR + 0.0201, 0.02, about="a field")
    assert decide(real(source), accepted=[name]).label == "undetermined"
    assert decide(real(source), accepted=[name]).reason_code == "source-not-allowed"
    less = finding(f"{name}.carried", BAR + 0.0199, 0.02, about="a field")
    assert decide(real(less), accepted=[name]).label == "genuine"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_that_had_nothing_to_test_is_no_obstacle_and_says_why(name: str) -> None:
    none = finding(f"{name}.over_bar", -0.1, 0.01, diagnostics={"applicable": False})
    none = none.model_copy(update={"summary": "Nothing recurs."})
    verdict = decide(real(none, *(untested(f"{name}.{one}") for one in ("left", "carried"))))
    assert verdict.label == "genuine"
    (row,) = (row for row in verdict.sources if row.family == name)
    assert (row.status, row.reason, row.todo) == ("not-applicable", "Nothing recurs.", "")


def test_placebo_training_is_no_obstacle_where_there_is_no_recipe_and_only_there() -> None:
    asked = "placebo-training.carried"
    assert decide(real(untested(asked, "No recipe was given."))).label == "genuine"
    broken = decide(real(untested(asked, "The recipe did not run.")))
    assert (broken.label, broken.reason_code) == ("undetermined", "family-not-tested")
    assert decide(real(finding(asked, 0.3, 0.02))).label == "genuine", "a part beside, no shortcut"


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_skill_may_need_is_never_called_phantom(name: str) -> None:
    verdict = shown(name, 0.47)
    assert (verdict.label, verdict.reason_code) == ("undetermined", "source-not-allowed")
    assert verdict.parts is not None and verdict.parts.open is not None
    assert verdict.parts.open.estimate == pytest.approx(0.48), "all of it"
    assert any("More than a fifth of the gain" in gap.text for gap in verdict.gaps)


# -- phantom and mixed -----------------------------------------------------------------


@pytest.mark.parametrize("name", NO_SKILL)
@pytest.mark.parametrize("over,label", [(0.0101, "phantom"), (0.0099, "mixed")])
def test_four_fifths_that_no_skill_needs_are_phantom(name: str, over: float, label: str) -> None:
    assert shown(name, 0.8 * G0 + over).label == label


@pytest.mark.parametrize("name", NO_SKILL)
@pytest.mark.parametrize("carried,accused", [(0.45, "phantom"), (0.3, "mixed")])
@pytest.mark.parametrize("harm,holds", [(BAR - 0.0101, True), (BAR - 0.0099, False)])
def test_the_placebo_of_an_alteration_has_to_hold(
    name: str, carried: float, accused: str, harm: float, holds: bool
) -> None:
    verdict = shown(name, carried, harm)
    assert verdict.label == (accused if holds else "undetermined")
    if not holds:
        assert verdict.reason_code == "source-not-allowed"
        assert "does harm by itself is not excluded" in verdict.gaps[0].measurement
        assert verdict.parts is not None and verdict.parts.phantom is not None
        assert verdict.parts.phantom.estimate == pytest.approx(0.02), "what scrubbing shows"


@pytest.mark.parametrize("name", NO_SKILL)
@pytest.mark.parametrize(
    "question,low,mixed",
    [
        ("left", 0.0201, True),
        ("left", 0.0199, False),
        ("over_bar", 0.0201, True),
        ("over_bar", 0.0199, False),
    ],
)
def test_both_parts_of_a_mixture_exceed_the_margin(
    name: str, question: str, low: float, mixed: bool
) -> None:
    found = [one for one in family(name, 0.2) if one.question != f"{name}.{question}"]
    if question == "left":
        one = between(f"{name}.left", low, low + 0.1)
    else:
        one = between(f"{name}.over_bar", -0.01, 0.1).model_copy(
            update={"diagnostics": {"carried": 0.1, "carried_low": low, "carried_high": 0.2}}
        )
    assert (decide(real(*found, one)).label == "mixed") == mixed


def rest_open(name: str, *others: Evidence) -> Verdict:
    """Some 38 of 48 points phantom, known to 8 either way: four fifths or less, and
    perhaps nothing left.
    """
    asked = {one.question for one in others}
    found = [one for one in family(name, 0.384, half=0.08) if one.question not in asked]
    return decide(real(*found, *others))


@pytest.mark.parametrize("name", NO_SKILL)
@pytest.mark.parametrize(
    "question,low,high,clause",
    [
        ("left", 0.0199, 0.17, "rest-open"),
        ("left", 0.0201, 0.17, "mixed"),
        ("phantom_over_bar", -0.0001, 0.1, "rest-open"),
        ("phantom_over_bar", 0.0, 0.1, "phantom"),
        ("placebo_over_bar", -0.1, 0.0, "rest-open"),
        ("placebo_over_bar", -0.1, 0.0001, "source-not-allowed"),
    ],
)
def test_what_leaves_the_rest_open(
    name: str, question: str, low: float, high: float, clause: str
) -> None:
    assert rest_open(name, between(f"{name}.{question}", low, high)).decided_by == clause


def test_a_family_that_is_cleared_accuses_nobody() -> None:
    """Three points of 48, surely there and surely less than a fifth, beside a
    source that is not allowed.
    """
    found = real(*family("renaming", 0.03), *family("exchange", 0.3))
    verdict = decide(found)
    assert (verdict.label, verdict.reason_code) == ("undetermined", "source-not-allowed")


# -- a world that declares no shortcut ---------------------------------------------------


def undeclared(*more: Evidence | Undefined, gain: float = 0.48) -> Findings:
    """No channel to scrub: only the gain in the open world, and these answers."""
    kept = [finding("gain.total", gain, 0.01), *behaviour(None), *tested(), *elsewhere()]
    none = untested("gain.genuine", "No shortcut to scrub: the environment x declares no channel.")
    return [*put(kept, *more), none]


# -- what the reader takes upon themselves -----------------------------------------------


def test_all_interventions_are_accepted_by_one_word() -> None:
    found = without(REAL, *TESTABLE[1:])
    verdict = decide(found, accepted=["interventions"])
    assert verdict.label == "genuine"
    assert verdict.accepted == RULE_3.accepted(["interventions"]) == tuple(sorted(TESTABLE[1:]))
    assert verdict.sentence.startswith("Verdict: GENUINE, given that no intervention need be made.")
    again = decide(found, accepted=verdict.accepted)
    assert again == verdict, "the same, told by their names"
    unscrubbed = [one for one in found if not one.question.startswith("gain.genuine")]
    assert decide(unscrubbed, accepted=["interventions"]).label == "undetermined"
    assert decide(real(*family("memory", 0.3)), accepted=["interventions"]).label != "genuine"


def test_what_is_allowed_was_left_out_while_it_was_measured_or_counts() -> None:
    """`exchange` measures without what is allowed, so that its answer belongs to
    those terms.
    """

    def at(allowed: list[str] | None, carried: float) -> Findings:
        told = {} if allowed is None else {"allowed": content_hash(allowed)}
        made = PROVENANCE.model_copy(update={"inputs": told})
        joint = finding("refusal.over_bar", -0.08, 0.01, about="status")
        answers = [
            one.model_copy(update={"provenance": made}) for one in family("exchange", carried)
        ]
        return real(*tested(), joint, *answers)

    assert decide(at(["status"], 0.0), allowed=["status"]).label == "genuine"
    assert decide(at(["status"], 0.0)).reason_code == "family-not-tested"
    assert decide(at(None, 0.0), allowed=["status"]).label == "genuine", "less was left out"
    assert decide(at(None, 0.3), allowed=["status"]).reason_code == "source-not-allowed"


def drawn(adds: float, half: float) -> Evidence:
    """What the policy before training wins more when it is drawn otherwise."""
    return finding("elicitation.unlocked", adds, half, about="other temperatures")


# -- the parts of the gain -----------------------------------------------------------------


PARTS = ("learned", "unlocked", "sampling", "phantom", "open")


def amounts(parts: Parts | None) -> dict[str, float]:
    assert parts is not None
    return {
        name: round(part.estimate, 6)
        for name in PARTS
        if (part := getattr(parts, name)) is not None
    }


@pytest.mark.parametrize(("found", "expected"), [  # learned, unlocked, sampling, phantom, open
    (REAL, (0.48, 0, None, 0.02, 0)),
    (real(*family("renaming", 0.3)), (0.18, 0, None, 0.32, 0)),
    # one and the same cue, seen by two families
    (real(*family("renaming", 0.3), *family("sufficiency", 0.28)), (0.18, 0, None, 0.32, 0)),
    # a source that nobody allowed may carry 31 points
    (real(*family("exchange", 0.3)), (0.17, 0, None, 0.02, 0.31)),
    (real(finding("elicitation.unlocked", 0.4, 0.02)), (0.08, 0.4, None, 0.02, 0)),
    # more than there is
    (real(finding("elicitation.unlocked", 0.6, 0.02)), (0, 0.48, None, 0.02, 0)),
    (real(finding("placebo-training.carried", 0.1, 0.02)), (0.38, 0.1, None, 0.02, 0)),
    # greedy decoding gives half of it before training as well; asked for first, then drawn
    ([*REAL, drawn(0.26, 0.02)], (0.22, 0, 0.26, 0.02, 0)),
    ([*real(finding("elicitation.unlocked", 0.4, 0.02)), drawn(0.26, 0.02)],
     (0, 0.4, 0.08, 0.02, 0)),
    (without(REAL, "memory"), (0, 0, None, 0.02, 0.48)),
    (LEAK, (0.01, 0, None, 0.49, 0)),
    ([*measured(0.5, -0.1), *tested()], (-0.1, 0, None, 0.6, 0)),  # skill was lost
    (undeclared(), (0.48, 0, None, 0, 0)),
])  # fmt: skip
def test_what_a_gain_is_made_of(found: Findings, expected: tuple[float | None, ...]) -> None:
    told = {name: part for name, part in zip(PARTS, expected, strict=True) if part is not None}
    assert amounts(decide(found).parts) == pytest.approx(told, abs=1e-6)


@pytest.mark.parametrize("carried,unlocked", list(product((0.0, 0.2, 0.47), (-0.1, 0.1, 0.6))))
@pytest.mark.parametrize("name", FAMILIES)
def test_the_parts_add_up_and_hold_their_estimates(
    name: str, carried: float, unlocked: float
) -> None:
    found = real(*family(name, carried), finding("elicitation.unlocked", unlocked, 0.02))
    parts = decide(found).parts
    assert parts is not None and sum(amounts(parts).values()) == pytest.approx(0.5, abs=1e-6)
    for part in (parts.learned, parts.unlocked, parts.phantom, parts.open):
        assert part is not None and part.low <= part.estimate <= part.high


# -- what to do ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "carried,cost",
    [
        (0.0, "about 60 more tasks (660 in all)"),  # 10 of 9.6 points
        (0.06, "about 60 more tasks (660 in all)"),  # luck, as long as it may be nothing
        (0.03, "about 60 more tasks (660 in all)"),
        (0.11, "cannot be said from what was measured"),
    ],
)
def test_the_luck_of_an_estimate_does_not_count_twice(carried: float, cost: str) -> None:
    """Where the sources may carry nothing the bar is a fifth of the gain away."""
    verdict = decide(real(*family("audit", carried, half=0.1)))
    (gap,) = (gap for gap in verdict.gaps if "(audit)" in gap.text)
    assert gap.cost == cost


@pytest.mark.parametrize("also", [False, True], ids=["alone", "beside another"])
def test_what_is_allowed_since_asks_for_a_new_measurement(also: bool) -> None:
    """The family left out what was allowed at its time, which says nothing about the rest."""
    found = [finding("sufficiency.carried", 0.3, 0.01, about="look:code")]
    found += [finding("sufficiency.carried", 0.3, 0.01, about="look:stamp")] if also else []
    case = real(finding("sufficiency.over_bar", 0.2, 0.01), *found)
    (gap,) = (gap for gap in decide(case).gaps if "look:code" in gap.text)
    assert "--allow look:code" in gap.measurement
    verdict = decide(case, allowed=["look:code"])
    assert verdict.reason_code == "source-not-allowed"
    since = [gap for gap in verdict.gaps if "after the" in gap.text]
    assert bool(since) is not also
    if since:
        assert "--resume --allow look:code" in since[0].measurement
    else:
        assert any("(look:stamp)" in gap.text for gap in verdict.gaps)


@pytest.mark.parametrize(
    ("name", "sources", "said"),
    [
        ("sufficiency", ("prompt:code",), "are there with `prompt:code` alone (sufficiency)"),
        ("exchange", ("code", "code + mail"), "need what `code` showed (exchange)"),
        ("exchange", ("d", "a", "b", "c"), "need what `a`, `b` and 2 more showed (exchange)"),
        ("renaming", ("names",), "go away when what no skill needs is renamed: `names` (renaming)"),
        ("sufficiency", (), "are there with one field alone (sufficiency)"),
    ],
)
def test_the_headline_names_what_carries_the_gain(
    name: str, sources: tuple[str, ...], said: str
) -> None:
    found = [finding(f"{name}.carried", 0.3, 0.01, about=about) for about in sources]
    little = finding(f"{name}.carried", 0.02, 0.01, about="a little")
    assert said in decide(real(*family(name, 0.3), *found, little)).sentence
