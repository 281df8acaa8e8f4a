"""Numbers with their unit, their interval and their doubt, in one way in all formats."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import forensics.phrases as phrases
from forensics.phrases import MINUS
from forensics.records import Evidence, Interval, Table, Undefined
from forensics.records.verdict import Estimate
from forensics.report.report_words import WORDING

YES_NO = "1 = yes, 0 = no"
NOT_MEASURED = "not measured"


@dataclass(frozen=True, kw_only=True)
class Unit:
    """How the numbers of one evidence are written. `scaled`: shares as percent,
    differences of scores as points. `decimals`: of the others, `None` for three
    significant digits.
    """

    name: str
    scaled: bool
    decimals: int | None = None

    def value(self, value: float) -> str:
        """`0.364` of a score as `36.4 %`, of a difference as `+36.4 points`."""
        if self.name == YES_NO and value in (0, 1):
            return "yes" if value else "no"
        if not self.scaled:
            plus = self.decimals is not None and is_difference(self.name)
            return plain(value, self.decimals, plus=plus)
        return (
            f"{plain(100 * value, 1, plus=True)} points"
            if is_difference(self.name)
            else percent(value)
        )

    def ends(self, interval: Interval | Estimate) -> str:
        """Interval ends in the same scale: `60.1 to 67.0`."""
        low, high = (
            plain(100 * end, 1) if self.scaled else plain(end, self.decimals)
            for end in (interval.low, interval.high)
        )
        return f"{low} to {high}"

    @property
    def axis(self) -> str:
        """What the numbers are, for an axis or a heading."""
        return f"{self.name} (%)" if self.scaled and is_share(self.name) else self.name


POINTS = Unit(name="score difference", scaled=True)
SHARE = Unit(name="share", scaled=True)


def unit_of(evidence: Evidence) -> Unit:
    """The unit of an evidence; a score that is not a share (above 1) stays as it is."""
    scaled = (is_share(evidence.unit) or is_difference(evidence.unit)) and abs(
        evidence.estimate
    ) <= 1
    return Unit(name=evidence.unit, scaled=scaled)


def part_of_gain(estimate: Estimate | None) -> str:
    """A part of the gain: `+63.0 points (60.0 to 66.0)`, or that it was not measured."""
    return (
        NOT_MEASURED
        if estimate is None
        else f"{POINTS.value(estimate.estimate)} ({POINTS.ends(estimate)})"
    )


def percent(share: float) -> str:
    """`0.364` as `36.4 %`; only 1 reads as 100.0 %, and only 0 as 0.0 %."""
    return phrases.percent(share, 1)


def plain(value: float, decimals: int | None = None, *, plus: bool = False) -> str:
    """A number; `decimals` `None` is three significant digits. Never `-0.0`."""
    text = f"{abs(value):.{decimals}f}" if decimals is not None else _significant(abs(value))
    if float(text.replace(",", "")) == 0:
        return text
    return f"{MINUS if value < 0 else '+' if plus else ''}{text}"


def _significant(value: float) -> str:
    if value and not 1e-3 <= value < 1e6:
        return f"{value:.2e}"
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def is_share(unit: str) -> bool:
    """Whether numbers of this unit are parts of one, written as percent."""
    return unit == "score" or unit.startswith("share")


def is_difference(unit: str) -> bool:
    """Whether numbers of this unit are differences of shares, written as points with their sign."""
    return unit.endswith("difference")


def level_of(interval: Interval | Estimate) -> str:
    """The level of an interval: `95 %`."""
    return f"{100 * interval.level:g} %"


def title_of(question: str) -> str:
    """`gain.phantom_over_bar` as `Gain · phantom over bar`."""
    if question in WORDING["titles"]:
        return WORDING["titles"][question]
    words = " · ".join(part.replace("_", " ") for part in question.split("."))
    return words[:1].upper() + words[1:]


def name_of(finding: Evidence | Undefined) -> str:
    """What a finding answers, and about what."""
    return title_of(finding.question) + (f" ({finding.about})" if finding.about else "")


def control_of(evidence: Evidence, *, interval: bool = True) -> str:
    """The control's figure in the unit of the claim, with its interval and
    p-value; empty without a control.
    """
    control, unit = evidence.control, unit_of(evidence)
    if control is None:
        return ""
    parts = [] if control.estimate is None else [unit.value(control.estimate)]
    if interval and control.interval is not None:
        parts.append(f"({unit.ends(control.interval)})")
    told = " ".join(parts)
    if control.p_value is None:
        return told
    return f"{told}, p = {control.p_value:.2g}" if told else f"p = {control.p_value:.2g}"


def cell(value: object, unit: str = "") -> str:
    """A cell of a table, in the unit of its column: a share as `36.4 % (30.1 to 42.0)`."""
    if value is None:
        return NOT_MEASURED if unit else "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float | Estimate):
        return str(value)
    areas = unit.startswith("AUROC")
    scaled = not areas and (is_share(unit) or is_difference(unit))
    written = Unit(name=unit, scaled=scaled, decimals=2 if areas else None)
    if isinstance(value, Estimate):
        return f"{written.value(value.estimate)} ({written.ends(value)})"
    return written.value(value)


def table_cells(table: Table, most: int | None = None) -> Iterator[list[str]]:
    """The first rows of a table as texts."""
    units = [table.units.get(column, "") for column in table.columns]
    for row in table.rows[:most]:
        yield [
            cell(value, unit) for value, unit in zip_longest(row, units[: len(row)], fillvalue="")
        ]


def numeric_columns(rows: Sequence[Sequence[object]]) -> frozenset[int]:
    """The columns of a table that hold numbers, and nothing else but gaps."""
    width = min((len(row) for row in rows), default=0)
    kinds = [{type(row[i]) for row in rows if row[i] not in (None, "")} for i in range(width)]
    return frozenset(i for i, kind in enumerate(kinds) if kind and kind <= {int, float, Estimate})
