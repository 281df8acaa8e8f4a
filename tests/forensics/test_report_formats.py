"""Text, Markdown and JSON: what they must say, and that nothing foreign acts in them."""

import json
import re
import shlex

import pytest
from markdown_it import MarkdownIt

from forensics.records import Verdict
from forensics.records.files import read_findings
from forensics.report import load_case, render
from forensics.report.numbers import unit_of
from forensics.report.words import replay_command
from tests.forensics.report_case import CHANNEL, INPUTS, CasePlan, build_case, number
from tests.forensics.report_hostile import hostile_case

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@pytest.fixture(scope="module")
def phantom(tmp_path_factory):
    return build_case(tmp_path_factory.mktemp("phantom"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return hostile_case(tmp_path_factory.mktemp("hostile"))


def shell_words(command):
    return shlex.split(command.replace("\\\n", " "))  # as a shell joins lines


def one_line(text):
    return " ".join(text.split())


@pytest.mark.parametrize(
    "drop", [("genuine_gain", "phantom_gain"), ("gain", "genuine_gain", "phantom_gain")]
)
def test_a_missing_part_is_not_measured_and_never_zero(tmp_path, drop):
    folder = build_case(
        tmp_path / "case", CasePlan(label="undetermined", drop=drop, scrubbed=False, tasks=4)
    )
    text, markdown, page = (render(folder, [name])[name] for name in ("text", "md", "html"))
    names = {"gain": "Gain", "genuine_gain": "Genuine part", "phantom_gain": "Phantom part"}
    for field, name in names.items():
        missing = field in drop
        assert bool(re.search(rf"^{name} +not measured", text, re.M)) == missing
        assert (f"| {name} | not measured |" in markdown) == missing
        assert (f"{name}: not measured." in page) == missing
    report = json.loads(render(folder, ["json"])["json"])
    assert all(report["verdict"][field] is None for field in drop)


def test_logs_alone_and_several_seeds_are_said(tmp_path):
    alone = build_case(tmp_path / "alone", CasePlan(basis="logs", tasks=2))
    several = build_case(tmp_path / "several", CasePlan(seeds=3, tasks=2))
    for name in ("text", "md", "html"):
        first, second = (one_line(render(folder, [name])[name]) for folder in (alone, several))
        assert "From logs alone" in first and "From logs alone" not in second
        assert "training noise not measured" in first and "3 training seeds" in second
        assert "After training, seed 2" in second or name == "text"


def test_json_is_the_case_in_full(phantom):
    text = render(phantom, ["json"])["json"]
    report = json.loads(text)
    assert text.isascii()
    assert Verdict.model_validate(report["verdict"]) == load_case(phantom).verdict
    stored = {
        finding.id: finding.model_dump(mode="json")
        for finding in read_findings(phantom / "evidence.jsonl")
    }
    assert {finding.pop("id"): finding for finding in report["findings"]} == stored
    wins = {(row["side"], tuple(row["without"])): row["wins"] for row in report["runs"]}
    assert wins["after-0", ()] == 238 and wins["after-0", (CHANNEL,)] == 83


def test_the_replay_command_gives_back_the_inputs():
    after = [{**INPUTS["before"], "path": "it's; rm -rf $(x)"}, {**INPUTS["before"], "path": "b"}]
    words = shell_words(replay_command({**INPUTS, "after": after}))
    assert words[:2] == ["forensics", "investigate"]
    pairs = list(zip(words[2::2], words[3::2], strict=True))
    assert [value for name, value in pairs if name == "--after"] == ["it's; rm -rf $(x)", "b"]
    assert dict(pairs)["--before"] == "runs/base model"
    assert {value for name, value in pairs if name == "--env-option"} == {
        "channels=git-history",
        "grader=hidden",
        "world=capped",
    }
    assert (dict(pairs)["--seed"], dict(pairs)["--tasks"], dict(pairs)["--max-turn-tokens"]) == (
        "7",
        "60",
        "64",
    )


def test_hostile_text_cannot_drive_a_terminal(hostile):
    text = render(hostile, ["text"])["text"]
    assert {c for c in text if not c.isprintable()} == {"\n"}
    assert "\\x1b[31mred" in text and "[bold red]markup[/bold red]" in one_line(text)


def test_hostile_text_is_neither_html_nor_link_in_markdown(hostile):
    report = render(hostile, ["md"])["md"]
    assert {c for c in report if not c.isprintable()} == {"\n"}
    tokens = MARKDOWN.parse(report)
    inline = {child.type for token in tokens for child in token.children or ()}
    assert inline <= {"text", "code_inline", "strong_open", "strong_close", "softbreak"}
    blocks = {token.type.removesuffix("_open").removesuffix("_close") for token in tokens}
    table = {"table", "thead", "tbody", "tr", "th", "td"}
    assert blocks <= {"heading", "inline", "paragraph", "bullet_list", "list_item", "fence"} | table
    assert {int(token.tag[1]) for token in tokens if token.type == "heading_open"} <= {1, 2, 3}


def test_the_same_case_gives_the_same_bytes(tmp_path):
    folders = [build_case(tmp_path / name, CasePlan(tasks=4)) for name in ("one", "two")]
    first, second = (render(folder, ["md", "json", "html"]) for folder in folders)
    assert first == second


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.364, "score", "36.4 %"),
        (0.64, "score difference", "+64.0 points"),
        (-0.02, "score difference", "−2.0 points"),
        (0.97, "share of wins", "97.0 %"),
        (1.0, "1 = yes, 0 = no", "yes"),
        (0.0, "1 = yes, 0 = no", "no"),
        (-1.2, "turns", "−1.2"),
        (1234567.0, "tokens", "1.23e+06"),
        (1234.0, "tokens", "1,234"),
        (37.5, "score", "37.5"),
        (0.0, "bits", "0"),
        (-0.0001, "score difference", "0.0 points"),
    ],
)
def test_numbers_speak_their_unit(value, unit, shown):
    assert unit_of(number("q", value, None, unit=unit)).value(value) == shown
