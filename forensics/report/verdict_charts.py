"""The two pictures on top: where the score went in each world, and what the gain is made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from forensics.records import Evidence, Verdict
from forensics.records.verdict import Estimate
from forensics.report.charts import canvas, finished
from forensics.report.data import ReportData
from forensics.report.numbers import part_of_gain, percent, plain
from forensics.report.svg import MARKS

ROW: Final = 58
AXIS: Final = 44
CROWDED: Final = 20  # points between two dots below which they share a label
LEAST_REACH: Final = (-10.0, 10.0)  # points


@dataclass(frozen=True, kw_only=True)
class WorldScores:
    """The scores before and after training in one world."""

    name: str
    before: Evidence | Estimate
    after: Evidence | Estimate


def worlds(data: ReportData) -> tuple[WorldScores, ...]:
    """The open and the scrubbed world, as far as they were measured on both sides."""
    verdict = data.verdict
    before, after, before_scrubbed, after_scrubbed = (
        data.answer(f"score.{name}")
        for name in ("before", "after", "before_scrubbed", "after_scrubbed")
    )
    pairs = (
        ("Open world", before or verdict.score_before, after or verdict.score_after),
        ("Shortcuts scrubbed", before_scrubbed, after_scrubbed),
    )
    return tuple(
        WorldScores(name=name, before=first, after=last)
        for name, first, last in pairs
        if first is not None and last is not None
    )


def world_picture(shown: Sequence[WorldScores]) -> str:
    """Scores before and after training, a row for each world, on one axis in percent."""
    told = "; ".join(
        f"{w.name}: {percent(w.before.estimate)} before, {percent(w.after.estimate)} after"
        for w in shown
    )
    with canvas(AXIS + 3 * ROW) as (drawing, axes):
        reach = [0.0, 100.0]
        for row, world in enumerate(shown):
            reach += dumbbell(axes, row, world)
        axes.set_xlim(min(reach) - 4, max(reach) + 4)
        axes.set_ylim(len(shown) - 0.45, -0.62)
        return _finished(
            drawing,
            axes,
            "score, %",
            prefix="worlds",
            title="The score in each world, before and after",
            description=told,
        )


def _finished(drawing: Any, axes: Any, label: str, **described: str) -> str:
    axes.set_yticks([])
    axes.set_xlabel(label)
    axes.grid(axis="x")
    return finished(drawing, **described)


def dumbbell(axes: Any, row: int, world: WorldScores) -> list[float]:
    """One world; returns where its intervals reach, for the axis."""
    before, after = 100 * world.before.estimate, 100 * world.after.estimate
    colour, reach = MARKS["gain"], []
    axes.text(
        0, row - 0.34, world.name, color=MARKS["ink"], fontsize=12, fontweight="bold", va="center"
    )
    axes.plot([before, after], [row, row], color=colour, linewidth=3, alpha=0.35)
    for side in (world.before, world.after):
        known = side if isinstance(side, Estimate) else side.interval
        ends = (known.low, known.high) if known else (side.estimate,) * 2
        reach += [100 * end for end in ends]
        axes.plot(reach[-2:], [row, row], color=colour, linewidth=9, alpha=0.22)
    ring = {"markeredgecolor": colour, "markeredgewidth": 2, "markersize": 9}
    axes.plot([before], [row], "o", color=MARKS["paper"], **ring)
    axes.plot([after], [row], "o", color=colour, markersize=10)
    labels = [(before, f"before {plain(before, 1)}"), (after, f"after {plain(after, 1)}")]
    if abs(after - before) < CROWDED:
        labels = [((before + after) / 2, " → ".join(text for _, text in labels))]
    room = 9 if len(labels) > 1 else 18
    for place, text in labels:
        inside = min(max(place, room - 4), 104 - room)
        axes.text(
            inside, row + 0.32, text, ha="center", va="center", fontsize=11, color=MARKS["muted"]
        )
    return reach


def gain_picture(verdict: Verdict) -> str:
    """The gain and the parts it is made of, with intervals: the phantom part
    starts where the genuine one ends.
    """
    start = verdict.genuine_gain.estimate if verdict.genuine_gain else 0.0
    parts = (
        ("Gain", verdict.gain, 0.0, "gain", ""),
        ("Genuine part", verdict.genuine_gain, 0.0, "genuine", ""),
        ("Phantom part", verdict.phantom_gain, start, "phantom", "////"),
    )
    words = "; ".join(f"{name}: {part_of_gain(estimate)}" for name, estimate, *_ in parts)
    with canvas(AXIS + ROW * len(parts)) as (drawing, axes):
        reach = [0.0]  # of the axis
        for row, (name, estimate, begin, role, hatch) in enumerate(parts):
            reach += _part(axes, row, estimate, 100 * begin, role, hatch)
            _name(axes, row, name, estimate)
        if verdict.genuine_gain is not None and verdict.phantom_gain is not None:
            thin = {"color": MARKS["muted"], "linewidth": 1, "linestyle": (0, (2, 2))}
            axes.plot([100 * start] * 2, [1.12, 2.12], zorder=0, **thin)  # one ends, one starts
        axes.axvline(0, color=MARKS["muted"], linewidth=1)
        if max(map(abs, reach)) < max(LEAST_REACH):  # a trifle should look like one
            reach += LEAST_REACH
        spare = 0.04 * (max(reach) - min(reach))
        axes.set_xlim(min(reach) - spare, max(reach) + spare)
        axes.set_ylim(len(parts) - 0.35, -0.62)
        return _finished(
            drawing,
            axes,
            "change of the score, points",
            prefix="gain",
            title="The gain and its parts",
            description=words,
        )


def _part(
    axes: Any, row: int, estimate: Estimate | None, start: float, role: str, hatch: str
) -> list[float]:
    """One bar with its whisker; returns where it reaches, for the axis."""
    if estimate is None:
        return []
    end, low, high = (
        start + 100 * value for value in (estimate.estimate, estimate.low, estimate.high)
    )
    axes.barh(
        row + 0.12,
        end - start,
        0.4,
        left=start,
        facecolor=MARKS[role],
        edgecolor=MARKS["paper"],
        hatch=hatch,
        linewidth=0,
    )
    axes.plot([low, high], [row + 0.12] * 2, color=MARKS["ink"], linewidth=1.6)
    for place in (low, high):
        axes.plot([place] * 2, [row + 0.03, row + 0.21], color=MARKS["ink"], linewidth=1.6)
    return [start, end, low, high]


def _name(axes: Any, row: int, name: str, estimate: Estimate | None) -> None:
    """The name on the left, the number on the right, above the bar."""
    where = {
        "transform": axes.get_yaxis_transform(),
        "va": "center",
        "bbox": {"facecolor": MARKS["paper"], "edgecolor": "none", "pad": 1.5},
    }
    axes.text(0, row - 0.3, name, fontsize=12, fontweight="bold", **where)
    said = {"fontsize": 11, "color": MARKS["muted"], "ha": "right"}
    axes.text(1, row - 0.3, part_of_gain(estimate), **said, **where)
