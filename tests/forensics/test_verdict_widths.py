"""A width matters only where it leaves two labels open."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from forensics.records import Evidence, Undefined
from forensics.verdict import decide, standard_rule
from tests.forensics.score_world import tested
from tests.forensics.test_verdict_bars import Findings, logged, measured, put

RULE_3 = standard_rule()

BLUNT = replace(
    RULE_3,
    version="as it was",
    clauses=tuple(replace(clause, unless=()) for clause in RULE_3.clauses),
)
shares = st.floats(-1.0, 1.0)
halves = st.sampled_from((0.001, 0.01, 0.049, 0.051, 0.08, 0.15, 0.3))


@pytest.mark.parametrize(
    "gain,genuine,half,label,clause",
    [
        (0.92, -0.04, 0.065, "phantom", "phantom"),  # 85 to 98, genuine -10 to 2: all phantom
        (0.92, 0.13, 0.065, "undetermined", "too-wide"),  # more or less than a fifth
        (-0.4, -0.1, 0.1, "regression", "regression"),
        (-0.05, -0.1, 0.1, "undetermined", "too-wide"),
        (0.6, 0.6, 0.1, "genuine", "genuine"),
        (0.3, 0.28, 0.1, "undetermined", "too-wide"),
        (0.9, 0.45, 0.1, "mixed", "mixed"),
        (0.4, 0.25, 0.1, "undetermined", "too-wide"),  # mixed, or a fifth of it
        (0.0, 0.0, 0.08, "undetermined", "too-wide"),  # noise is no finding where little is known
        (0.0, 0.2, 0.08, "undetermined", "too-wide"),
    ],
)
def test_a_wide_interval_on_either_side(
    gain: float, genuine: float, half: float, label: str, clause: str
) -> None:
    verdict = decide([*cleared(gain, genuine, half), *unharmed(gain)])
    assert (verdict.label, verdict.decided_by) == (label, clause)
    asked = [gap.text for gap in verdict.gaps if "the rule asks for" in gap.text]
    assert bool(asked) == (clause == "too-wide")
    assert all(text.endswith("5 where that leaves two labels open.") for text in asked)


@given(gain=shares, genuine=shares, half=halves, harm=shares)
def test_only_cases_that_were_too_wide_get_another_label(
    gain: float, genuine: float, half: float, harm: float
) -> None:
    findings = [*cleared(gain, genuine, half), *unharmed(gain, harm)]
    now, before = decide(findings), decide(findings, BLUNT)
    assert now.label == before.label or before.decided_by == "too-wide"


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # few are settled though wide
@given(
    gain=shares,
    genuine=shares,
    half=halves,
    at=st.lists(st.floats(-0.999, 0.999), min_size=2, max_size=2),
)
def test_every_value_that_the_intervals_allow_gives_that_label(
    gain: float, genuine: float, half: float, at: list[float]
) -> None:
    """Each number somewhere within its interval, and known well, as the blunt rule reads it."""
    findings = [*cleared(gain, genuine, half), *unharmed(gain)]
    now, before = decide(findings), decide(findings, BLUNT)
    assume(now.label != before.label)
    narrow = half * (1 - max(map(abs, at))) / 1000
    inside = [*cleared(gain + half * at[0], genuine + half * at[1], narrow), *unharmed(gain)]
    assume(all(_within(one, findings) for one in inside))
    assert decide(inside, BLUNT).label == now.label


def test_bounds_from_logs_that_prove_it_are_not_too_wide() -> None:
    wide = put(logged(0.9, 0.85, 0.88), *map(_loosely, logged(0.9, 0.85, 0.88)[:5]))
    terms = {"accepted": ["interventions"]}
    assert decide(wide, BLUNT, **terms).decided_by == "too-wide"
    assert decide(wide, **terms).label == "genuine"


def cleared(gain: float, genuine: float, half: float) -> Findings:
    """What a re-run measures, where no family found anything."""
    return [*measured(gain, genuine, half), *tested(-1.0, -1.0)]


def unharmed(gain: float, harm: float = 0.0) -> Findings:
    """What scrubbing takes from the policy before training."""
    wide = measured(harm, 0.0)[0]
    moved = {"low": harm - 0.2 * gain - 0.001, "high": harm - 0.2 * gain + 0.001}
    return [_renamed(wide, "scrubbing.placebo_over_bar", **moved)]


def _renamed(one: Evidence, question: str, low: float, high: float) -> Evidence:
    assert one.interval is not None
    interval = one.interval.model_copy(update={"low": low, "high": high})
    return one.model_copy(
        update={"question": question, "estimate": (low + high) / 2, "interval": interval}
    )


def _within(one: Evidence | Undefined, findings: Findings) -> bool:
    """Whether a number lies in the interval of the same question."""
    if (
        not isinstance(one, Evidence)
        or one.interval is None
        or not one.question.startswith("gain.")
    ):
        return True
    same = (other for other in findings if other.question == one.question)
    outer = next(other.interval for other in same if isinstance(other, Evidence))
    return outer is not None and outer.low <= one.interval.low <= one.interval.high <= outer.high


def _loosely(one: Evidence) -> Evidence:
    """The same number, known to six points either way."""
    return _renamed(one, one.question, one.estimate - 0.06, one.estimate + 0.06)
