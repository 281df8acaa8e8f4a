"""Foreign text made harmless: nothing is lost, and nothing of it acts."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, strategies as st
from markdown_it import MarkdownIt

from forensics.report.escape import (
    markdown_fence,
    markdown_line,
    printable,
    short,
    ticked_html,
    visible_html,
)
from tests.forensics.report_hostile import PAYLOADS

ANY = st.text(st.characters(), max_size=60) | st.sampled_from(PAYLOADS)
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
PLAIN = {"text", "softbreak", "code_inline"}


class Reader(HTMLParser):
    """Text, tags and attributes as a browser would read them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.tags, self.attributes = "", [], []

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def read(markup: str) -> Reader:
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


@given(ANY)
@example("\ud800")
def test_printable_holds_nothing_that_drives_a_terminal(text):
    shown = printable(text)
    assert all(c == "\n" or c.isprintable() for c in shown)
    assert printable(shown) == shown
    assert "\n" not in printable(text, breaks=False)
    shown.encode()  # a lone surrogate would not


@given(ANY)
def test_html_reads_back_as_the_printable_text_and_only_our_own_tags(text):
    reader = read(str(visible_html(text)))
    assert reader.text == printable(text)
    assert set(reader.tags) <= {"samp"} and set(reader.attributes) <= {("class", "hidden-mark")}


@given(ANY)
def test_backticks_become_code_and_nothing_else(text):
    reader = read(str(ticked_html(text)))
    assert set(reader.tags) <= {"samp", "code"}
    assert reader.text.replace("`", "") == printable(text, breaks=False).replace("`", "")


def inline_kinds(source: str) -> set[str]:
    return {child.type for token in MARKDOWN.parse(source) for child in token.children or ()}


@given(ANY)
@example("1. x")
@example("- x")
@example("# x")
@example("===")
@example("![a](b)")
def test_a_line_of_markdown_is_plain_wherever_it_stands(text):
    line = markdown_line(text)
    assert "\n" not in line
    for place, wanted in ((line, 1), (f"before\n\n{line}\n\nafter", 3)):
        tokens = MARKDOWN.parse(place)
        assert {token.type for token in tokens} <= {"paragraph_open", "inline", "paragraph_close"}
        assert inline_kinds(place) <= PLAIN
        assert sum(token.type == "inline" for token in tokens) <= wanted
    rows = MARKDOWN.parse(f"| a | b |\n| --- | --- |\n| {line} | end |")
    assert sum(token.type == "td_open" for token in rows) == 2
    assert inline_kinds(f"| a | b |\n| --- | --- |\n| {line} | end |") <= PLAIN


@pytest.mark.parametrize(
    "text", ["www.example.com", "https://example.com", "mailto:a@example.com", "a@example.com"]
)
def test_addresses_are_broken_for_readers_that_link_them(text):
    line = markdown_line(text)
    assert re.search(r"(?<!\\):|www\.|a@", line) is None


@given(ANY)
@example("```\n<script>")
@example("`" * 50)
def test_nothing_closes_a_fence(text):
    tokens = MARKDOWN.parse(f"{markdown_fence(text)}\n\nafter")
    assert [token.type for token in tokens] == [
        "fence",
        "paragraph_open",
        "inline",
        "paragraph_close",
    ]
    assert tokens[0].content == printable(text) + "\n"


def test_short_tells_that_something_is_missing():
    assert short("a" * 500, 10) == "a" * 9 + "…"
    assert short("abc", 10) == "abc"
