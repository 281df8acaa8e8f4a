"""Every comparison of the rule at exactly its bar, every guard of reading,
judging and listing on both sides.
"""

from collections.abc import Sequence

import pytest

from forensics.records import Evidence, Interval, Undefined, Verdict
from forensics.records.verdict import Source
from forensics.verdict import decide, standard_rule
from forensics.verdict.rule import OVER, WINS, Condition, G, for_logs
from forensics.verdict.view import View, judge
from tests.forensics.score_world import PROVENANCE, behaviour, elsewhere, finding, tested

RULE_3 = standard_rule()
RULE_3_LOGS = for_logs(RULE_3)

Findings = list[Evidence | Undefined]
REFUSED, REGRADED = "refusal.over_bar", "regrading.over_bar"
CARRIED, LOST, THROUGH = "refusal.carried", "regrading.carried", "ablation.runs_through"
BY_SCRUBBING = {"by": "scrubbing"}


def between(question: str, low: float, high: float) -> Evidence:
    """Evidence whose interval has exactly these ends."""
    return finding(question, (low + high) / 2).model_copy(
        update={"interval": Interval(low=low, high=high)}
    )


def split(gain: float, genuine: float, half: float = 0.01, twin: str = "") -> Findings:
    """A gain's parts under one reading of it (`twin`)."""
    phantom = gain - genuine
    return [
        finding(f"gain.genuine{twin}", genuine, half),
        finding(f"gain.phantom{twin}", phantom, half),
        finding(f"gain.phantom_over_bar{twin}", phantom - 0.8 * gain, half),
        finding(f"gain.phantom_under_bar{twin}", phantom - 0.2 * gain, half),
    ]


def measured(gain: float, genuine: float, half: float = 0.01) -> Findings:
    """What a re-run measures of a gain."""
    return [
        finding(G, gain, half),
        *split(gain, genuine, half),
        *split(gain, genuine, half, "_imputed"),
        *behaviour(0.1),
        *elsewhere(),
    ]


def logged(gain: float, bounds: float, assumed: float, rival: float | None = None) -> Findings:
    """What logs answer: bounds, and the same under the assumption and under its rival."""
    return [
        finding(G, gain, 0.01),
        *split(gain, bounds),
        *split(gain, assumed, twin="_assumed"),
        *split(gain, assumed if rival is None else rival, twin="_rival"),
        *behaviour(0.97),
        finding("logs.wins_read", 1.0, 0.0),
    ]


def undefined(question: str, about: str | None = None, reason: str = "It broke.") -> Undefined:
    return Undefined(
        question=question,
        about=about,
        layer=question.split(".")[0],
        method="x",
        provenance=PROVENANCE,
        reason=reason,
        cure="Mend it.",
    )


def put(findings: Findings, *others: Evidence | Undefined) -> Findings:
    """Findings in which others take the place of those on the same questions
    (and on their twins).
    """
    asked = {one.question for one in others}
    twins = [
        one.model_copy(update={"question": f"{one.question}_imputed"})
        for one in others
        if f"{one.question}_imputed" in {old.question for old in findings}
    ]
    kept = [
        one for one in findings if one.question not in asked | {twin.question for twin in twins}
    ]
    return [*kept, *others, *twins]


REAL = [*measured(0.5, 0.48), *tested()]
UNSCRUBBED = [one for one in REAL if one.question != "gain.genuine"]
LEAK = measured(0.5, 0.01)
MIXED = measured(0.5, 0.25)


# -- the rule --------------------------------------------------------------------------


def test_the_rule_is_what_it_was() -> None:
    """Whoever changes a bar, a relation, a family or a word of it makes another
    rule, which takes another version.
    """
    assert (RULE_3.version, RULE_3.identity, RULE_3_LOGS.identity) == (
        3,
        "941c94e81942aeac",
        "3f9eed7275b71587",
    )


@pytest.mark.parametrize("findings,clause", [
    (put(REAL, between("gain.genuine", 0.02, 0.05)), "unsettled"),
    (put(REAL, between("gain.phantom_under_bar", -0.05, 0.0)), "genuine"),
    (put(REAL, between(REFUSED, -0.05, 0.0)), "genuine"),
    (put(REAL, between(REGRADED, -0.05, 0.0)), "genuine"),
    (put(REAL, between(REFUSED, 0.0, 0.05)), "carried-too-wide"),
    (put(REAL, between(REGRADED, 0.0, 0.05)), "carried-too-wide"),
    (put(REAL, between(G, 0.1, 0.2)), "genuine"),
    (put(REAL, between("gain.genuine", 0.1, 0.2)), "genuine"),
    (put(MIXED, between("gain.genuine", 0.02, 0.05)), "unsettled"),
    (put(MIXED, between("gain.phantom", 0.02, 0.05)), "unsettled"),
    (put(LEAK, between(OVER, 0.0, 0.05), between("scrubbing.placebo_over_bar", -0.05, 0.0)),
     "phantom"),
    (put(LEAK, between(WINS, 0.5, 0.6), between("scrubbing.placebo_over_bar", 0.0, 0.1)),
     "unsettled"),
    (put(LEAK, finding("behaviour.echo_trap", 0.5)), "degenerate"),
    (put(LEAK, finding("behaviour.collapse", 0.5)), "degenerate"),
    (put(LEAK, between(G, -0.05, 0.0), between("gain.genuine", -0.05, 0.0)), "noise"),
    (put(LEAK, between(G, 0.0, 0.05), between("gain.genuine", 0.0, 0.05)), "noise"),
])  # fmt: skip
def test_exactly_at_a_bar(findings: Findings, clause: str) -> None:
    verdict = decide(findings)
    assert verdict.decided_by == clause, verdict.reasons


@pytest.mark.parametrize(
    "gain,genuine,clause",
    [
        ((-0.001, 0.06), (-0.001, 0.06), "noise"),
        ((0.001, 0.06), (-0.03, 0.03), "phantom"),
        ((-0.06, 0.001), (-0.06, 0.001), "noise"),
        ((-0.06, -0.001), (-0.03, 0.03), "regression"),
        ((-0.03, 0.03), (0.001, 0.06), "cancelling"),
        ((-0.03, 0.03), (-0.06, -0.001), "cancelling"),
    ],
)
def test_noise_holds_zero_and_only_just(
    gain: tuple[float, float], genuine: tuple[float, float], clause: str
) -> None:
    verdict = decide(put(LEAK, between(G, *gain), between("gain.genuine", *genuine)))
    assert verdict.decided_by == clause, verdict.reasons


@pytest.mark.parametrize(
    "question,ends", [("gain.genuine", (0.01, 0.03)), ("gain.phantom_under_bar", (-0.01, 0.01))]
)
def test_genuine_asks_the_same_with_breakage_imputed(
    question: str, ends: tuple[float, float]
) -> None:
    twin = f"{question}_imputed"
    verdict = decide([*(one for one in REAL if one.question != twin), between(twin, *ends)])
    assert (verdict.label, verdict.decided_by) == ("undetermined", "breakage")


# -- judging ---------------------------------------------------------------------------


def test_an_answer_about_something_else_does_not_answer_for_the_whole() -> None:
    part = finding(REFUSED, -0.1, 0.01, about="history")
    assert decide(put(REAL, part)).label == "undetermined"
    parts = [finding("gain.total", 0.5, 0.01, about=name) for name in ("a", "b")]
    over = Condition(question=G, statistic="low", relation=">", value=0.1)
    assert (
        judge(over, View(parts, 0.95)) is None
        and judge(over, View([finding(G, 0.5, 0.01)], 0.95)) is True
    )


# -- what the reader allows or accepts -------------------------------------------------


@pytest.mark.parametrize("one,label", [
    (finding(THROUGH, 0.5, about="history"), "undetermined"),
    (finding(THROUGH, 0.49, about="history"), "genuine"),
    (finding(CARRIED, 0.05, 0.01, about="history", diagnostics={"carries": False}), "genuine"),
    (finding(CARRIED, 0.05, 0.01, about="history", diagnostics={"carries": True}), "undetermined"),
    (between(REFUSED, 0.0, 0.1).model_copy(update={"about": "ls"}), "genuine"),
    (between(REFUSED, 0.001, 0.1).model_copy(update={"about": "ls"}), "undetermined"),
    (between(REFUSED, -0.01, 0.1).model_copy(update={"about": "ls"}), "genuine"),
])  # fmt: skip
def test_a_family_is_accepted_as_untested_unless_it_surely_found_something(
    one: Evidence, label: str
) -> None:
    untested = [old for old in REAL if old.question != REFUSED]
    assert decide([*untested, one], accepted=["refusal"]).label == label


# -- shares of wins --------------------------------------------------------------------


def test_what_vanishes_on_scrubbing_is_told_but_explains_nothing() -> None:
    vanishing = finding(WINS, 0.97, 0.005, about="hint", diagnostics=BY_SCRUBBING)
    harmed = finding("scrubbing.placebo_over_bar", 0.2, 0.01)
    verdict = decide(put(LEAK, vanishing, harmed))
    assert (
        verdict.label == "undetermined"
        and verdict.share_of_wins_via_channel["hint"].estimate == 0.97
    )
    chain = finding(WINS, 0.6, 0.005, about="hint")
    verdict = decide(put(LEAK, vanishing, chain, harmed))
    assert verdict.label == "phantom" and verdict.share_of_wins_via_channel["hint"].estimate == 0.6
    other = View([finding("gain.channel", 0.2, 0.01, about="hint", diagnostics=BY_SCRUBBING)], 0.95)
    assert list(other.answers("gain.channel")) == ["hint"]


# -- why nothing is settled ------------------------------------------------------------


@pytest.mark.parametrize("findings,code", [
    (put([*REAL, finding("breakage", 0.1, 0.01)], finding(G, 0.5, 0.06), finding(REFUSED, 0.1,
     0.01)), "source-not-allowed"),
    (put(REAL, undefined(G)), "too-wide"),
    (UNSCRUBBED, "family-not-tested"),
    (put([one for one in REAL if one.question != REGRADED], between(REFUSED, -0.05, 0.0)),
     "family-not-tested"),
    (put(UNSCRUBBED, between(REFUSED, 0.0, 0.05)), "family-not-tested"),
    (put(UNSCRUBBED, between(REFUSED, 0.001, 0.05)), "source-not-allowed"),
])  # fmt: skip
def test_the_reason_code_is_that_of_what_decided(findings: Findings, code: str) -> None:
    verdict = decide(findings)
    assert (verdict.label, verdict.reason_code) == ("undetermined", code)


# -- from logs -------------------------------------------------------------------------

TAKEN = RULE_3.accepted(["interventions"])


def test_wins_that_nobody_read_are_genuine_on_no_terms() -> None:
    told = logged(0.5, 0.45, 0.48)
    for missing in ([], [undefined("logs.wins_read", reason="Wins could not be checked.")]):
        findings = [one for one in told if one.question != "logs.wins_read"] + missing
        verdict = decide(findings, accepted=TAKEN)
        assert verdict.label == "undetermined"
    assert any("could not be checked" in gap.text for gap in verdict.gaps)
    assert not any("--accept" in gap.measurement for gap in verdict.gaps if "looked" in gap.text)


def test_logs_give_genuine_by_the_bounds_and_never_by_the_assumption() -> None:
    verdict = decide(logged(0.5, 0.2, 0.48), accepted=TAKEN)
    assert (verdict.label, verdict.decided_by) == ("undetermined", "unsettled")
    assert decide(logged(0.5, 0.45, 0.48)).reason_code == "family-not-tested", (
        "unless the other families are accepted"
    )


def test_logs_give_a_label_only_where_the_rival_assumption_gives_the_same() -> None:
    assert decide(logged(0.5, 0.0, 0.01)).label == "phantom"
    verdict = decide(logged(0.5, 0.0, 0.01, rival=0.2))
    assert (verdict.label, verdict.decided_by) == ("undetermined", "assumptions")


# -- the list of sources ---------------------------------------------------------------


def rows(verdict: Verdict, family: str) -> Sequence[Source]:
    return [row for row in verdict.sources if row.family == family]


def test_scrubbing_is_listed_by_channel_where_that_was_measured_and_as_a_whole_where_not() -> None:
    whole = decide(REAL)
    assert [(row.source, row.status) for row in rows(whole, "scrubbing")] == [(None, "tested")]
    parts = [finding("gain.channel", 0.01, 0.01, about="log"), undefined("gain.channel", "notes")]
    both = decide([*REAL, *parts])
    assert [(row.source, row.status) for row in rows(both, "scrubbing")] == [
        ("log", "tested"),
        ("notes", "not-tested"),
    ]
    unknown = decide([*REAL, parts[1]])
    assert [(row.source, row.status) for row in rows(unknown, "scrubbing")] == [(None, "tested")]
    assert [(row.status, row.reason) for row in rows(decide(UNSCRUBBED), "scrubbing")] == [
        ("not-tested", "No shortcut of the world was scrubbed.")
    ]


@pytest.mark.parametrize(
    "genuine,half,own,detects",
    [
        (0.4, 0.02, None, 0.08269),
        (0.4, 0.3, None, 1.0),
        (0.4, 0.02, 0.3, 0.3),
        (None, 0.02, None, 0.066152),
    ],
)
def test_what_a_test_would_have_seen(
    genuine: float | None, half: float, own: float | None, detects: float
) -> None:
    """1.6538 half-widths, as a share of the genuine part, else of the gain (50
    points), and of no more than all.
    """
    found = REAL if genuine is None else put(REAL, finding("gain.genuine", genuine, 0.01))
    found = [
        one for one in found if genuine is not None or not one.question.startswith("gain.genuine")
    ]
    (row,) = rows(
        decide([*found, finding(LOST, 0.0, half, diagnostics={"detects": own})]), "regrading"
    )
    assert row.detects == pytest.approx(detects)
