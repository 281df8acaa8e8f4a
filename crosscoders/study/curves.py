"""Steering as pictures and as a table: features beside their controls, against
the strength, against their number.

Rows are those that `forensics steer` writes: what was changed (`role`), in
which policy (`in`), how strongly, on which split of the tasks, and for each
measure an object with `estimate`, `low`, `high`. Several random draws of one
control become one point: their median, with the whole range that they covered.
What was chosen on one split is shown on the other; the curve over strengths is
that of the split that chose.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

from forensics.records import Figure, Series, Table
from forensics.records.page import estimate_cell

Row = Mapping[str, Any]
Point = tuple[float, float | None, float | None]
DRAWN: Final = ("random-direction", "random-feature")  # controls with several draws
MEASURES: Final = ("measured", "success")  # that have pictures; the table has all
NAMES: Final = ("role", "in", "mode", "strength", "features", "draw", "dictionary", "split", "n")


def curves(rows: Sequence[Row]) -> list[Figure]:
    """The pictures, for each measure: by role, by strength, by number of
    features; those that have points.
    """
    figures = []
    for measure in (name for name in MEASURES if any(_is_estimate(row.get(name)) for row in rows)):
        known = [row for row in rows if _is_estimate(row.get(measure))]
        figures += [
            figure
            for draw in (_by_role, _by_strength, _by_number)
            if (figure := draw(known, measure)).series
        ]
    return figures


def steering_table(rows: Sequence[Row]) -> Table:
    """All rows, with the columns that say something."""
    flat = [_flat(row) for row in rows]
    names = [name for name in NAMES if any(row.get(name) not in (None, "") for row in flat)]
    measures = list(
        dict.fromkeys(name for row in flat for name, value in row.items() if _is_estimate(value))
    )
    cells = (
        tuple(
            estimate_cell(cell) if _is_estimate(cell) else cell
            for cell in map(row.get, (*names, *measures))
        )
        for row in flat
    )
    return Table(title="All conditions", columns=(*names, *measures), rows=tuple(cells))


def _flat(row: Row) -> dict[str, Any]:
    """Channels as measures of their own, lists as text."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name == "channel_use" and isinstance(value, Mapping):
            found |= {f"channel {channel}": use for channel, use in value.items()}
        else:
            found[name] = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return found


def _by_role(rows: Sequence[Row], measure: str) -> Figure:
    reported = [
        row
        for row in rows
        if row.get("split", "report") == "report" and row.get("role") != "saturation"
    ]
    points = _points(reported, measure, _role)
    return Figure(
        title=f"{measure.capitalize()} on the reported tasks",
        form="points",
        y_label=measure,
        series=(_series(measure, points),) if points else (),
    )


def _role(row: Row) -> str:
    return f"{row.get('role')}, in {row.get('in')}"


def _by_strength(rows: Sequence[Row], measure: str) -> Figure:
    chosen = [
        row
        for row in rows
        if row.get("split") == "choose" and isinstance(row.get("strength"), int | float)
    ]
    series = tuple(
        _series(role, points)
        for role in dict.fromkeys(map(_role, chosen))
        if len(points := _points([row for row in chosen if _role(row) == role], measure, _strength))
        > 1
    )
    return Figure(
        title=f"{measure.capitalize()} by strength, on the tasks that chose it",
        form="lines",
        x_label="strength",
        y_label=measure,
        series=series,
    )


def _strength(row: Row) -> float:
    return float(row["strength"])


def _by_number(rows: Sequence[Row], measure: str) -> Figure:
    several = [row for row in rows if row.get("role") == "saturation"]
    names = dict.fromkeys(str(row.get("dictionary") or "dictionary") for row in several)
    series = tuple(
        _series(
            name,
            _points(
                [row for row in several if str(row.get("dictionary") or "dictionary") == name],
                measure,
                lambda row: float(len(row.get("features", ()))),
            ),
        )
        for name in names
    )
    return Figure(
        title=f"{measure.capitalize()} by number of features",
        form="lines",
        x_label="features",
        y_label=measure,
        series=series,
    )


def _points(rows: Sequence[Row], measure: str, place: Callable[[Row], Any]) -> dict[Any, Point]:
    """One point for each place; numbers in their order, names in the order of their coming."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(place(row), []).append(row)
    ordered: Iterator[Any] = iter(
        sorted(groups) if all(isinstance(at, float) for at in groups) else groups
    )
    return {at: _point(groups[at], measure) for at in ordered}


def _point(rows: Sequence[Row], measure: str) -> Point:
    found = [row[measure] for row in rows]
    if len(found) == 1 and rows[0].get("role") not in DRAWN:
        return float(found[0]["estimate"]), found[0].get("low"), found[0].get("high")
    values = [float(one["estimate"]) for one in found]
    return median(values), min(values), max(values)


def _series(name: str, points: Mapping[Any, Point]) -> Series:
    return Series(
        name=name,
        x=tuple(points),
        y=tuple(p[0] for p in points.values()),
        low=tuple(p[1] for p in points.values()),
        high=tuple(p[2] for p in points.values()),
    )


def _is_estimate(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("estimate"), int | float)
