"""What a gain may run through and what it is made of, row by row, for every
format: words, a bar with its interval and the fifth marked, what to do.

1. A source that carries more than a fifth, or may, has a row of its own, and so
   has a gain test that is open. Tests that are cleared and sources beside their
   test fold into lines where they are many.
2. A bar is as long as the gain. The mark is a fifth of the gain that the source
   is measured on: of the gain for scrubbing, of its genuine part for the others.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from forensics.layers.decomposition import GENUINE_BAR
from forensics.phrases import capital, point_range, points
from forensics.records import Verdict
from forensics.records.verdict import Estimate, Source
from forensics.report.numbers import percent
from forensics.report.report_words import WORDING
from forensics.verdict import standard_rule

COLUMNS: Final = ("test", "source", "status", "carries, points", "a fifth at |", "limit", "to do")
ORDER: Final = ("over", "loose", "open", "aside", "under")
MOST_ROWS: Final = 7  # with cleared tests, where something else is there to decide on
LEAST: Final = 0.0005  # of the score: a part that is shown
CELLS: Final = 20  # of a bar of text


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """A row of a verdict's sources and the scale of its bar, in points of the
    score: the gain, a fifth of what the source is measured on, and from where to
    where the bars of all rows reach.
    """

    source: Source
    gain: float
    fifth: float
    reach: tuple[float, float]

    @property
    def name(self) -> str:
        one = self.source
        return f"{one.said}, {one.source}" if one.said else one.source or "all"

    @property
    def kind(self) -> str:
        """The kind of its gain test."""
        return kind_of(self.source)

    @property
    def stands(self) -> str:
        """`over` or `under` a fifth, `loose` in between, `open`, or `aside`."""
        carried, status = self.source.carried, self.source.status
        if status != "tested":
            return "open" if status == "not-tested" else "aside"
        if self.kind == "aside":
            return "under" if carried is None or carried.high <= self.fifth else "aside"
        if carried is None or self.fifth <= 0:
            return "loose" if self.source.todo else "under"
        if carried.low > self.fifth:
            return "over"
        return "under" if carried.high <= self.fifth or not self.source.todo else "loose"

    @property
    def carries(self) -> str:
        """`+30.0 (28.0 to 32.0)`."""
        carried = self.source.carried
        if carried is None:
            return ""
        return f"{points(carried.estimate, 1)} ({point_range(carried.low, carried.high, 1)})"

    @property
    def limit(self) -> str:
        """From which share of the gain on the test would have seen it."""
        return "" if self.source.detects is None else percent(self.source.detects)

    @property
    def todo(self) -> str:
        """What the reader can do, or why there is nothing to do."""
        if self.source.status in ("not-applicable", "not-tested"):
            told = f"{self.source.reason} {capital(self.source.todo)}".strip()
            return told or "nothing"
        if self.kind == "aside" and self.stands == "aside":
            return "Nothing: a separate part, not a shortcut"
        return capital(self.source.todo) or "Nothing"

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of `COLUMNS`."""
        status = WORDING["status"][self.source.status]
        bar = text_bar(self.source.carried, self.gain, self.fifth)
        return self.source.family, self.name, status, self.carries, bar, self.limit, self.todo


@dataclass(frozen=True, kw_only=True)
class SourceTable:
    """What stands one by one, and the tests that are cleared or had nothing
    to test, where they are many.
    """

    rows: tuple[SourceRow, ...]
    cleared: tuple[SourceRow, ...]

    @property
    def folded(self) -> str:
        """The cleared tests in one line."""
        none = [row for row in self.cleared if row.source.status == "not-applicable"]
        held = [row for row in self.cleared if row not in none]
        parts = {
            "At most a fifth each": map(_most, held),
            "Nothing to test": (row.source.family for row in none),
        }
        told = ((start, ", ".join(names)) for start, names in parts.items())
        return " ".join(f"{start}: {names}." for start, names in told if names)


def _most(row: SourceRow) -> str:
    family, carried = row.source.family, row.source.carried
    high = point_range(carried.high, carried.high, 1).split()[0] if carried else ""
    return f"{family} (up to {high})" if high else family


def kind_of(source: Source) -> str:
    """The kind of the gain test that a row is of; `needed` where it is not installed."""
    kinds = {test.name: test.kind for test in standard_rule().gain_tests}
    return kinds.get(source.family, "needed")


def source_rows(verdict: Verdict) -> tuple[SourceRow, ...]:
    """Every row of the verdict's sources."""
    whole = verdict.gain.estimate if verdict.gain else 0.0
    genuine = verdict.genuine_gain.estimate if verdict.genuine_gain else whole
    known = [one.carried for one in verdict.sources if one.carried is not None]
    low, high = min([0.0, *(one.low for one in known)]), max([whole, *(one.high for one in known)])
    return tuple(
        SourceRow(
            reach=(low, high),
            source=one,
            gain=whole,
            fifth=GENUINE_BAR * (whole if kind_of(one) == "declared" else genuine),
        )
        for one in verdict.sources
    )


def source_table(verdict: Verdict) -> SourceTable:
    """What must be read to decide comes first."""
    every = source_rows(verdict)
    alone = {row.source.family for row in every if row.source.source and row.stands == "over"}
    rows = [row for row in every if _decides(row, alone)]
    rows.sort(key=lambda row: ORDER.index(row.stands))  # stable: tests in the rule's order
    folded = [r for r in rows if r.source.status == "not-applicable" and r.source.source is None]
    shown = [row for row in rows if row not in folded]
    clear = [row for row in shown if row.stands == "under"]
    if len(shown) > MOST_ROWS and len(clear) < len(shown):
        shown, folded = [row for row in shown if row not in clear], [*clear, *folded]
    return SourceTable(rows=tuple(shown), cleared=tuple(folded))


def _decides(row: SourceRow, alone: Container[str]) -> bool:
    """Whether a row stands for its test, or carries too much by itself; then
    the test needs no row (`alone`).
    """
    one = row.source
    if row.kind == "aside":
        return one.source is None
    if one.source is None:
        return one.family not in alone
    return row.kind == "declared" or row.stands == "over" or one.status == "allowed"


def text_bar(carried: Estimate | None, gain: float, fifth: float) -> str:
    """`[====|---      ]`: what a source carries of the gain, up to its upper end,
    and the mark at the fifth; empty where it was not measured.
    """
    if carried is None or gain <= 0:
        return ""
    filled, reach, mark = (
        min(max(round(CELLS * value / gain), 0), CELLS)
        for value in (carried.estimate, carried.high, fifth)
    )
    drawn = ["=" if at < filled else "-" if at < reach else " " for at in range(CELLS)]
    drawn.insert(mark, "|")
    return f"[{''.join(drawn)}]"


# -- the parts of the gain -------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """A part of the gain that is not zero, its colour and what it is."""

    field: str
    name: str
    colour: str
    meaning: str
    amount: Estimate
    at_least: bool = False

    @property
    def told(self) -> str:
        """`+12.0 points (10.1 to 13.9)`; beside what is open, the least and the most."""
        if self.field == "open" or self.at_least:
            bound = "most" if self.field == "open" else "least"
            return f"{points(self.amount.estimate, 1)} points at {bound}"
        span = point_range(self.amount.low, self.amount.high, 1)
        return f"{points(self.amount.estimate, 1)} points ({span})"


def gain_parts(verdict: Verdict) -> tuple[PartRow, ...]:
    """The parts that are known; none that is zero but the learned one."""
    parts = verdict.parts
    rest = parts.open.estimate if parts is not None and parts.open is not None else 0.0
    known = [(field, getattr(parts, field, None)) for field in WORDING["parts"]]
    return tuple(
        PartRow(
            field=field,
            name=capital(field),
            colour=WORDING["colours"][field],
            meaning=WORDING["parts"][field],
            amount=amount,
            at_least=field == "learned" and rest >= LEAST,
        )
        for field, amount in known
        if amount is not None and (field == "learned" or abs(amount.estimate) >= LEAST)
    )
