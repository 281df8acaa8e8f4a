"""Self-contained pages: no request to anywhere, and nothing that a model wrote
can act in them.

Three walls: every value that a template shows goes through `visible_html`
(escaping, and control and direction marks spelled out); the page's policy
allows only our own style and script, by their hashes, and no connection; and
nothing foreign stands where a browser would read it as anything but text (no
address, no script, no data island).

`draw_page` draws the page of any room, `render_html` the report of a case; both
put the same blocks together (`blocks.html.j2`).
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count, groupby
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from forensics.records import Figure
from forensics.records.page import Page, TextSpan, TextSpans
from forensics.report import charts, numbers, words
from forensics.report.context import TEMPLATES, context_of
from forensics.report.data import ReportData
from forensics.report.escape import ticked_html, visible_html
from forensics.report.findings import Findings, cited_steps, handed_in, hunks_of, shown_within
from forensics.report.profile import is_unsettled
from forensics.report.shown_runs import Allowance, shown_steps
from forensics.report.source_rows import source_rows
from forensics.report.svg import spark_axes

LARGEST: Final = 1_900_000  # bytes; runs are shown with less text until the report is below
SIZES: Final = (
    Allowance(text=6000, steps=120, total=700_000),
    Allowance(text=1500, steps=60, total=250_000),
    Allowance(text=300, steps=24, total=40_000),
)
MOST_ROWS, MOST_COLUMNS, MOST_FIGURES, MOST_ARTIFACTS = 60, 16, 24, 12
PAGE_ROWS: Final = 200  # of a table on the page of a room
LEVELS: Final = 20  # lengths of a bar


def draw_page(page: Page) -> str:
    """The page of a room as HTML. The same page gives the same bytes."""
    numbered = count()

    def drawing(figure: Figure) -> Markup:
        return Markup(charts.draw(figure, prefix=f"figure-{next(numbered)}"))

    return _rendered(
        "page.html.j2",
        page=page,
        script="",
        drawing_of=drawing,
        most_rows=PAGE_ROWS,
        most_columns=PAGE_ROWS,
        rest="the files beside this page",
    )


def render_html(data: ReportData, pictures: Mapping[str, str]) -> str:
    """The report of a case. The same case gives the same bytes. `pictures`: the
    drawings on top, by the names of their files.
    """
    specifications = (
        artifact
        for evidence in data.evidence
        for artifact in evidence.artifacts[:MOST_ARTIFACTS]
        if isinstance(artifact, Figure)
    )
    figures = {
        id(figure): Markup(charts.draw(figure, prefix=f"figure-{number}"))
        for number, figure in zip(range(MOST_FIGURES), specifications, strict=False)
    }
    found = data.found
    examples = enumerate(data.browser.examples)
    known = {
        **context_of(data),
        "every_source": source_rows(data.verdict),
        "headline": words.heading(data),
        "unsettled": is_unsettled(data.verdict, data.inputs),
        "sections": [(name, group, spark_axes(group)) for name, group in data.sections.items()],
        "pictures": {file: Markup(drawing) for file, drawing in pictures.items()},
        "drawing_of": lambda figure: figures.get(id(figure)),
        "most_artifacts": MOST_ARTIFACTS,
        "most_rows": MOST_ROWS,
        "most_columns": MOST_COLUMNS,
        "rest": "evidence.jsonl",
        "cards_open": 5,
        "hunks_open": 2,
        "anchors": {example.run.id: f"run-{place}" for place, example in examples},
    }
    page = ""
    for limits in SIZES:
        page = _report(known, found, limits)
        if len(page.encode()) <= LARGEST:
            break
    return page


def _report(known: Mapping[str, Any], found: Findings | None, limits: Allowance) -> str:
    spent, cited = replace(limits), replace(limits, text=min(limits.text, 1500))
    return _rendered(
        "report.html.j2",
        script=Markup((TEMPLATES / "report.js").read_text(encoding="utf-8")),
        steps=lambda run, example, marks: shown_steps(run, example, spent, with_marks=marks),
        listed=shown_within(found, limits) if found else (),
        cited=lambda one: cited_steps(one, cited),
        hunks=lambda one: hunks_of(one.row, one.run, cited),
        handed=lambda one, other: handed_in(one.row, other.run, cited),
        **known,
    )


def _rendered(template: str, *, script: str, **values: Any) -> str:
    """Autoescaped; every value is made visible, and a missing name is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    lengths = (f".l{level}{{--long:{100 * level // LEVELS}%}}" for level in range(LEVELS + 1))
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8") + "".join(lengths)
    first, second = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    )
    return environment.get_template(template).render(
        style=Markup(style),
        script=script,
        policy=(
            f"default-src 'none'; style-src 'sha256-{first}'; script-src 'sha256-{second}';"
            " base-uri 'none'; form-action 'none'"
        ),
        numbers=numbers,
        ticked=ticked_html,
        grouped=_grouped,
        pieces=text_pieces,
        level=bar_level,
        **values,
    )


def _visible(value: Any) -> Markup:
    if isinstance(value, Markup):
        return value
    return Markup("") if value is None else visible_html(value)


def _grouped(blocks: Iterable[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Neighbours of one kind together."""
    for kind, group in groupby(blocks, lambda block: getattr(block, "kind", "sentence")):
        yield kind, list(group)


def bar_level(value: float) -> int:
    """The length of a bar for a value in [-1, 1]; what is not 0 shows."""
    return min(LEVELS, max(1, round(LEVELS * abs(value)))) if value else 0


def text_pieces(block: TextSpans) -> Iterator[tuple[str, TextSpan | None]]:
    """The text in pieces, with the stretch that each one is; ends outside of the
    text are cut, and of two that overlap the second.
    """
    at, text = 0, block.text
    for span in sorted(block.spans, key=lambda span: (span.start or 0, span.label)):
        start = min(max(span.start or 0, at), len(text))
        end = len(text) if span.end is None else min(max(span.end, 0), len(text))
        if start < end:
            if at < start:
                yield text[at:start], None
            yield text[start:end], span
            at = end
    if at < len(text):
        yield text[at:], None
