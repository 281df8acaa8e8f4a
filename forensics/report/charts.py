"""Figures from their specifications, drawn with matplotlib as SVG that follows
the page's theme.

The bytes depend on the specification alone (fixed salt, no date). Labels are
data: no mathematics is parsed in them. A form is drawn so that it can be told
apart without colour: markers and hatches differ by series.
"""

import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import Any, Final

from forensics.records import Figure, Series
from forensics.report.escape import short
from forensics.report.numbers import plain
from forensics.report.svg import MARKS, themed

WIDTH: Final = 420  # of every drawing, in the page's pixels
MOST_SERIES: Final = 6
MOST_POINTS: Final = 400
MOST_SCATTERED: Final = 3000
MOST_ROWS: Final = 24  # of a grid
CELL: Final = (44.0, 32.0)  # of a grid, in the page's pixels
MOST_CATEGORIES: Final = 24
HATCHES: Final = ("", "////", "....", "\\\\\\\\", "xxxx", "----")
MARKERS: Final = ("o", "s", "D", "^", "v", "P")
STYLE: Final = {
    "svg.hashsalt": "forensics",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "font.size": 12,
    "font.family": "DejaVu Sans",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "text.color": MARKS["ink"],
    "axes.labelcolor": MARKS["muted"],
    "axes.edgecolor": MARKS["line"],
    "xtick.color": MARKS["line"],
    "ytick.color": MARKS["line"],
    "xtick.labelcolor": MARKS["muted"],
    "ytick.labelcolor": MARKS["ink"],
    "grid.color": MARKS["line"],
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "hatch.linewidth": 0.9,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "ytick.major.size": 0,
    "axes.unicode_minus": True,
    "axes.titlesize": 12,
    "lines.solid_capstyle": "butt",
}


@contextmanager
def canvas(height: float, width: float = WIDTH) -> Iterator[tuple[Any, Any]]:
    """A drawing and its axes in the common style, in pixels."""
    import matplotlib
    from matplotlib.figure import Figure as Drawing

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # letters that the measuring font lacks are drawn by the reader's own
        drawing = Drawing(figsize=(width / 72, height / 72), layout="constrained")
        yield drawing, drawing.add_subplot()


def finished(drawing: Any, **described: Any) -> str:
    """The drawing as a `themed` `<svg>` element. Must be called inside `canvas`."""
    file = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    drawing.savefig(file, format="svg", metadata=nothing)
    return themed(file.getvalue(), **described)


def draw(figure: Figure, *, prefix: str) -> str:
    """One figure. Forms are drawn lying down where their labels are words,
    upright where they are numbers.
    """
    grid = figure.form == "grid"
    series = [
        _bounded(one, MOST_SCATTERED if figure.form == "scatter" else MOST_POINTS)
        for one in figure.series[: MOST_ROWS if grid else MOST_SERIES]
        if grid or any(y is not None for y in one.y)
    ]
    labels = list(dict.fromkeys(x for one in series for x in one.x))
    words = any(isinstance(label, str) for label in labels)
    if words and not grid:
        labels = labels[:MOST_CATEGORIES]
    lying = words and figure.form not in ("lines", "scatter", "grid")
    size: tuple[float, float] = (_height(figure, labels, len(series), lying), WIDTH)
    if grid and series:
        size = (64.0 + CELL[1] * len(series), 230.0 + CELL[0] * len(labels))
    with canvas(*size) as (drawing, axes):
        if not series:
            axes.text(
                0.5,
                0.5,
                "no data",
                ha="center",
                va="center",
                transform=axes.transAxes,
                color=MARKS["muted"],
            )
            axes.set_axis_off()
        elif grid:
            _grid(axes, series, labels, figure)
        else:
            _form(figure)(axes, series, labels, lying)
            _label(axes, figure, labels, words, lying)
            if len(series) > 1:
                axes.legend(
                    loc="lower left", bbox_to_anchor=(0, 1), ncols=3, handlelength=1.4, fontsize=11
                )
        return finished(
            drawing,
            prefix=prefix,
            title=figure.title,
            description=describe(figure),
            pointed=_pointed(figure, series),
            natural=grid,
        )


def describe(figure: Figure) -> str:
    """The figure in words, for a reader who does not see it."""
    return "; ".join(
        f"{short(one.name, 60)}: {', '.join(_pairs(one))}" for one in figure.series[:MOST_SERIES]
    )


def _pairs(series: Series) -> Iterator[str]:
    for x, y in islice(zip(series.x, series.y, strict=False), 40):
        yield f"{short(x, 40)} {'no value' if y is None else plain(y)}"


def _bounded(series: Series, most: int) -> Series:
    """The first points of a series; lists that disagree in length are cut to the shortest."""
    ends = [values for values in (series.low, series.high, series.labels) if values is not None]
    size = min(most, len(series.x), len(series.y), *map(len, ends))
    return series.model_copy(
        update={
            "x": series.x[:size],
            "y": series.y[:size],
            "low": series.low[:size] if series.low else None,
            "high": series.high[:size] if series.high else None,
            "labels": series.labels[:size] if series.labels else None,
        }
    )


def _height(figure: Figure, labels: Sequence[object], series: int, lying: bool) -> float:
    if not lying:
        return 400.0 if figure.form == "scatter" else 240.0
    row = 26 if figure.form == "stacked" else 14 + 12 * max(series, 1)
    return 64.0 + row * max(len(labels), 1) + (22 if series > 1 else 0)


def _form(figure: Figure) -> Callable[[Any, Sequence[Series], list[Any], bool], None]:
    forms = {"points": _points, "bars": _bars, "stacked": _stacked, "lines": _lines}
    return {**forms, "scatter": _scatter}[figure.form]


def _points(axes: Any, series: Sequence[Series], labels: list[Any], lying: bool) -> None:
    step = 0.6 / len(series)
    for number, one in enumerate(series):
        colour, shift = _colour(one, number), (number - (len(series) - 1) / 2) * step
        for x, _, low, high in _known(one, labels):
            place = _place(x, labels, lying) + (shift if lying else 0)
            if low is not None and high is not None:
                axes.plot(
                    *_turned([place, place], [low, high], lying),
                    color=colour,
                    linewidth=2,
                    alpha=0.55,
                )
        spots = [
            (_place(x, labels, lying) + (shift if lying else 0), y)
            for x, y, _, _ in _known(one, labels)
        ]
        axes.plot(
            *_turned([a for a, _ in spots], [b for _, b in spots], lying),
            linestyle="none",
            label=short(one.name, 40),
            marker=MARKERS[number],
            color=colour,
            markersize=6.5,
        )


def _bars(axes: Any, series: Sequence[Series], labels: list[Any], lying: bool) -> None:
    thick = 0.76 * _spacing(labels, lying) / len(series)
    for number, one in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * thick
        known = list(_known(one, labels))
        places = [_place(x, labels, lying) + shift for x, _, _, _ in known]
        (axes.barh if lying else axes.bar)(
            places, [y for _, y, _, _ in known], thick * 0.92, **_filled(one, number)
        )
        for place, (_, _, low, high) in zip(places, known, strict=True):
            if low is not None and high is not None:
                axes.plot(
                    *_turned([place, place], [low, high], lying), color=MARKS["ink"], linewidth=1.2
                )


def _stacked(axes: Any, series: Sequence[Series], labels: list[Any], lying: bool) -> None:
    """Positive parts grow one way from zero, negative ones the other."""
    tops: dict[tuple[Any, bool], float] = {}
    thick = 0.6 * _spacing(labels, lying)
    for number, one in enumerate(series):
        known = list(_known(one, labels))
        starts = [tops.get((x, y >= 0), 0.0) for x, y, _, _ in known]
        places, sizes = (
            [_place(x, labels, lying) for x, _, _, _ in known],
            [y for _, y, _, _ in known],
        )
        where = {"left" if lying else "bottom": starts}
        (axes.barh if lying else axes.bar)(places, sizes, thick, **where, **_filled(one, number))
        tops |= {(x, y >= 0): start + y for (x, y, _, _), start in zip(known, starts, strict=True)}


def _lines(axes: Any, series: Sequence[Series], labels: list[Any], lying: bool) -> None:
    dashes = ("-", (0, (5, 2)), (0, (1, 1.5)), "-.", (0, (8, 2, 1, 2)), (0, (3, 1)))
    for number, one in enumerate(series):
        colour = _colour(one, number)
        rows = sorted(
            (_place(x, labels, False), y, low, high) for x, y, low, high in _known(one, labels)
        )
        band = [(x, low, high) for x, _, low, high in rows if low is not None and high is not None]
        if band:
            axes.fill_between(
                *map(list, zip(*band, strict=True)), color=colour, alpha=0.15, linewidth=0
            )
        axes.plot(
            [x for x, *_ in rows],
            [y for _, y, *_ in rows],
            color=colour,
            linewidth=2,
            linestyle=dashes[number],
            label=short(one.name, 40),
            marker=MARKERS[number] if len(rows) < 30 else None,
            markersize=4,
        )


def _scatter(axes: Any, series: Sequence[Series], labels: list[Any], lying: bool) -> None:
    for number, one in enumerate(series):
        known = [(float(x), y) for x, y, _, _ in _known(one, labels)]
        axes.plot(
            [x for x, _ in known],
            [y for _, y in known],
            linestyle="none",
            marker=MARKERS[number],
            markersize=5,
            markeredgewidth=0,
            alpha=0.8,
            color=_colour(one, number),
            label=short(one.name, 40),
            gid=f"series-{number}",
            zorder=3 - number / 10,
        )
    places = [float(label) for label in labels]
    if min(places) >= 0 and max(places) <= 1:  # shares
        axes.set_xlim(-0.04, 1.04)


def _grid(axes: Any, series: Sequence[Series], labels: list[Any], figure: Figure) -> None:
    """A row a series, a column a label. The larger the share, the deeper its
    cell, which holds it in percent; a cell without a share and a label is left
    out.
    """
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    for row, one in enumerate(series):
        for place, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
            if y is None and not (one.labels and one.labels[place]):
                continue  # nothing was looked for here
            column, share = labels.index(x), min(max(y or 0.0, 0.0), 1.0)
            framed = (one.name, str(x)) in figure.framed
            cell = Rectangle(
                (column - 0.46, row - 0.44),
                0.92,
                0.88,
                facecolor=(*to_rgb(MARKS["phantom"]), 0.8 * share),
                edgecolor=MARKS["ink"] if framed else MARKS["line"],
                linewidth=2.5 if framed else 0.8,
                gid=f"cell-{row}-{place}",
            )
            axes.add_patch(cell)
            text = "–" if y is None else plain(100 * y, 0)
            axes.text(column, row, text, ha="center", va="center_baseline", fontsize=12)
    names = [textwrap.shorten(short(one.name, 60), 36, placeholder="…") for one in series]
    axes.set_yticks(range(len(series)), names)
    axes.set_xticks(range(len(labels)), [short(label, 12) for label in labels])
    axes.set_xlim(-0.5, len(labels) - 0.5)
    axes.set_ylim(len(series) - 0.5, -0.5)
    axes.set_xlabel(short(figure.x_label, 60))
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(length=0)


def _pointed(figure: Figure, series: Sequence[Series]) -> dict[str, list[str]]:
    """What a pointer is told over the marks of each group of the drawing."""
    told: dict[str, list[str]] = {}
    for number, one in enumerate(series):
        if one.labels and figure.form == "grid":
            told |= {f"cell-{number}-{place}": [text] for place, text in enumerate(one.labels)}
        elif one.labels:
            known = zip(one.labels, one.y, strict=True)
            told[f"series-{number}"] = [text for text, y in known if y is not None]
    return told


def _label(axes: Any, figure: Figure, labels: list[Any], words: bool, lying: bool) -> None:
    """Names and grid; words are wrapped, and an axis of words runs from the top."""
    names = [textwrap.shorten(short(label, 60), 44, placeholder="…") or "–" for label in labels]
    wrapped = ["\n".join(textwrap.wrap(name, 24)[:2]) for name in names]
    if lying:
        axes.set_yticks(range(len(labels)), wrapped)
        axes.set_ylim(len(labels) - 0.45, -0.55)
        axes.update_datalim([(0, 0)], updatey=False)
        axes.autoscale_view(scaley=False)
        axes.set_xlabel(short(figure.y_label, 60))
        axes.grid(axis="x")
    else:
        if words:
            axes.set_xticks(range(len(labels)), [short(label, 12) for label in labels])
        axes.set_xlabel(short(figure.x_label, 60))
        axes.set_ylabel(short(figure.y_label, 60))
        axes.grid(axis="y")
    low, high = axes.get_xlim() if lying else axes.get_ylim()
    if low < 0 < high:
        (axes.axvline if lying else axes.axhline)(0, color=MARKS["muted"], linewidth=1)


def _known(
    series: Series, labels: Sequence[Any]
) -> Iterator[tuple[Any, float, float | None, float | None]]:
    """The points with a value, and their interval ends where both are known."""
    nothing = (None,) * len(series.x)
    for x, y, low, high in zip(
        series.x, series.y, series.low or nothing, series.high or nothing, strict=True
    ):
        if y is not None and x in labels:
            yield x, y, low, high


def _place(x: Any, labels: list[Any], lying: bool) -> float:
    return (
        float(labels.index(x))
        if lying or any(isinstance(label, str) for label in labels)
        else float(x)
    )


def _spacing(labels: Sequence[Any], lying: bool) -> float:
    """The distance between neighbouring bars."""
    if lying or any(isinstance(label, str) for label in labels):
        return 1.0
    places = sorted(float(label) for label in labels)
    return min((b - a for a, b in pairwise(places) if b > a), default=1.0)


def _turned(along: list[float], up: list[float], lying: bool) -> tuple[list[float], list[float]]:
    return (up, along) if lying else (along, up)


def _slot(series: Series, number: int) -> int:
    """`before` is always grey and `after` always blue; other series go by their place."""
    return {"before": 1, "after": 0}.get(series.name, number)


def _colour(series: Series, number: int) -> str:
    return MARKS[f"series-{_slot(series, number)}"]


def _filled(series: Series, number: int) -> dict[str, Any]:
    return {
        "label": short(series.name, 40),
        "facecolor": _colour(series, number),
        "edgecolor": MARKS["paper"],
        "hatch": HATCHES[_slot(series, number)],
        "linewidth": 0,
    }
