"""How a gain test stands: whether it had anything to test, was tested,
found something, or is accepted untested.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

from forensics.layers.decomposition import GENUINE_BAR, PHANTOM_BAR
from forensics.records import Evidence, Interval, Undefined
from forensics.records.gain_test import GainTest
from forensics.verdict.rule import (
    G0,
    NO_CHANNEL,
    OVER,
    PLACEBO,
    UNDER,
    G,
    P,
)
from forensics.verdict.view import View, channels_explain, exempt, found_by, statistic

Standing = Literal["cleared", "found", "loose", "not-applicable", "accepted", "not-tested"]
NO_SHORTCUT = "The world declares no shortcut."
NOTHING_LEFT = "No gain survives scrubbing."
OPEN = ("found", "loose", "not-tested")  # may carry more than a fifth
_OF_G = {G0: 1.0, P: 0.0, OVER: -PHANTOM_BAR, UNDER: -GENUINE_BAR, PLACEBO: -GENUINE_BAR}


def standing(test: GainTest, view: View) -> Standing:
    """`loose`: tested, and neither surely at most a fifth nor surely more."""
    if nothing_to_test(test, view) is not None:
        return "not-applicable"
    answer = view.evidence(test.asked)
    low, high = (statistic(answer, end, view.level) for end in ("low", "high"))
    if low is None or high is None:
        if answer is None and found_by(test, view):
            return "found"
        return "accepted" if test.name in view.terms.accepted else "not-tested"
    if test.kind == "aside" or high <= 0:
        return "cleared"
    return "found" if low > 0 else "loose"


def nothing_to_test(test: GainTest, view: View) -> str | None:
    """Why a test had nothing to test, `None` where it had."""
    if test.kind == "declared":
        return NO_SHORTCUT if declares_none(view.findings, view) else None
    low = statistic(view.evidence(G0), "low", view.level)
    if low is not None and low <= 0:
        return NOTHING_LEFT
    return exempt(test, view)


def declares_none(findings: Iterable[Evidence | Undefined], view: View) -> bool:
    """Whether the world declares no channel, and no chain of evidence says otherwise."""
    said = any(
        one.question == G0 and isinstance(one, Undefined) and one.reason.startswith(NO_CHANNEL)
        for one in findings
    )
    return said and not channels_explain(view)


def as_scrubbed(findings: tuple[Evidence | Undefined, ...], level: float) -> Iterator[Evidence]:
    """What scrubbing would show in a world that declares no channel: nothing
    vanishes, and the genuine part is the gain. Nothing for any other world.
    """
    view = View(findings, level)
    whole = view.evidence(G)
    if whole is None or not declares_none(findings, view):
        return
    for question, factor in _OF_G.items():
        for name in (question, f"{question}_imputed"):
            yield _scaled(whole, name, factor)


def scrubbed(view: View, question: str) -> Evidence | None:
    """An answer that scrubbing gave; `None` also where there was nothing to scrub."""
    answer = view.evidence(question)
    if answer is None or answer.diagnostics.get("applicable") is False:
        return None
    return answer


def _scaled(whole: Evidence, question: str, factor: float) -> Evidence:
    interval = whole.interval
    if interval is not None:
        low, high = sorted((factor * interval.low, factor * interval.high))
        interval = Interval(low=low, high=high, level=interval.level)
    told = whole.diagnostics | {"applicable": False}
    changed = {"question": question, "estimate": factor * whole.estimate, "interval": interval}
    return whole.model_copy(update=changed | {"diagnostics": told, "artifacts": ()})
