"""Steering as pictures and as a table: features beside their controls, against
the strength, against their number.

Rows are those that `forensics steer` writes: what was changed (`role`), in
which policy (`in`), how strongly, on which split of the tasks, and for each
measure an object with `estimate`, `low`, `high`. Several random draws of one
control become one point: their median, with the whole range that they covered.
What was chosen on one split is shown on the other; the curve over strengths is
that of the split that chose.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from forensics.records import Figure, Series, Table
from forensics.records.page import estimate_cell

Row = Mapping[str, Any]
DRAWN: Final = ("random-direction", "random-feature")  # controls with several draws
MEASURES: Final = ("measured", "success")  # that have pictures; the table has all
NAMES: Final = ("role", "in", "mode", "strength", "features", "draw", "dictionary", "split", "n")


def curves(rows: Sequence[Row]) -> list[Figure]:
    """The pictures, for each measure: by role, by strength, by number of
    features; those that have points.
    """
    figures = [figure for measure in MEASURES for figure in _figures(rows, measure)]
    return [figure for figure in figures if figure.series]


def _figures(rows: Sequence[Row], measure: str) -> list[Figure]:
    known = [row for row in rows if _is_estimate(row.get(measure))]
    several = [row for row in known if row.get("role") == "saturation"]
    reported = [
        row
        for row in known
        if row.get("split", "report") == "report" and row.get("role") != "saturation"
    ]
    chosen = [
        row
        for row in known
        if row.get("split") == "choose" and isinstance(row.get("strength"), int | float)
    ]
    by_strength = _series(chosen, measure, _role, lambda row: float(row["strength"]))
    return [
        Figure(
            title=f"{measure.capitalize()} on the reported tasks",
            form="points",
            y_label=measure,
            series=_series(reported, measure, lambda row: measure, _role),
        ),
        Figure(
            title=f"{measure.capitalize()} by strength, on the tasks that chose it",
            form="lines",
            x_label="strength",
            y_label=measure,
            series=tuple(one for one in by_strength if len(one.x) > 1),
        ),
        Figure(
            title=f"{measure.capitalize()} by number of features",
            form="lines",
            x_label="features",
            y_label=measure,
            series=_series(
                several,
                measure,
                lambda row: str(row.get("dictionary") or "dictionary"),
                lambda row: float(len(row.get("features", ()))),
            ),
        ),
    ]


def steering_table(rows: Sequence[Row]) -> Table:
    """All rows, with the columns that say something; channels are measures of
    their own, lists are text.
    """
    flat = []
    for row in rows:
        cells: dict[str, Any] = {}
        for name, value in row.items():
            if name == "channel_use" and isinstance(value, Mapping):
                cells |= {f"channel {channel}": use for channel, use in value.items()}
            else:
                several = isinstance(value, list | tuple)
                cells[name] = ", ".join(map(str, value)) if several else value
        flat.append(cells)
    names = [name for name in NAMES if any(row.get(name) not in (None, "") for row in flat)]
    names += dict.fromkeys(name for row in flat for name in row if _is_estimate(row[name]))
    table = (
        tuple(
            estimate_cell(cell) if _is_estimate(cell) else cell
            for cell in (row.get(name) for name in names)
        )
        for row in flat
    )
    return Table(title="All conditions", columns=tuple(names), rows=tuple(table))


def _role(row: Row) -> str:
    return f"{row.get('role')}, in {row.get('in')}"


def _series(
    rows: Sequence[Row], measure: str, name: Callable[[Row], str], place: Callable[[Row], Any]
) -> tuple[Series, ...]:
    """A series for each name, a point for each place in it; numbers in their order,
    names in the order of their coming.
    """
    groups: dict[str, dict[Any, list[Row]]] = {}
    for row in rows:
        groups.setdefault(name(row), {}).setdefault(place(row), []).append(row)
    series = []
    for title, by_place in groups.items():
        numbers = all(isinstance(at, float) for at in by_place)
        x = tuple(sorted(by_place) if numbers else by_place)
        y, low, high = zip(*(_point(by_place[at], measure) for at in x), strict=True)
        series.append(Series(name=title, x=x, y=y, low=low, high=high))
    return tuple(series)


def _point(rows: Sequence[Row], measure: str) -> tuple[float, float | None, float | None]:
    found = [row[measure] for row in rows]
    if len(found) == 1 and rows[0].get("role") not in DRAWN:
        return float(found[0]["estimate"]), found[0].get("low"), found[0].get("high")
    values = [float(one["estimate"]) for one in found]
    return median(values), min(values), max(values)


def _is_estimate(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("estimate"), int | float)
