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
from forensics.report.svg import ROLES
from forensics.report.writer import gain_picture, world_picture, worlds
from tests.forensics.report_case import CasePlan, build_case, estimate
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


def test_bars_are_as_long_as_their_numbers():
    svg = draw(figure("bars", x=("a", "b", "c"), y=(1.0, 2.0, -4.0)), prefix="a")
    lengths = sorted(right - left for left, right in boxes(svg, "series-0"))
    assert [length / lengths[0] for length in lengths] == pytest.approx([1, 2, 4], rel=1e-3)


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
