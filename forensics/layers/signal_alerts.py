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
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError

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
    r"(?P<measure>[^<>]+?)\s*(?P<relation>[<>])\s*(?P<value>-?\d+(?:\.\d+)?)\s+(?P<severity>warning|critical),"
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
    severity: str  # "warning" or "critical"
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
    match = _LINE.fullmatch(text.strip())
    if match is None:
        raise UserError(
            f"'{text}' is not an alert line; write for example 'dead share > 0.3 warning,"
            " 2606.03108'"
        )
    parts: dict[str, Any] = match.groupdict()
    return AlertLine(**parts | {"value": float(match["value"])})
