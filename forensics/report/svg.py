"""matplotlib's SVG made fit for a page: themed by CSS classes, no style
attribute or element, no clashing ids; and a small picture of each number in a
table.

A strict Content-Security-Policy refuses `style` attributes, and fixed colours
do not follow a dark theme. So each style declaration becomes an attribute, and
each role of `ROLES` becomes a class (`f-` for a fill, `s-` for a stroke).

A *spark* is an estimate with its interval, its control below, zero marked.
Numbers of one section and unit share an axis, so that rows can be compared by
eye.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from forensics.records import Evidence
from forensics.report.escape import short
from forensics.report.numbers import YES_NO, is_share, unit_of

SVG: Final = "http://www.w3.org/2000/svg"
LINK: Final = "{http://www.w3.org/1999/xlink}href"
ROLES: Final[Mapping[str, tuple[str, str, str]]] = {  # role -> (mark in the drawing, light, dark)
    "ink": ("#010101", "#1c1f26", "#e9eaee"),
    "muted": ("#020202", "#5d6470", "#a2a9b6"),
    "line": ("#030303", "#dfe1e6", "#343944"),
    "paper": ("#040404", "#ffffff", "#1a1d23"),
    "gain": ("#050505", "#3d4452", "#c3c8d2"),
    "genuine": ("#060606", "#0b7a69", "#4cc9b0"),
    "phantom": ("#070707", "#b3480a", "#ff9d5c"),
    "series-0": ("#080808", "#2f66b3", "#83b4f5"),
    "series-1": ("#090909", "#8a929f", "#8d95a3"),
    "series-2": ("#0a0a0a", "#9a3d86", "#e58bd0"),
    "series-3": ("#0b0b0b", "#8a6d00", "#e3c24b"),
    "series-4": ("#0c0c0c", "#3f7d2b", "#93d27c"),
    "series-5": ("#0d0d0d", "#7a4fc0", "#bda2f2"),
}
MARKS: Final = {role: mark for role, (mark, _, _) in ROLES.items()}
_ROLE_OF: Final = {mark: role for role, mark in MARKS.items()}
_KEPT: Final = frozenset(
    [
        "fill",
        "stroke",
        "stroke-width",
        "stroke-linecap",
        "stroke-linejoin",
        "stroke-dasharray",
        "stroke-dashoffset",
        "stroke-miterlimit",
        "opacity",
        "fill-opacity",
        "stroke-opacity",
        "text-anchor",
        "font-size",
        "font-weight",
    ]
)
_FONT: Final = re.compile(
    r"(?:(?P<style>italic|oblique)\s+)?(?:(?P<weight>bold|\d{3})\s+)?(?P<size>[\d.]+)px"
)


def themed(
    drawing: str,
    *,
    prefix: str,
    title: str,
    description: str = "",
    pointed: Mapping[str, Sequence[str]] | None = None,
    natural: bool = False,
) -> str:
    """The `<svg>` element of matplotlib's output, for use inside a page.
    `prefix` keeps ids of figures apart. `pointed`: for the group of each id
    what a pointer over its marks is told. `natural`: as wide as it was drawn.
    """
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(drawing)
    for parent in list(root.iter()):
        for name in ("metadata", "style"):
            for child in parent.findall(f"{{{SVG}}}{name}"):
                parent.remove(child)
    for element in root.iter():
        marks = element.findall(f".//{{{SVG}}}use") or element.findall(f"{{{SVG}}}path")
        for mark, text in zip(marks, (pointed or {}).get(element.get("id", ""), ()), strict=False):
            SubElement(mark, f"{{{SVG}}}title").text = short(text, 300)
        unstyle(element)
        if "id" in element.attrib:
            element.set("id", f"{prefix}-{element.attrib['id']}")
        for name, value in element.attrib.items():  # what points at ids
            if name == LINK and value.startswith("#"):
                element.set(name, f"#{prefix}-{value[1:]}")
            elif "url(#" in value:
                element.set(name, value.replace("url(#", f"url(#{prefix}-"))
    for name in ("height", "version", *(() if natural else ("width",))):
        root.attrib.pop(name, None)
    root.set("class", "figure wide" if natural else "figure")
    root.set("stroke-linejoin", "round")
    _describe(root, prefix, title, description)
    return ElementTree.tostring(root, encoding="unicode")


def standalone(themed_svg: str) -> str:
    """The same figure as a file of its own: it brings the colours of both themes."""
    light, dark = (
        "".join(
            f".f-{role}{{fill:{entry[theme]}}}.s-{role}{{stroke:{entry[theme]}}}"
            for role, entry in ROLES.items()
        )
        for theme in (1, 2)
    )
    style = "text{font-family:system-ui,sans-serif}"
    style += f"{light}@media(prefers-color-scheme:dark){{{dark}}}"
    opening, rest = themed_svg.split(">", 1)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{opening}><style>{style}</style>{rest}\n'


def unstyle(element: Element) -> None:
    """Declarations as attributes, colours of roles as classes."""
    declared: dict[str, str] = dict(_declarations(element.attrib.pop("style", "")))
    given: dict[str, str] = {
        name: element.attrib.pop(name) for name in ("fill", "stroke") if name in element.attrib
    }
    classes = []
    for name, value in {**given, **declared}.items():
        if value in _ROLE_OF and name in ("fill", "stroke"):
            classes.append(f"{name[0]}-{_ROLE_OF[value]}")
        elif name in _KEPT:
            element.set(name, value)
    if classes:
        element.set("class", " ".join(sorted(classes)))


def _declarations(style: str) -> Iterator[tuple[str, str]]:
    for declaration in style.split(";"):
        name, colon, value = (part.strip() for part in declaration.partition(":"))
        if name == "font" and (font := _FONT.match(value)):
            yield "font-size", font["size"]
            if font["weight"]:
                yield "font-weight", font["weight"]
        elif colon:
            yield name, value


def _describe(root: Element, prefix: str, title: str, description: str) -> None:
    """What a screen reader says."""
    parts = [("title", short(title, 300)), ("desc", short(description, 2000))]
    told = [(name, text) for name, text in parts if text]
    root.set("role", "img")
    root.set("aria-labelledby", " ".join(f"{prefix}-{name}" for name, _ in told))
    for place, (name, text) in enumerate(told):
        child = Element(f"{{{SVG}}}{name}", {"id": f"{prefix}-{name}"})
        child.text = text
        root.insert(place, child)


def spark_axes(findings: Sequence[Evidence]) -> dict[str, tuple[float, float]]:
    """Evidence id -> the ends of its axis, for the evidence of one section. Yes-or-no answers
    have none.
    """
    groups: dict[tuple[str, bool], list[Evidence]] = {}
    for finding in findings:
        if finding.unit != YES_NO:
            groups.setdefault((finding.unit, unit_of(finding).scaled), []).append(finding)
    axes: dict[str, tuple[float, float]] = {}
    for (unit, scaled), group in groups.items():
        values = [0.0, 1.0] if is_share(unit) and scaled else [0.0]  # are on the axis
        for finding in group:
            control = finding.control
            values.append(finding.estimate)
            if control is not None and control.estimate is not None:
                values.append(control.estimate)
            for interval in (finding.interval, control and control.interval):
                values += [interval.low, interval.high] if interval else []
        axes |= {finding.id: (min(values), max(values)) for finding in group}
    return axes
