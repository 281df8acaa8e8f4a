"""The page as bytes: self-contained, under a strict policy, bounded, and saying
every number that was measured.
"""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from forensics.records import Span, Spans, Step, Trajectory
from forensics.records.finding import Finding
from forensics.records.page import TextSpan, TextSpans
from forensics.records.verdict import Parts
from forensics.report import load_case, render
from forensics.report.html import text_pieces
from forensics.report.numbers import control_of, unit_of
from forensics.report.shown_runs import Allowance, Example, Pick, shown_steps
from tests.episodes import episode_of
from tests.forensics.report_case import CHANNEL, CasePlan, build_case, estimate
from tests.forensics.report_hostile import hostile_case

ROOMY = Allowance(text=100, steps=12, total=10_000)


class Page(HTMLParser):
    """Elements with their attributes, and the text without scripts and styles."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


@pytest.fixture(scope="module")
def phantom(tmp_path_factory):
    return build_case(tmp_path_factory.mktemp("phantom"))


@pytest.fixture(scope="module")
def pages(phantom, tmp_path_factory):
    hostile = hostile_case(tmp_path_factory.mktemp("hostile"))
    return {
        name: render(folder, ["html"])["html"]
        for name, folder in (("phantom", phantom), ("hostile", hostile))
    }


@pytest.mark.parametrize("name", ["phantom", "hostile"])
def test_the_policy_allows_our_own_script_and_style_alone(pages, name):
    page = pages[name]
    policy = (
        re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
        .group(1)
        .replace("&#39;", "'")
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert (
        rules.pop("default-src") == "'none'"
        and rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    )
    for kind in ("script", "style"):
        (content,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules.pop(f"{kind}-src") == f"'sha256-{digest}'"
    assert not rules
    assert page.index("Content-Security-Policy") < page.index("<style>")


@pytest.mark.parametrize("name", ["phantom", "hostile"])
def test_nothing_in_the_page_can_act_or_call_out(pages, name):
    page = Page(pages[name])
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == tags.count("style") == tags.count("h1") == 1
    assert not {
        "iframe",
        "img",
        "object",
        "embed",
        "base",
        "link",
        "form",
        "input",
        "video",
        "audio",
    } & set(tags)
    for tag, attributes in page.elements:
        assert not any(
            key.startswith("on") or key in ("style", "src", "srcdoc", "action")
            for key in attributes
        ), tag
        address = attributes.get("href") or attributes.get("xlink:href")
        assert address is None or address.startswith("#")
    assert [
        a.get("http-equiv") for tag, a in page.elements if tag == "meta" and "http-equiv" in a
    ] == ["Content-Security-Policy"]


def test_a_page_full_of_long_runs_stays_small_and_says_what_it_left_out(tmp_path):
    step = Step(role="assistant", text="&" * 100_000)
    extra = [
        episode_of(id=f"long-{n}", task=f"held-out-7-{n}", steps=(step,) * 60, outcome=0.0)
        for n in range(12)
    ]
    page = render(build_case(tmp_path / "case", CasePlan(extra=extra, tasks=12)), ["html"])["html"]
    assert len(page.encode()) < 2_000_000 and "more characters are in the trajectory file" in page


def test_every_number_stands_with_its_interval_control_and_sizes(phantom, pages):
    data, text = load_case(phantom), " ".join(Page(pages["phantom"]).text.split())
    for e in data.evidence:
        unit = unit_of(e)
        ends = f"{unit.ends(e.interval)}{e.interval.level * 100:g} %" if e.interval else "none"
        row = (
            f"{unit.value(e.estimate)}{e.unit} {ends} {control_of(e) or 'none'} {e.n:,}"
            f" {e.clusters:,} {e.summary}"
        )
        assert row.replace(" ", "") in text.replace(" ", ""), row
        assert e.method in text and e.id in text and (e.control is None or e.control.name in text)
        assert all(name.replace("_", " ") in text for name in e.diagnostics)
        assert all(artifact.title in text for artifact in e.artifacts)
    assert all(value in text for value in data.evidence[0].provenance.inputs.values())


def test_the_verdict_comes_first_and_is_said_without_colour(pages):
    page = pages["phantom"]
    body = Page(page[page.index("<main") :]).text.split()
    assert body[:2] == ["Verdict", "Phantom"]
    assert (
        page.index("The score went from 36%")
        < page.index("Why this verdict")
        < page.index('id="evidence"')
    )


def test_a_part_below_zero_is_drawn_hollow_and_left_of_the_line(tmp_path):
    parts = Parts(learned=estimate(0.6), phantom=estimate(-0.05))
    page = render(build_case(tmp_path / "case", CasePlan(verdict={"parts": parts})), ["html"])[
        "html"
    ]
    drawn = page[page.index('<svg class="partbar"') :].partition("</svg>")[0]
    hollow, filled, line = (
        float(re.search(pattern, drawn)[1])
        for pattern in (r'fill="none"[^>]* x="([\d.]+)', r'f-genuine" x="([\d.]+)', r'd="M([\d.]+)')
    )
    assert hollow < line <= filled and drawn.count("<rect") == 2
    assert page.count("left of the line") == 1


def run_of(*texts: str) -> Trajectory:
    return episode_of(steps=tuple(Step(role="assistant", text=text) for text in texts))


def example_of(
    run: Trajectory, *spans: Span, attempts: tuple[int, ...] = (), obtained: tuple[int, ...] = ()
) -> Example:
    row = Finding(
        trajectory="r",
        side="after-0",
        task="t",
        family="disclosure",
        channel=CHANNEL,
        attempt_steps=attempts,
        obtained_steps=obtained,
        obtained=bool(obtained),
        used=True,
        credited=None,
        explanation="",
    )
    marks = Spans(title="", trajectory="r", spans=spans)
    return Example(
        pick=Pick(side="after-0", id="r", task="t", kind="win"),
        run=run,
        chains=(row,),
        spans=(marks,),
    )


def test_links_of_the_chain_stand_on_their_steps():
    run = run_of("a", "b", "c", "d")
    example = example_of(
        run, Span(step=3, label="used", start=0, end=1), attempts=(1,), obtained=(1, 2)
    )
    shown = list(shown_steps(run, example, replace(ROOMY), with_marks=True))
    assert [step.marks for step in shown] == [(), ("attempt", "obtained"), ("obtained",), ("used",)]
    assert [(text, span.label) for text, span in text_pieces(shown[3])] == [("d", "used")]
    twin = shown_steps(run, example, replace(ROOMY), with_marks=False)
    assert all(step.marks == step.spans == () for step in twin)


@pytest.mark.parametrize(
    ("spans", "marks"),
    [
        ([(2, 4)], ["cd"]),
        ([(4, 2)], []),
        ([(-3, 2)], ["ab"]),
        ([(4, 99)], ["ef"]),
        ([(9, 12)], []),
        ([(0, 3), (1, 5)], ["abc", "de"]),
        ([(3, None)], ["def"]),
        ([(None, 2)], ["ab"]),
        ([(0, 6), (2, 3)], ["abcdef"]),
    ],
)
def test_highlights_mark_exactly_their_piece(spans, marks):
    stretches = tuple(TextSpan(label="x", start=start, end=end) for start, end in spans)
    found = list(text_pieces(TextSpans(text="abcdef", spans=stretches)))
    assert [text for text, span in found if span] == marks
    assert "".join(text for text, _ in found) == "abcdef"
