"""Figures from their specifications, drawn with matplotlib as SVG that follows
the page's theme.

The bytes depend on the specification alone (fixed salt, no date). Labels are
data: no mathematics is parsed in them. A form is drawn so that it can be told
apart without colour: markers and hatches differ by series.
"""

import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
    grid, scatter = figure.form == "grid", figure.form == "scatter"
    series = [
        _bounded(one, MOST_SCATTERED if scatter else MOST_POINTS)
        for one in figure.series[: MOST_ROWS if grid else MOST_SERIES]
        if grid or any(y is not None for y in one.y)
    ]
    labels = list(dict.fromkeys(x for one in series for x in one.x))
    words = any(isinstance(label, str) for label in labels)
    labels = labels[:MOST_CATEGORIES] if words and not grid else labels
    lying = words and figure.form in ("points", "bars", "stacked")
    width, height = float(WIDTH), 400.0 if scatter else 240.0
    if grid:
        width, height = 230 + CELL[0] * len(labels), 64 + CELL[1] * len(series)
    elif lying:
        row = 26 if figure.form == "stacked" else 14 + 12 * len(series)
        height = 64.0 + row * len(labels) + (22 if len(series) > 1 else 0)
    with canvas(height, width) as (drawing, axes):
        if all(y is None for one in series for y in one.y):
            middle = {"ha": "center", "va": "center", "transform": axes.transAxes}
            axes.text(0.5, 0.5, "no data", color=MARKS["muted"], **middle)
            axes.set_axis_off()
        elif grid:
            _grid(axes, series, labels, figure)
        else:
            places = {x: float(i) if words else float(x) for i, x in enumerate(labels)}
            marks = [Marks.of(one, number, places) for number, one in enumerate(series)]
            forms = {"bars": _bars, "stacked": _stacked, "lines": _lines}
            forms.get(figure.form, _points)(axes, marks, lying)
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
        f"{short(one.name, 60)}: "
        + ", ".join(
            f"{short(x, 40)} {'no value' if y is None else plain(y)}"
            for x, y in islice(zip(one.x, one.y, strict=False), 40)
        )
        for one in figure.series[:MOST_SERIES]
    )


def _bounded(series: Series, most: int) -> Series:
    """The first points of a series; lists that disagree in length are cut to the shortest."""
    names = ("x", "y", "low", "high", "labels")
    lists = {name: values for name in names if (values := getattr(series, name)) is not None}
    size = min(most, *map(len, lists.values()))
    return series.model_copy(update={name: values[:size] for name, values in lists.items()})


@dataclass(frozen=True, kw_only=True)
class Marks:
    """What is drawn of one series: its points with a value, each as its place,
    the value, and the interval's ends. `slot` gives colour and hatch: `before`
    is always grey and `after` always blue, others go by their place.
    """

    name: str
    number: int
    slot: int
    points: list[tuple[float, float, float | None, float | None]]

    @classmethod
    def of(cls, series: Series, number: int, places: Mapping[Any, float]) -> "Marks":
        """`places`: of the labels that are drawn."""
        nothing = (None,) * len(series.x)
        rows = zip(series.x, series.y, series.low or nothing, series.high or nothing, strict=True)
        return cls(
            name=short(series.name, 40),
            number=number,
            slot={"before": 1, "after": 0}.get(series.name, number),
            points=[
                (places[x], y, low, high)
                for x, y, low, high in rows
                if y is not None and x in places
            ],
        )

    @property
    def colour(self) -> str:
        return MARKS[f"series-{self.slot}"]

    def bars(self, axes: Any, shift: float, thick: float, lying: bool, **where: Any) -> None:
        """A bar for each point, lying or upright."""
        (axes.barh if lying else axes.bar)(
            [place + shift for place, *_ in self.points],
            [value for _, value, *_ in self.points],
            thick,
            **where,
            label=self.name,
            facecolor=self.colour,
            edgecolor=MARKS["paper"],
            hatch=HATCHES[self.slot],
            linewidth=0,
        )

    def whiskers(self, axes: Any, shift: float, lying: bool, **style: Any) -> None:
        """The intervals, where both ends are known."""
        for place, _, low, high in self.points:
            if low is not None and high is not None:
                axes.plot(*_turned([place + shift] * 2, [low, high], lying), **style)


def _points(axes: Any, marks: Sequence[Marks], lying: bool) -> None:
    many = max(len(one.points) for one in marks) > MOST_CATEGORIES
    for one in marks:
        shift = (one.number - (len(marks) - 1) / 2) * 0.6 / len(marks) if lying else 0.0
        one.whiskers(axes, shift, lying, color=one.colour, linewidth=2, alpha=0.55)
        along, up = [p[0] + shift for p in one.points], [p[1] for p in one.points]
        axes.plot(
            *_turned(along, up, lying),
            linestyle="none",
            label=one.name,
            marker=MARKERS[one.number],
            color=one.colour,
            markersize=4.5 if many else 6.5,
            gid=f"series-{one.number}",
            zorder=3 - one.number / 10,  # the first one is in front
        )
    places = [place for one in marks for place, *_ in one.points]
    if not lying and min(places) >= 0 and max(places) <= 1:  # shares
        axes.set_xlim(-0.04, 1.04)


def _spacing(marks: Sequence[Marks], lying: bool) -> float:
    """The distance between neighbouring bars; words stand at whole numbers."""
    if lying:
        return 1.0
    places = sorted(place for one in marks for place, *_ in one.points)
    return min((b - a for a, b in pairwise(places) if b > a), default=1.0)


def _bars(axes: Any, marks: Sequence[Marks], lying: bool) -> None:
    thick = 0.76 * _spacing(marks, lying) / len(marks)
    for one in marks:
        shift = (one.number - (len(marks) - 1) / 2) * thick
        one.bars(axes, shift, thick * 0.92, lying)
        one.whiskers(axes, shift, lying, color=MARKS["ink"], linewidth=1.2)


def _stacked(axes: Any, marks: Sequence[Marks], lying: bool) -> None:
    """Positive parts grow one way from zero, negative ones the other."""
    tops: dict[tuple[float, bool], float] = {}
    for one in marks:
        starts = [tops.get((place, value >= 0), 0.0) for place, value, *_ in one.points]
        one.bars(
            axes,
            0.0,
            0.6 * _spacing(marks, lying),
            lying,
            **{"left" if lying else "bottom": starts},
        )
        for (place, value, *_), start in zip(one.points, starts, strict=True):
            tops[place, value >= 0] = start + value


def _lines(axes: Any, marks: Sequence[Marks], lying: bool) -> None:
    dashes = ("-", (0, (5, 2)), (0, (1, 1.5)), "-.", (0, (8, 2, 1, 2)), (0, (3, 1)))
    for one in marks:
        points = sorted(one.points, key=lambda point: point[:2])
        band = [(at, low, high) for at, _, low, high in points if None not in (low, high)]
        if band:
            axes.fill_between(
                *map(list, zip(*band, strict=True)), color=one.colour, alpha=0.15, linewidth=0
            )
        axes.plot(
            [place for place, *_ in points],
            [value for _, value, *_ in points],
            color=one.colour,
            linewidth=2,
            linestyle=dashes[one.number],
            label=one.name,
            marker=MARKERS[one.number] if len(points) < 30 else None,
            markersize=4,
        )


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


def _turned(along: list[float], up: list[float], lying: bool) -> tuple[list[float], list[float]]:
    return (up, along) if lying else (along, up)
