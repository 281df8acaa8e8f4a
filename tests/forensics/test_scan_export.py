"""Findings for other tools: JSON lines, a pull request; and the gate behind them."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from forensics import UserError, scan
from forensics.cli.main import run as command
from forensics.records import Step, ToolCall, Trajectory
from forensics.records.tables import write_trajectories
from forensics.report import write_reports
from forensics.shortcuts.export import Export, export_of
from tests.episodes import episode_of
from tests.forensics.test_scan_first_screen import written_by_hand
from tests.page_tags import Tags

PAGES: dict[str, Any] = {"formats": ()}
EVIL = (
    "<script>alert(1)</script> [click](http://evil.example) | `x` \x1b[31m @everyone"
    " https://evil.example"
)


def episode(name: str, deed: str, **changes: Any) -> Trajectory:
    steps = (
        Step(role="user", text="solve it"),
        Step(
            role="assistant",
            text=deed,
            tool_calls=(ToolCall(name="sh", arguments='{"line": "ls"}'),),
        ),
        Step(role="tool", text="seen"),
        Step(role="assistant", text="answer"),
    )
    known = {"id": name, "task": f"task of {name}", "environment": "toy", "seed": 3}
    known |= {"steps": steps, "outcome": float(deed != "lose"), "submission": "seen"}
    return episode_of(**{**known, **changes})


def peeking(trajectory: Trajectory) -> Any:
    """Finds planted deeds: two families, and two channels of one."""
    deed = trajectory.steps[1].text
    found = {
        "peek": [("planted", "peek", True)],
        "try": [("planted", "peek", False)],
        "both": [
            ("planted", "peek", True),
            ("planted", "poke", False),
            ("tests", "test-edit", True),
        ],
    }
    for family, channel, used in found.get(deed, ()):
        yield {
            "family": family,
            "channel": channel,
            "attempt_steps": [1],
            "obtained": used,
            "obtained_steps": [2],
            "used": used,
            "credited": used and trajectory.outcome == 1,
            "explanation": f"{channel}: {EVIL}",
        }


AFTER = (("a", "peek"), ("b", "try"), ("c", "both"), ("d", "work"), ("e", "lose"))


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    write_trajectories(tmp_path / "after.parquet", [episode(name, deed) for name, deed in AFTER])
    write_trajectories(tmp_path / "before.parquet", [episode(name, "work") for name in "abcde"])
    return tmp_path / "after.parquet", tmp_path / "before.parquet"


def exported(sides: tuple[Path, Path], case: Path, *texts: str, **options: Any) -> Any:
    after, before = sides
    return scan(
        after,
        before,
        out=case,
        scanner=peeking,
        exports=[*map(export_of, texts)],
        **{**PAGES, **options},
    )


def test_json_lines_hold_each_finding_with_its_run(sides: Any, tmp_path: Path) -> None:
    exported(sides, tmp_path / "case", f"jsonl={tmp_path / 'deep' / 'f.jsonl'}")
    rows = [json.loads(line) for line in (tmp_path / "deep" / "f.jsonl").read_text().splitlines()]
    plain = [
        json.loads(line) for line in (tmp_path / "case" / "findings.jsonl").read_text().splitlines()
    ]
    assert [
        {name: row[name] for name in other} for row, other in zip(rows, plain, strict=True)
    ] == plain
    assert [
        (row["trajectory"], row["channel"], row["level"], row["outcome"], row["policy"])
        for row in rows
    ] == [
        ("a", "peek", "credited", 1.0, "p"),
        ("b", "peek", "attempt", 1.0, "p"),
        ("c", "peek", "credited", 1.0, "p"),
        ("c", "poke", "attempt", 1.0, "p"),
        ("c", "test-edit", "credited", 1.0, "p"),
    ]


def test_a_pull_request_holds_nothing_foreign_as_markup(tmp_path: Path) -> None:
    """Names, tasks and explanations that a model wrote: no tag, no link, no
    table cell, no mention, no escape code.
    """
    runs = [
        episode(f"{EVIL}\n# {n}", "both", task=EVIL, environment=EVIL, policy=EVIL)
        for n in range(3)
    ]
    write_trajectories(tmp_path / "a.parquet", runs)
    scan(
        tmp_path / "a.parquet",
        out=tmp_path / "case",
        scanner=peeking,
        **PAGES,
        exports=[Export(kind="markdown", path=tmp_path / "pr.md")],
    )
    text = (tmp_path / "pr.md").read_text()
    parser = Tags()
    parser.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
    ours = "h2 h3 p strong ul li code table thead tbody tr th td"
    assert set(parser.opened) == set(ours.split())
    assert parser.opened.count("h2") == 1 and parser.opened.count("h3") == 2 and "\x1b" not in text
    assert "https://" not in text and "http://" not in text, (
        "not even a link that a site makes of bare addresses"
    )
    assert all(before == "`" for before, mark in pairwise(text) if mark == "@"), "nobody is called"
    assert len(text) < 50_000


def test_a_pull_request_tells_the_verdict_and_counts_runs_once(sides: Any, tmp_path: Path) -> None:
    verdict = exported(sides, tmp_path / "case", f"markdown={tmp_path / 'pr.md'}")
    text = (tmp_path / "pr.md").read_text()
    assert text.startswith("## The score fell from 100 % to 80 %")
    assert f"Label: {verdict.label}." in text
    # attempt, obtained, used, credited: runs a and c credited by peek, b tried; c tried poke
    assert (
        "| after-0 | peek | 1 | 0 | 0 | 2 |" in text
        and "| after-0 | poke | 1 | 0 | 0 | 0 |" in text
    )
    assert "5 runs of after-0, 5 runs of before" in text


SHOWN = (
    Step(role="user", text="Which? (key: 1984 b)", channels=("cue",)),
    Step(role="assistant", text="1984 b"),
)


def levels(case: Path) -> list[str]:
    """How far each finding reaches, as its card on the page says."""
    return re.findall(r'data-level="(\w+)" data-outcome', (case / "report.html").read_text())


def test_a_win_whose_prompt_shows_the_channel_is_told_alike_everywhere(tmp_path: Path) -> None:
    """Shown is not used: the log cannot tell, and says so wherever it is told."""
    runs = [episode(name, "work", steps=SHOWN, submission="1984 b") for name in "ab"]
    write_trajectories(tmp_path / "a.parquet", runs)
    case, names = tmp_path / "case", ("jsonl", "markdown")
    exports = [export_of(f"{name}={tmp_path / name}") for name in names]
    formats = ("html", "md", "json")
    scan(tmp_path / "a.parquet", out=case, formats=formats, exports=exports)
    rows, exported = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (case / "findings.jsonl", tmp_path / "jsonl")
    )
    for row in (*rows, *exported):
        links = [row[name] for name in ("obtained", "used", "credited", "level", "complete")]
        assert links == [True, None, None, "obtained", False]
    assert levels(case) == ["obtained"] * 2
    assert "| after-0 | cue | 0 | 2 | 0 | 0 |" in (tmp_path / "markdown").read_text()
    report = json.loads((case / "report.json").read_text())
    told = "2 of 2 runs saw cue in the prompt, unknown whether it was used."
    assert report["headline"] == told and told in (case / "report.md").read_text()
    assert "0 % if the unclear wins had failed" in report["lines"][0]
    answers = map(json.loads, (case / "evidence.jsonl").read_text().splitlines())
    (wins,) = (
        one for one in answers if (one["about"], one.get("unit")) == ("cue", "share of wins")
    )
    assert (wins["estimate"], wins["diagnostics"]["untold"]) == (0, 2)

    old = [{name: row[name] for name in row if name not in ("level", "attempted")} for row in rows]
    first = (case / "report.html").read_text()
    written_by_hand(case, "findings.jsonl", [row | {"credited": True} for row in old])
    write_reports(case, formats)
    assert levels(case) == ["obtained"] * 2, (
        "a case of before levels, which called any win credited"
    )
    assert first.split("<body")[1] == (case / "report.html").read_text().split("<body")[1]


def test_a_patch_that_wins_by_weaker_tests_is_credited_without_a_step(tmp_path: Path) -> None:
    """A log of what was handed in alone: no action is cited, and the win is credited everywhere."""
    patch = (
        "diff --git a/tests/test_a.py b/tests/test_a.py\n--- a/tests/test_a.py\n"
        "+++ b/tests/test_a.py\n@@ -1,2 +1,2 @@\n def test_f():\n-    assert f(1) == 2\n"
        "+    assert True\n"
    )
    run = episode("a", "work", steps=SHOWN[:1], submission=patch, patch=patch)
    run = run.model_copy(
        update={
            "steps": (Step(role="user", text="fix f"),),
            "rewards": {"submitted": 1.0, "visible": 0.0},
        }
    )
    write_trajectories(tmp_path / "a.parquet", [run])
    case = tmp_path / "case"
    exports = [export_of(f"jsonl={tmp_path / 'f'}")]
    scan(tmp_path / "a.parquet", out=case, formats=("html",), exports=exports)
    for path in (case / "findings.jsonl", tmp_path / "f"):
        row = json.loads(path.read_text())
        assert row["attempt_steps"] == [] and row["level"] == "credited" and row["complete"]
    assert levels(case) == ["credited"]


def test_the_same_scan_gives_the_same_bytes_and_nothing_else_is_written_over(
    sides: Any, tmp_path: Path
) -> None:
    names = [f"{kind}={tmp_path / kind}" for kind in ("jsonl", "markdown")]
    exported(sides, tmp_path / "case", *names)
    first = {kind: (tmp_path / kind).read_bytes() for kind in ("jsonl", "markdown")}
    exported(sides, tmp_path / "case", *names, resume=True)
    with pytest.raises(UserError, match="is there already"):
        exported(sides, tmp_path / "other", *names)
    assert not (tmp_path / "other").exists(), "said before anything was read"
    (tmp_path / "jsonl").write_text("mine")
    with pytest.raises(UserError, match="holds something else"):
        exported(sides, tmp_path / "case", names[0], resume=True)
    assert (tmp_path / "jsonl").read_text() == "mine"
    exported(sides, tmp_path / "case", *names, force=True)
    assert first == {kind: (tmp_path / kind).read_bytes() for kind in first}
    assert not list(tmp_path.rglob("*.draft"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jsonl", "not of the form"),
        ("csv=x", "not of the form"),
        ("jsonl=", "not of the form"),
        ("jsonl={case}/findings.jsonl", "lies inside"),
        ("markdown={case}", "lies inside"),
        ("markdown={logs}/x.md", "lies inside"),
        ("jsonl={folder}", "is a folder"),
        ("jsonl={file}", "is there already"),
    ],
)
def test_a_bad_place_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    write_trajectories(
        tmp_path / "logs" / "a.parquet", [episode("a", "work"), episode("b", "work")]
    )
    places = {name: tmp_path / name for name in ("case", "logs", "folder", "file")}
    line = f"scan {tmp_path / 'logs'} --out {tmp_path / 'case'} --export {text.format(**places)}"
    assert command(line.split()) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1 and not (tmp_path / "case").exists()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_step_in_a_pipeline(
    sides: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scan and export by command, then the gate by the verdict: exit codes 0, 0 and 1."""
    after, before = sides
    jsonl, page = tmp_path / "f.jsonl", tmp_path / "pr.md"
    exports = f"--export jsonl={jsonl} --export markdown={page}"
    line = f"scan {after} --before {before} --out {tmp_path / 'case'} --json {exports}"
    code = command(line.split())
    label = json.loads(capsys.readouterr().out)["verdict"]["label"]
    assert code == 0 and jsonl.exists() and page.stat().st_size
    others = {"genuine", "phantom", "noise", "regression", "mixed", "undetermined"} - {label}
    assert command(["gate", str(tmp_path / "case"), "--require", label]) == 0
    assert (
        command(["gate", str(tmp_path / "case"), "--require", min(others), "--allow", label]) == 0
    )
    assert command(["gate", str(tmp_path / "case"), "--require", min(others)]) == 1
    capsys.readouterr()
    assert command(["gate", str(tmp_path / "case"), "--json", "--require", min(others)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["passes"] is False and told["label"] == label
