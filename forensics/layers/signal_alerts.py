"""Alert lines: levels at which practitioners look at a training run. A line is
a habit of the field with its source, never a test: where the interval of a
value reaches over the line, the table says so.

A line is written `MEASURE < VALUE SEVERITY, SOURCE` (or `>`), for example `dead
share > 0.3 warning, 2606.03108`, so that a settings file, the provenance and
the report all show the same words. Measures are read off the last stretch of
the run; one that ends in `: change` is the last stretch minus the first, `:
growth` is that change relative to the size of the first.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.records import Table
from forensics.statistics import MeanDifference

Severity = str  # "warning" or "critical"
LINES = (
    "dead share > 0.3 warning, 2606.03108",
    "dead share > 0.5 critical, 2606.03108",
    "reward spread < 0.05 warning, 2606.03108",
    "mean log-probability > -0.1 warning, 2606.03108",
    "mean log-probability > -0.05 critical, 2606.03108",
    "truncated share > 0.2 warning, 2503.14476",
    "kept share < 0.3 warning, 2504.20073",
    "turns < 5 warning, 2606.03108",
    "turns > 50 warning, 2606.03108",
    "turns of failed runs: ratio > 1.5 warning, 2606.03108",
)
_LINE = re.compile(
    r"(?P<measure>[^<>]+?)\s*(?P<relation>[<>])\s*(?P<value>-?\d+(\.\d+)?)\s+(?P<severity>warning|critical),"
    r"\s*(?P<source>.+)"
)


@dataclass(frozen=True, kw_only=True)
class AlertLine:
    """A level of a measure beyond which (`relation`: `<` below, `>` above) the
    run deserves a look.
    """

    measure: str
    relation: str
    value: float
    severity: Severity
    source: str

    @property
    def words(self) -> str:
        return (
            f"{self.severity} {'above' if self.relation == '>' else 'below'} {self.value:g}"
            f" ({self.source})"
        )

    def crossed(self, value: float) -> bool:
        return value > self.value if self.relation == ">" else value < self.value


def parse_line(text: str) -> AlertLine:
    """Raises `UserError` for a text that is not an alert line."""
    found = _LINE.fullmatch(text.strip())
    if found is None:
        raise UserError(
            f"'{text}' is not an alert line; write for example 'dead share > 0.3 warning,"
            " 2606.03108'"
        )
    parts = found.groupdict()
    return AlertLine(
        measure=parts["measure"],
        relation=parts["relation"],
        value=float(parts["value"]),
        severity=parts["severity"],
        source=parts["source"],
    )


@dataclass(frozen=True, kw_only=True)
class Alert:
    """A line against what was measured: `value` at the end of the run, `start`
    at its beginning (`None`: unknown).
    """

    line: AlertLine
    value: float | None
    start: float | None

    @property
    def crossed(self) -> bool:
        return self.value is not None and self.line.crossed(self.value)


def alerts_of(
    lines: Iterator[AlertLine] | tuple[AlertLine, ...],
    found: Mapping[str, MeanDifference],
    ratios: Mapping[str, tuple[float | None, float | None]],
) -> list[Alert]:
    """Every line with its measure's values; `ratios`: further measures as `(first, last)`."""
    values: dict[str, tuple[float | None, float | None]] = {
        name: (m.first, m.last) for name, m in found.items()
    }
    values |= ratios
    made = []
    for line in lines:
        start, value = values.get(line.measure, (None, None))
        made.append(Alert(line=line, value=value, start=start))
    return made


def alert_table(alerts: list[Alert]) -> Table:
    """Every line, crossed or not: what is not measured is shown as such."""
    return Table(
        title="Alert lines of the field, at the beginning and at the end of the run",
        columns=("measure", "line", "beginning", "end", "crossed", "source"),
        rows=tuple(
            (
                alert.line.measure,
                alert.line.words.partition(" (")[0],
                alert.start,
                alert.value,
                None if alert.value is None else alert.crossed,
                alert.line.source,
            )
            for alert in alerts
        ),
    )
