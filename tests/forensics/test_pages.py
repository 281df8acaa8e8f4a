"""A page that a room hands over, in every format: all of it is said, and nothing
foreign acts.
"""

from html.parser import HTMLParser

from forensics.records import Figure, Series, Table
from forensics.records.page import Fold, Page, Section, TextSpan, TextSpans
from forensics.records.verdict import Estimate
from forensics.report import draw_page, table_text
from forensics.report.numbers import table_cells
from tests.forensics.report_hostile import ALL

SHARE = Estimate(estimate=0.364, low=0.3, high=0.42)
OURS = {
    *("html", "head", "meta", "title", "style", "body", "main", "section", "div", "p", "h1", "h2"),
    *("ul", "li", "ol", "span", "b", "i", "pre", "samp", "code", "mark", "details", "summary"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption"),
    *("svg", "g", "path", "text", "use", "defs", "desc", "clippath", "rect"),
}


def page_of(text: str) -> Page:
    """A page with every kind of block, and the text in each of its places."""
    table = Table(title=text, columns=(text, "b"), rows=((text, SHARE), (None, 0.5)))
    spans = (
        TextSpan(start=0, end=3, label=text, value=0.5),
        TextSpan(start=3, end=5, label=text, value=-1.0, detail=(text, table)),
        TextSpan(start=5, end=6, label=text),
    )
    step = TextSpans(
        text=text,
        who=text,
        number=3,
        tags=(text,),
        marks=(text,),
        calls=((text, text),),
        spans=spans,
        value=0.2,
        note=text,
    )
    series = (Series(name=text, x=(text, "b"), y=(0.5, None), labels=(text, text)),)
    figure = Figure(title=text, form="grid", series=series, framed=((text, "b"),))
    fold = Fold(title=text, facts=(text,), blocks=(step, table, text), anchor="run-0", open=True)
    return Page(
        eyebrow=text,
        title=text,
        sentences=(text, text),
        more=(text,),
        facts=(text,),
        sections=(
            Section(title=text, hint=text, blocks=(text, table, figure, figure, step, fold)),
            Section(title="Empty", empty=text),
        ),
        command=text,
    )


class Tags(HTMLParser):
    """The tags of a page with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_nothing_foreign_acts_in_html() -> None:
    drawn = draw_page(page_of(ALL))
    tags = Tags(drawn)
    assert tags.names <= OURS
    assert not any(name.startswith("on") or name in ("style", "src") for name in tags.attributes)
    assert {c for c in drawn if not c.isprintable()} == {"\n"}
    assert draw_page(page_of(ALL)) == drawn


def test_a_page_says_what_was_found() -> None:
    told = draw_page(page_of("plain words"))
    assert told.count("plain words") > 8 and "0.364 (0.3 to 0.42)" in told


def test_further_sentences_open_on_a_click_and_without_any_nothing_does() -> None:
    page = Page(eyebrow="", title="Title", sentences=("First.",), more=("Second.", "`third`."))
    before, opens = draw_page(page).split("<details")
    folded = opens.partition("</details>")[0]
    assert "First." in before and "Second." not in before
    assert "<summary>More</summary>" in folded and not folded.partition(">")[0].count("open")
    assert "<p>Second.</p>" in folded and "<code>third</code>" in folded
    assert "<details" not in draw_page(page.model_copy(update={"more": ()}))


def test_cells_speak_the_unit_of_their_column() -> None:
    table = Table(
        title="Wins",
        columns=("side", "won", "gain", "AUROC", "lead", "n"),
        rows=(("after", SHARE, 0.1, 0.8, 0.05, 1200), ("before", None, -0.2, SHARE, -0.1, None)),
        units={
            "won": "share",
            "gain": "score difference",
            "AUROC": "AUROC",
            "lead": "AUROC difference",
        },
    )
    assert list(table_cells(table)) == [
        ["after", "36.4 % (30.0 to 42.0)", "+10.0 points", "0.80", "+0.05", "1,200"],
        ["before", "not measured", "−20.0 points", "0.36 (0.30 to 0.42)", "−0.10", "–"],
    ]
    assert table_text(table).splitlines()[0] == "Wins"
