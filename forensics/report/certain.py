"""Two sets of logs that do not settle: what is certain anyway, and what would settle it."""

from collections.abc import Iterator, Mapping
from typing import Any

from forensics.phrases import point_range, points
from forensics.records import Verdict
from forensics.records.verdict import Estimate
from forensics.report.profile import is_profile


def is_unsettled(verdict: Verdict, inputs: Mapping[str, Any]) -> bool:
    """Whether a case is of two sets of logs that no label holds for."""
    return "logs" in inputs and not is_profile(inputs) and verdict.label == "undetermined"


def certain(verdict: Verdict, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Sentences that hold although the verdict is open; none for another case."""
    if not is_unsettled(verdict, inputs):
        return
    if verdict.gain is not None:
        yield _moved(verdict.gain)
    if verdict.genuine_gain is not None:
        ends = point_range(verdict.genuine_gain.low, verdict.genuine_gain.high, 1)
        yield (
            f"Unless an unknown shortcut made wins, the genuine part lies between"
            f" {ends.replace(' to ', ' and ')} points."
        )


def _moved(gain: Estimate) -> str:
    """What an interval of the gain rules out."""
    level = f"{100 * gain.level:g} %"
    if gain.low > 0:
        return f"The score rose by at least {points(gain.low, 1).lstrip('+')} points ({level})."
    if gain.high < 0:
        return f"The score fell by at least {points(-gain.high, 1).lstrip('+')} points ({level})."
    ends = point_range(gain.low, gain.high, 1).replace(" to ", " and ")
    return f"The score changed by between {ends} points ({level}); larger changes are ruled out."


def settles(verdict: Verdict, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Measurements that would settle it, with how many tasks it takes; none for another case."""
    if is_unsettled(verdict, inputs):
        gaps: dict[str, list[str]] = {}
        for gap in verdict.gaps:
            measured = f"{gap.measurement} Cost: {gap.cost}."
            gaps.setdefault(measured, []).append(gap.text)
        yield from (f"{measured} {' '.join(texts)}" for measured, texts in gaps.items())
