"""A small picture of each number in a table: the estimate with its interval, its control below, zero marked.

Numbers of one layer and unit share an axis, so that rows can be compared by eye.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from markupsafe import Markup

from forensics.records import Evidence, Interval
from forensics.report.numbers import YES_NO, is_share, unit_of

WIDE, HIGH, EDGE = 132, 28, 6
_OPEN: Final = f'<svg class="spark" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" height="{HIGH}" aria-hidden="true">'


def sparks(findings: Sequence[Evidence]) -> dict[str, Markup]:
    """Evidence id -> drawing, for the evidence of one layer. Yes-or-no answers have none."""
    groups: dict[tuple[str, bool], list[Evidence]] = {}
    for finding in findings:
        if finding.unit != YES_NO:
            groups.setdefault((finding.unit, unit_of(finding).scaled), []).append(finding)
    return {
        finding.id: Markup(_draw(finding, *_domain(group))) for group in groups.values() for finding in group
    }


def _domain(group: Iterable[Evidence]) -> tuple[float, float]:
    """The common axis of a group; always holds zero, for shares one as well."""
    values = [value for finding in group for value in _values(finding)]
    if all(is_share(finding.unit) and unit_of(finding).scaled for finding in group):
        values.append(1.0)
    return min(0.0, *values), max(0.0, *values)


def _values(finding: Evidence) -> Iterator[float]:
    yield finding.estimate
    control = finding.control
    for interval in (finding.interval, control.interval if control else None):
        if interval is not None:
            yield from (interval.low, interval.high)
    if control is not None and control.estimate is not None:
        yield control.estimate


def _draw(finding: Evidence, low: float, high: float) -> str:
    def place(value: float) -> str:
        return f"{EDGE + (WIDE - 2 * EDGE) * (value - low) / ((high - low) or 1):.1f}"

    def line(interval: Interval | None, height: int, kind: str) -> str:
        if interval is None:
            return ""
        return f'<path class="{kind}" d="M{place(interval.low)} {height}H{place(interval.high)}"/>'

    parts = [f'<path class="zero" d="M{place(0)} 1V{HIGH - 1}"/>', line(finding.interval, 9, "range")]
    parts.append(f'<circle class="dot" cx="{place(finding.estimate)}" cy="9" r="3.4"/>')
    control = finding.control
    if control is not None:
        parts.append(line(control.interval, 20, "range null"))
        if control.estimate is not None:
            parts.append(f'<circle class="ring" cx="{place(control.estimate)}" cy="20" r="2.8"/>')
    return _OPEN + "".join(parts) + "</svg>"
