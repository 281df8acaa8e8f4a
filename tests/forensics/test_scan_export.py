"""Findings for other tools: Inspect Scout's tables, JSON lines, a pull request;
and the gate behind them.
"""

import json
import os
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from forensics import UserError, scan
from forensics.cli.main import run as command
from forensics.records import Step, ToolCall, Trajectory
from forensics.records.tables import write_trajectories
from forensics.shortcuts.export import Export, export_of
from forensics.shortcuts.reviewer import Reviewer
from forensics.shortcuts.scout_export import SCHEMA, Tables, scanner_key
from tests.forensics.review_stub import reviewing, truthful

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
    return Trajectory(
        **{
            "id": name,
            "task": f"task of {name}",
            "policy": "p",
            "environment": "toy",
            "seed": 3,
            "steps": steps,
            "outcome": float(deed != "lose"),
            "end": "terminated",
            "submission": "seen",
            **changes,
        }
    )


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


def tables(scans: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Rows by (side, scanner)."""
    found = {}
    for folder in scans.glob("scan_id=*"):
        side = json.loads((folder / "_scan.json").read_text())["metadata"]["side"]
        for file in folder.glob("*.parquet"):
            found[side, file.stem] = pq.read_table(file).to_pylist()
    return found


def test_every_run_has_a_row_in_every_table_and_every_finding_has_its_own(
    sides: Any, tmp_path: Path
) -> None:
    exported(sides, tmp_path / "case", f"scout={tmp_path / 'scans'}")
    found = tables(tmp_path / "scans")
    assert {key for side, key in found if side == "before"} == {
        key for side, key in found if side == "after-0"
    }
    for (side, _), rows in found.items():
        assert {row["transcript_id"] for row in rows} == set("abcde")
        assert all(
            row["value"] is None and row["value_type"] == "null" for row in rows if side == "before"
        )
    planted = [
        (row["transcript_id"], row["label"], row["value"]) for row in found["after-0", "planted"]
    ]
    assert planted == [
        ("a", "peek", "credited"),
        ("b", "peek", "attempt"),
        ("c", "peek", "credited"),
        ("c", "poke", "attempt"),
        ("d", None, None),
        ("e", None, None),
    ]
    assert [row["value"] for row in found["after-0", "tests"]] == [
        None,
        None,
        "credited",
        None,
        None,
    ]
    marks = [row["uuid"] for rows in found.values() for row in rows]
    assert len(set(marks)) == len(marks), "a row is found again by its uuid"


def test_a_row_holds_the_run_its_messages_and_what_the_finding_cites(
    sides: Any, tmp_path: Path
) -> None:
    exported(sides, tmp_path / "case", f"scout={tmp_path / 'scans'}")
    rows = tables(tmp_path / "scans")["after-0", "planted"]
    row, clean = rows[0], rows[-1]
    assert (row["transcript_task_set"], row["transcript_task_id"], row["transcript_model"]) == (
        "toy",
        "task of a",
        "p",
    )
    assert (row["transcript_score"], row["transcript_success"], clean["transcript_success"]) == (
        "1.0",
        True,
        False,
    )
    messages = json.loads(row["input"])["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"] == [
        {"id": "call-1-0", "function": "sh", "arguments": {"line": "ls"}}
    ]
    references = json.loads(row["message_references"])
    assert [reference["id"] for reference in references] == [messages[1]["id"], messages[2]["id"]]
    assert all(reference["cite"] in row["explanation"] for reference in references)
    assert json.loads(row["metadata"])["used"] is True and row["transcript_message_count"] == 4
    assert (
        json.loads(clean["input"])["messages"] == []
        and json.loads(clean["message_references"]) == []
    )


def test_the_summary_counts_what_the_tables_hold(sides: Any, tmp_path: Path) -> None:
    exported(sides, tmp_path / "case", f"scout={tmp_path / 'scans'}")
    for folder in (tmp_path / "scans").glob("scan_id=*"):
        spec, summary = (
            json.loads((folder / name).read_text()) for name in ("_scan.json", "_summary.json")
        )
        assert f"scan_id={spec['scan_id']}" == folder.name and summary["complete"]
        assert (
            set(spec["scanners"])
            == set(summary["scanners"])
            == {file.stem for file in folder.glob("*.parquet")}
        )
        for name, counts in summary["scanners"].items():
            rows = pq.read_table(folder / f"{name}.parquet").to_pylist()
            flagged = {row["transcript_id"] for row in rows if row["value"] is not None}
            assert (counts["scans"], counts["results"]) == (5, len(flagged))


def test_a_lone_surrogate_is_spelled_out_and_the_rest_is_kept(tmp_path: Path) -> None:
    rows = [
        {"uuid": f"u{n}", "input": "{}", "explanation": text}
        for n, text in enumerate(("a \ud800 b", "plain"))
    ]
    with Tables(tmp_path, ["t"]) as written:
        for row in rows:
            written.add("t", row)
    found = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["explanation"] for row in found] == ["a \\ud800 b", "plain"] and [
        *found[0]
    ] == SCHEMA.names


@pytest.mark.parametrize(
    "family", ["../../etc", "a/b", ".", "", "x" * 300, "scan\x00", "git-history"]
)
def test_a_familys_name_is_a_file_name_or_becomes_one(family: str) -> None:
    key = scanner_key(family)
    assert key and not set(key) & set("/\\.\x00") and len(key) < 100
    assert (key == family) == (family == "git-history")
    assert scanner_key("a/b") != scanner_key("a_b") != scanner_key("a?b")


def test_many_long_runs_are_written_in_a_stream(tmp_path: Path) -> None:
    """More rows and letters than one row group takes; every flagged run's messages are its own."""
    long = "y" * 40_000
    runs = [
        episode(f"r{n}", "peek" if n % 3 == 0 else "work", submission=f"{n}", patch=long)
        for n in range(600)
    ]
    for place, run in enumerate(runs):
        prompt = Step(role="user", text=f"{run.id} {long}")
        runs[place] = run.model_copy(update={"steps": (prompt, *run.steps[1:])})
    write_trajectories(tmp_path / "a.parquet", runs)
    scan(
        tmp_path / "a.parquet",
        out=tmp_path / "case",
        scanner=peeking,
        **PAGES,
        exports=[Export(kind="scout", path=tmp_path / "scans")],
    )
    rows = tables(tmp_path / "scans")["after-0", "planted"]
    assert [row["transcript_id"] for row in rows] == [run.id for run in runs]
    for row in rows:
        messages = json.loads(row["input"])["messages"]
        assert (
            bool(messages)
            == (row["value"] == "credited")
            == (int(row["transcript_id"][1:]) % 3 == 0)
        )
        assert not messages or messages[0]["content"].startswith(f"{row['transcript_id']} ")
    (file,) = (tmp_path / "scans").glob("scan_id=*/planted.parquet")
    assert pq.ParquetFile(file).num_row_groups > 1


def test_json_lines_hold_each_finding_with_its_run_and_its_review(
    sides: Any, tmp_path: Path
) -> None:
    with reviewing(truthful("peek")) as server:
        exported(
            sides,
            tmp_path / "case",
            f"jsonl={tmp_path / 'deep' / 'f.jsonl'}",
            reviewer=Reviewer(url=server.url, model="judge"),
        )
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
    assert [row["review"]["answer"] for row in rows] == [True, False, False, False, False]
    assert rows[0]["review"]["model"] == "judge"


class Tags(HTMLParser):
    """The tags that a page opens."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.opened.append(tag)


def test_a_pull_request_holds_nothing_foreign_as_markup(tmp_path: Path) -> None:
    """Names, tasks and explanations that a model wrote: no tag, no link, no
    table cell, no mention, no escape code.
    """
    runs = [
        episode(f"{EVIL}\n# {n}", "both", task=EVIL, environment=EVIL, policy=EVIL)
        for n in range(3)
    ]
    write_trajectories(tmp_path / "a.parquet", runs)
    said = truthful("peek")
    with reviewing(lambda chat: f"{EVIL}\n{said(chat)}") as server:
        scan(
            tmp_path / "a.parquet",
            out=tmp_path / "case",
            scanner=peeking,
            **PAGES,
            reviewer=Reviewer(url=server.url, model=EVIL),
            exports=[Export(kind="markdown", path=tmp_path / "pr.md")],
        )
    text = (tmp_path / "pr.md").read_text()
    parser = Tags()
    parser.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
    ours = "h2 h3 p strong ul li code table thead tbody tr th td"
    assert set(parser.opened) == set(ours.split())
    assert parser.opened.count("h2") == 1 and parser.opened.count("h3") == 3 and "\x1b" not in text
    assert "https://" not in text and "http://" not in text, (
        "not even a link that a site makes of bare addresses"
    )
    assert all(before == "`" for before, mark in pairwise(text) if mark == "@"), "nobody is called"
    assert "Second reader" in text and len(text) < 50_000


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


def test_the_same_scan_gives_the_same_bytes_and_nothing_else_is_written_over(
    sides: Any, tmp_path: Path
) -> None:
    names = [f"{kind}={tmp_path / kind}" for kind in ("scout", "jsonl", "markdown")]
    exported(sides, tmp_path / "case", *names)
    first = {
        path: path.read_bytes()
        for kind in ("scout", "jsonl", "markdown")
        for path in [tmp_path / kind, *(tmp_path / kind).rglob("*")]
        if path.is_file()
    }
    assert len(first) > 20
    exported(sides, tmp_path / "case", *names, resume=True)
    with pytest.raises(UserError, match="is there already"):
        exported(sides, tmp_path / "other", *names)
    assert not (tmp_path / "other").exists(), "said before anything was read"
    (tmp_path / "jsonl").write_text("mine")
    with pytest.raises(UserError, match="holds something else"):
        exported(sides, tmp_path / "case", names[1], resume=True)
    assert (tmp_path / "jsonl").read_text() == "mine"
    scan_folder = next((tmp_path / "scout").glob("scan_id=*"))
    (scan_folder / "_errors.jsonl").write_text("mine")
    with pytest.raises(UserError, match="holds something else"):
        exported(sides, tmp_path / "case", names[0], resume=True)
    assert (scan_folder / "_errors.jsonl").read_text() == "mine"
    (tmp_path / "scout" / "scan_id=another").mkdir()
    exported(sides, tmp_path / "case", *names, force=True)
    assert (
        first == {path: path.read_bytes() for path in first}
        and (tmp_path / "scout" / "scan_id=another").is_dir()
    )
    assert not list(tmp_path.rglob("*.draft"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scout", "not of the form"),
        ("csv=x", "not of the form"),
        ("jsonl=", "not of the form"),
        ("jsonl={case}/findings.jsonl", "lies inside"),
        ("markdown={case}", "lies inside"),
        ("markdown={logs}/x.md", "lies inside"),
        ("jsonl={folder}", "is a folder"),
        ("scout={file}", "is a file"),
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
    arguments = [
        "scan",
        str(tmp_path / "logs"),
        "--out",
        str(tmp_path / "case"),
        "--export",
        text.format(**places),
    ]
    assert command(arguments) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1 and not (tmp_path / "case").exists()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_step_in_a_pipeline(
    sides: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scan and export by command, then the gate by the verdict: exit codes 0, 0 and 1."""
    after, before = sides
    code = command(
        [
            "scan",
            str(after),
            "--before",
            str(before),
            "--out",
            str(tmp_path / "case"),
            "--json",
            "--export",
            f"jsonl={tmp_path / 'f.jsonl'}",
            "--export",
            f"markdown={tmp_path / 'pr.md'}",
            "--export",
            f"scout={tmp_path / 'scans'}",
        ]
    )
    label = json.loads(capsys.readouterr().out)["verdict"]["label"]
    assert code == 0 and (tmp_path / "f.jsonl").exists() and (tmp_path / "pr.md").stat().st_size
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


LOAD = """
import json, sys
from inspect_scout import scan_list, scan_results_df
from inspect_scout._transcript.types import Transcript
told = {}
for status in scan_list(sys.argv[1]):
    found = scan_results_df(status.location, exclude_columns=[])
    for name, frame in found.scanners.items():
        for text, references in zip(frame["input"], frame["message_references"]):
            ids = {message.id for message in Transcript.model_validate_json(text).messages}
            assert {reference["id"] for reference in json.loads(references)} <= ids
        values = [str(value) for value in frame["value"].dropna()]
        side = found.spec.metadata["side"]
        told[side + " " + name] = [found.complete, len(frame), values, list(frame.columns)]
print(json.dumps(told))
"""


@pytest.mark.skipif(
    "SCOUT_PYTHON" not in os.environ, reason="SCOUT_PYTHON names no python that has inspect_scout"
)
def test_stock_inspect_scout_loads_the_tables(sides: Any, tmp_path: Path) -> None:
    exported(sides, tmp_path / "case", f"scout={tmp_path / 'scans'}")
    done = subprocess.run(
        [os.environ["SCOUT_PYTHON"], "-c", LOAD, str(tmp_path / "scans")],
        capture_output=True,
        text=True,
        env={**os.environ, "SCOUT_SCANBUFFER_DIR": str(tmp_path / "buffer")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    # which Scout puts into `input`
    columns = [name for name in SCHEMA.names if name != "input_data"]
    assert told["after-0 planted"] == [
        True,
        6,
        ["credited", "attempt", "credited", "attempt"],
        columns,
    ]
    assert told["before planted"][:3] == [True, 5, []] and len(told) == 20
