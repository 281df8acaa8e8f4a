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
from forensics.records.page import Page as PageRecord, Section, TextSpan, TextSpans
from forensics.report import load_case, render
from forensics.report.chains import ChainRow
from forensics.report.html import TEMPLATES, draw_page, text_pieces
from forensics.report.numbers import control_of, unit_of
from forensics.report.shown_runs import Allowance, Example, Pick, shown_steps
from forensics.report.svg import ROLES
from tests.forensics.report_case import CHANNEL, CasePlan, build_case
from tests.forensics.report_hostile import LONG, hostile_case

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


@pytest.mark.parametrize("name", ["phantom", "hostile"])
def test_the_page_is_small_and_holds_no_hidden_mark(pages, name):
    assert len(pages[name].encode()) < 2_000_000
    assert {c for c in pages[name] if not c.isprintable()} == {"\n"}


def test_a_page_full_of_long_runs_stays_small_and_says_what_it_left_out(tmp_path):
    step = Step(role="assistant", text="&" * 100_000)
    extra = [
        Trajectory(
            id=f"long-{n}",
            task=f"held-out-7-{n}",
            policy="p",
            environment="e",
            seed=0,
            steps=(step,) * 60,
            outcome=0.0,
            end="terminated",
        )
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


def test_seeds_hashes_and_settings_are_there_for_a_replay(phantom, pages):
    text = Page(pages["phantom"]).text
    data = load_case(phantom)
    for side in (data.inputs["before"], *data.inputs["after"]):
        assert side["weights"] in text and side["tokenizer"] in text
    assert "--seed 7" in text and "--env-option world=capped" in text and data.verdict.rule in text


def test_the_colours_of_drawings_are_those_of_the_page():
    css = (TEMPLATES / "report.css").read_text()
    light, dark = (
        dict(re.findall(r"--([a-z0-9-]+):(#[0-9a-f]+)", part))
        for part in css.split("@media", 2)[:2]
    )
    whole = {"#fff": "#ffffff"}
    for role, (_, day, night) in ROLES.items():
        assert whole.get(light[role], light[role]) == day
        assert dark[role] == night
        assert f".f-{role}{{fill:var(--{role})}}.s-{role}{{stroke:var(--{role})}}" in css


def luminance(colour: str) -> float:
    channels = [int(colour[1:].ljust(6, colour[-1])[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    bright, faint = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (faint + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize(
    "role", ["ink", "muted", "genuine", "phantom", "warn", "bad", "calm", "series-0"]
)
def test_text_colours_have_contrast_in_both_themes(theme, role):
    css = (TEMPLATES / "report.css").read_text().split("@media", 2)[theme]
    colours = dict(re.findall(r"--([a-z0-9-]+):(#[0-9a-f]+)", css))
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert all(
        contrast(colours[role], colours[ground]) >= 4.5 for ground in ("paper", "page", "sunk")
    )


def run_of(*texts: str) -> Trajectory:
    return Trajectory(
        id="r",
        task="t",
        policy="p",
        environment="e",
        seed=0,
        steps=tuple(Step(role="assistant", text=text) for text in texts),
        outcome=1.0,
        end="terminated",
    )


def example_of(
    run: Trajectory, *spans: Span, attempts: tuple[int, ...] = (), obtained: tuple[int, ...] = ()
) -> Example:
    row = ChainRow(
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
    assert [step.marks for step in shown] == [
        (),
        ("attempt", "obtained"),
        ("obtained",),
        ("used",),
    ]
    assert [(text, span.label) for text, span in text_pieces(shown[3])] == [("d", "used")]
    twin = shown_steps(run, example, replace(ROOMY), with_marks=False)
    assert all(step.marks == step.spans == () for step in twin)


def test_long_runs_keep_their_ends_and_what_is_pointed_at():
    run = run_of(*(f"text {n}" for n in range(100)))
    shown = list(shown_steps(run, example_of(run, attempts=(50,)), replace(ROOMY), with_marks=True))
    assert [step.number for step in shown] == [0, 1, 2, 3, 4, 5, 50, 97, 98, 99]
    assert len(shown) + sum(step.skipped for step in shown) == 100


def test_long_texts_are_cut_and_counted():
    run = run_of(LONG, "short", LONG)
    shown = list(
        shown_steps(run, example_of(run), Allowance(text=80, steps=9, total=90), with_marks=True)
    )
    assert [step.left_out for step in shown] == [100_000 - 80, 0, 100_000 - 5]


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


def test_a_highlight_is_placed_by_the_characters_as_they_were_written():
    text = TextSpans(text="\x1b[1m<b>&x", spans=(TextSpan(label='"', start=4, end=7),))
    page = draw_page(
        PageRecord(eyebrow="", title="", sections=(Section(title="", blocks=(text,)),))
    )
    assert '</samp>[1m<mark data-label="&#34;">&lt;b&gt;</mark>&amp;x</div>' in page
