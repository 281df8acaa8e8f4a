"""Figures: the geometry is that of the numbers, the theme is the page's, and
labels are only labels.
"""

import re
from xml.etree import ElementTree

import pytest

from forensics.records import Figure, Series
from forensics.records.verdict import Verdict
from forensics.report.charts import draw
from forensics.report.data import load_case
from forensics.report.svg import ROLES, sparks, standalone
from forensics.report.verdict_charts import gain_picture, world_picture, worlds
from tests.forensics.report_case import CasePlan, build_case, estimate, number
from tests.forensics.report_hostile import ALL, PAYLOADS

SVG = "{http://www.w3.org/2000/svg}"
FORMS = ("points", "bars", "stacked", "lines", "grid", "scatter")


def figure(form="points", x=("a", "b"), y=(1.0, 2.0), **more):
    return Figure(
        title="T", form=form, y_label="unit", series=(Series(name="s", x=x, y=y, **more),)
    )


def boxes(svg: str, role: str) -> list[tuple[float, float]]:
    """Left and right ends of the filled shapes of a role."""
    return [_ends(path) for path in paths(svg) if f"f-{role}" in path.get("class", "").split()]


def hatched(svg: str) -> list[tuple[float, float]]:
    """Left and right ends of the hatched shapes."""
    return [_ends(path) for path in paths(svg) if path.get("fill", "").startswith("url(")]


def paths(svg: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(f"{SVG}path"))


def _ends(path: ElementTree.Element) -> tuple[float, float]:
    along = [float(pair[0]) for pair in re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", path.get("d"))]
    return min(along), max(along)


def verdict(gain: float, genuine: float | None) -> Verdict:
    return Verdict(
        label="mixed",
        gain=estimate(gain),
        genuine_gain=None if genuine is None else estimate(genuine),
        phantom_gain=None if genuine is None else estimate(gain - genuine),
        sentence="",
        reasons=(),
        decided_by="",
        rule="",
    )


@pytest.mark.parametrize(
    ("gain", "genuine"), [(0.63, 0.055), (0.55, 0.35), (0.3, -0.1), (-0.2, -0.05), (0.4, 0.5)]
)
def test_the_parts_are_drawn_to_scale_and_add_up(gain, genuine):
    svg = gain_picture(verdict(gain, genuine))
    whole, real = (boxes(svg, role)[0] for role in ("gain", "genuine"))
    (phantom,) = hatched(svg)
    assert (phantom[1] - phantom[0]) / (whole[1] - whole[0]) == pytest.approx(
        abs(1 - genuine / gain), rel=1e-3
    )
    assert (real[1] - real[0]) / (whole[1] - whole[0]) == pytest.approx(
        abs(genuine / gain), rel=1e-3
    )
    zero = whole[0] if gain > 0 else whole[1]
    assert zero == pytest.approx(real[0] if genuine > 0 else real[1], abs=1e-2)


def test_the_phantom_part_spans_from_the_genuine_end_to_the_gain():
    svg = gain_picture(verdict(0.63, 0.055))
    whole, real = (boxes(svg, role)[0] for role in ("gain", "genuine"))
    assert hatched(svg) == [pytest.approx((real[1], whole[1]), abs=1e-2)]


def test_a_part_that_was_not_measured_is_not_drawn():
    svg = gain_picture(verdict(0.5, None))
    assert not boxes(svg, "genuine") and "url(#" not in svg.split("</defs>")[-1].replace("clip", "")
    assert svg.count("not measured") >= 2


def test_worlds_show_both_worlds_or_what_there_is(tmp_path):
    both = load_case(build_case(tmp_path / "both", CasePlan(tasks=2)))
    svg = world_picture(worlds(both))
    shown = ("Open world", "Shortcuts scrubbed", "before 36.0", "after 99.0", "29.0 → after 34.5")
    assert all(text in svg for text in shown)
    open_only = load_case(build_case(tmp_path / "open", CasePlan(tasks=2, scrubbed=False)))
    assert [world.name for world in worlds(open_only)] == ["Open world"]


@pytest.mark.parametrize("form", FORMS)
def test_drawings_hold_no_style_no_script_and_only_their_own_ids(form):
    svg = draw(figure(form, low=(0.5, 1.5), high=(1.5, 2.5)), prefix="figure-7")
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        assert "style" not in element.attrib and not element.tag.endswith(
            ("}style", "}script", "}metadata", "}image")
        )
        assert not any(
            value in {mark for mark, _, _ in ROLES.values()} for value in element.attrib.values()
        )
        assert all(not name.startswith("on") for name in element.attrib)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) and all(name.startswith("figure-7-") for name in ids)
    pointed = re.findall(r'(?:href="|url\()#([^")]+)', svg)
    assert set(pointed) <= set(ids)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("x", [("a", "b", "c"), (1.0, 2.0, 4.0)])
def test_drawing_is_deterministic_and_takes_gaps(form, x):
    spec = figure(form, x=x, y=(1.0, None, -3.0), low=(None, None, -4.0), high=(2.0, None, -2.0))
    assert draw(spec, prefix="a") == draw(spec, prefix="a")
    assert draw(spec, prefix="a") != draw(figure(form, x=x, y=(1.0, None, -2.0)), prefix="a")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("y", [(None, None), ()])
def test_a_figure_without_numbers_says_so(form, y):
    svg = draw(figure(form, x=("a", "b")[: len(y)], y=y), prefix="a")
    assert "no data" in svg


def test_bars_are_as_long_as_their_numbers():
    svg = draw(figure("bars", x=("a", "b", "c"), y=(1.0, 2.0, -4.0)), prefix="a")
    lengths = sorted(right - left for left, right in boxes(svg, "series-0"))
    assert [length / lengths[0] for length in lengths] == pytest.approx([1, 2, 4], rel=1e-3)


def test_stacked_bars_start_where_the_last_one_ended():
    series = tuple(Series(name=name, x=("a",), y=(y,)) for name, y in (("one", 1.0), ("two", 3.0)))
    svg = draw(Figure(title="T", form="stacked", series=series), prefix="a")
    left, right = max(
        boxes(svg, "series-0"), key=lambda box: box[1] - box[0]
    )  # the other is the legend's
    begin, end = max(hatched(svg), key=lambda box: box[1] - box[0])
    assert begin == pytest.approx(right, abs=0.01)
    assert end - begin == pytest.approx(3 * (right - left), rel=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_labels_are_never_read_as_markup_or_mathematics(form):
    spec = figure(form, x=PAYLOADS[:10], y=tuple(map(float, range(10)))).model_copy(
        update={"title": ALL}
    )
    svg = draw(spec, prefix="a")
    tags = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(svg).iter()}
    assert tags <= {
        "svg",
        "g",
        "path",
        "text",
        "tspan",
        "use",
        "defs",
        "clipPath",
        "rect",
        "title",
        "desc",
        "pattern",
    }
    assert all(c == "\n" or c.isprintable() for c in svg)
    assert "$x_1$" in draw(figure(x=("$x_1$", "b")), prefix="a")


def test_large_figures_are_bounded():
    many = tuple(range(100_000))
    svg = draw(figure("lines", x=tuple(map(float, many)), y=tuple(map(float, many))), prefix="a")
    words = draw(
        figure("bars", x=tuple(f"label {n} " + "x" * 999 for n in range(5000)), y=many[:5000]),
        prefix="a",
    )
    assert len(svg) < 60_000 and len(words) < 60_000


def test_a_standalone_file_brings_both_themes():
    svg = standalone(gain_picture(verdict(0.5, 0.2)))
    root = ElementTree.fromstring(svg)
    style = root.find(f"{SVG}style").text
    used = {
        name
        for element in root.iter()
        for name in element.get("class", "").split()
        if name[:2] in ("f-", "s-")
    }
    assert (
        used
        and all(f".{name}{{" in style for name in used)
        and "prefers-color-scheme:dark" in style
    )


def test_sparks_share_one_axis_and_mark_zero():
    rows = [
        number("a", 0.5, 0.1),
        number("b", -0.25, 0.05),
        number("c", 1.0, None, unit="1 = yes, 0 = no"),
    ]
    drawn = sparks(rows)
    assert set(drawn) == {rows[0].id, rows[1].id}
    dots = [
        float(re.search(r'class="dot" cx="([\d.]+)"', drawn[row.id]).group(1)) for row in rows[:2]
    ]
    zeros = {re.search(r'class="zero" d="M([\d.]+) ', drawn[row.id]).group(1) for row in rows[:2]}
    (zero,) = map(float, zeros)
    assert (dots[0] - zero) / (zero - dots[1]) == pytest.approx(2, rel=0.02)
