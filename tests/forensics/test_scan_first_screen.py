"""The first screen of a scan: every status is told, the same everywhere, and silence is never
sold as a finding.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from forensics import scan
from forensics.cli.main import run as command
from forensics.records.tables import write_trajectories
from forensics.report import write_reports
from forensics.report.data import load_case
from forensics.report.first_screen import looks_told
from forensics.report.look_counts import Looks, looks_json, read_looks
from forensics.report.profile import unscored_told
from tests.forensics.test_scan import episode
from tests.forensics.test_scan_profile import scanned

UNREAD, MISSING = "actions in a form nobody reads", "no submission"
FAMILIES = ("tests", "git-history", "do-nothing")


def look(trajectory: str, found: tuple[str, ...] = (), **silent: str) -> dict[str, Any]:
    """A row in which `could_not` or `no_use` stops all families that found nothing, `some` one."""
    rest = [name for name in FAMILIES if name not in found]
    row: dict[str, Any] = {"side": "after-0", "trajectory": trajectory, "task": "t"}
    row |= {"policy": "a", "file": None, "hand_in": None, "found": [*found], "not_found": rest}
    empty: dict[str, Any] = {"could_not_look": {}, "does_not_apply": {}}
    if "some" in silent:
        empty["could_not_look"] = {rest[0]: silent["some"]}
    for key, status in (("could_not", "could_not_look"), ("no_use", "does_not_apply")):
        if key in silent:
            empty[status] = dict.fromkeys(rest, silent[key])
    looked = [name for name in rest if not any(name in one for one in empty.values())]
    return {**row, **empty, "not_found": looked}


def with_looks(case: Path, rows: list[dict[str, Any]]) -> Path:
    """The case as if its scan had said these statuses, drawn again."""
    written_by_hand(case, "looks.jsonl", rows)
    write_reports(case, ["html", "md", "text", "json"])
    return case


def written_by_hand(case: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Another table of the case, whose checksums then go."""
    (case / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = json.loads((case / "case.json").read_text())
    kept = {key: value for key, value in said.items() if key not in ("files", "checksum")}
    (case / "case.json").write_text(json.dumps(kept))


@pytest.fixture
def every_status(tmp_path: Path) -> Path:
    names = ["edits"] * 3 + ["maybe"] + ["clean"] * 8
    case = scanned(tmp_path, names)
    found = [look(f"r{n}", ("tests",)) for n in range(3)] + [look("r3", ("git-history",))]
    silent = [look(f"u{n}", could_not=UNREAD) for n in range(3)]
    silent += [look("m", could_not=MISSING), look("p", some="output cut")]
    rest = [look("n"), look("s", no_use="a single answer"), look("c")]
    return with_looks(case, [*found, *silent, *rest])


TOLD = (
    "3 of 12 runs changed what the tests check, all of them won; 1 read commits that may hold the"
    " answer, unknown whether it was used; 4 runs could not be checked (3: actions in a"
    " form nobody reads; 1: no submission); 1 run could not be checked for changed tests"
    " (output cut)."
)
REPORTED = (
    "As reported 100 % (12 of 12 scored runs won); 75 % if the flagged wins had failed; 67 % if the"
    " unclear ones had, too."
)


def test_one_sentence_opens_page_markdown_text_and_json(every_status: Path) -> None:
    opening = load_case(every_status).opening
    assert opening is not None and opening.told[:2] == (TOLD, REPORTED)
    page = (every_status / "report.html").read_text()
    assert page.split('id="headline"')[1].split(">", 1)[1].split("</h1>")[0] == TOLD
    assert REPORTED in page
    for name in ("report.md", "report.txt"):
        text = " ".join((every_status / name).read_text().replace("\\", "").split())
        assert text.removeprefix("# ").startswith(f"{TOLD} {REPORTED}"), name
    report = json.loads((every_status / "report.json").read_text())
    assert report["headline"] == TOLD and report["lines"][0] == REPORTED
    looks = report["looks"]["after-0"]
    assert looks == looks_json(read_looks(every_status)["after-0"])
    assert (
        looks["runs_not_looked_at"]
        == 5
        == sum(
            bool(json.loads(line)["could_not_look"])
            for line in (every_status / "looks.jsonl").read_text().splitlines()
        )
    )


def test_the_table_counts_each_status_of_each_family(every_status: Path) -> None:
    rows = [json.loads(line) for line in (every_status / "looks.jsonl").read_text().splitlines()]
    families = looks_json(read_looks(every_status)["after-0"])["families"]
    for name in FAMILIES:
        counts = families[name]
        assert counts["found"] == sum(name in row["found"] for row in rows)
        assert counts["not_found"] == sum(name in row["not_found"] for row in rows)
        for status in ("could_not_look", "does_not_apply"):
            assert sum(counts[status].values()) == sum(name in row[status] for row in rows)
        total = counts["found"] + counts["not_found"]
        total += sum(counts["could_not_look"].values()) + sum(counts["does_not_apply"].values())
        assert total == len(rows)
    for name in ("report.html", "report.md"):
        text = (every_status / name).read_text()
        assert "Shortcuts checked" in text and "changed tests" in text and UNREAD in text
    (line,) = (
        line
        for line in (every_status / "report.md").read_text().splitlines()
        if line.startswith("| answers from git history")
    )
    assert "| 1 | 6 | 4 (3: actions in a form nobody reads; 1: no submission) | 1 " in line


SILENT = {
    "None of 3 runs could be checked (actions in a form nobody reads).": [
        look(f"u{n}", could_not=UNREAD) for n in range(3)
    ],
    "The one run that could be checked shows no known shortcut and does not loop; 2 runs"
    " could not be checked (1: actions in a form nobody reads; 1: no submission).": [
        look("u", could_not=UNREAD),
        look("m", could_not=MISSING),
        look("n"),
    ],
    "None of 3 runs shows a known shortcut, and none loops; 2 runs could not be checked for"
    " changed tests (output cut).": [
        look("a", some="output cut"),
        look("b", some="output cut"),
        look("c"),
    ],
}


@pytest.mark.parametrize("told", SILENT)
def test_silence_is_never_sold_as_a_finding(tmp_path: Path, told: str) -> None:
    case = with_looks(scanned(tmp_path, ["clean"] * 3), SILENT[told])
    opening = load_case(case).opening
    assert opening is not None and opening.headline == told
    for name in ("report.html", "report.md", "report.txt"):
        text = (case / name).read_text().split("<style>")[0] + (case / name).read_text().split(
            "</style>"
        )[-1]
        assert "No shortcut was found" not in text and told in " ".join(
            text.replace("\\", "").split()
        )
        assert not re.search(r"(?<![\d.])0 % of", text) and not re.search(r"\b0\.0 %", text)
        assert "no shortcut found" not in text, name


def test_the_terminal_and_its_json_say_the_same(tmp_path: Path, capsys: Any) -> None:
    runs = [episode("a", f"t{n}", 0, won=n < 2) for n in range(4)]
    write_trajectories(tmp_path / "a.parquet", runs)
    arguments = ["scan", str(tmp_path / "a.parquet"), "--out"]
    assert command([*arguments, str(tmp_path / "one")]) == 0
    told = capsys.readouterr().out
    assert command([*arguments, str(tmp_path / "two"), "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)
    assert told.startswith("\n".join([stated["headline"], *stated["lines"]]))
    assert stated["looks"]["after-0"]["runs"] == 4
    report = (tmp_path / "one" / "report.md").read_text().replace("\\", "")
    assert report.startswith(f"# {stated['headline']}\n")


def test_the_quoted_code_is_on_the_card(tmp_path: Path) -> None:
    case = scanned(tmp_path, ["edits"])
    row = json.loads((case / "findings.jsonl").read_text())
    row["evidence"] = {"path": "solve.py", "line": 3, "quote": "os._exit(0) # <b>"}
    written_by_hand(case, "findings.jsonl", [row])
    write_reports(case, ["html", "md"])
    page = (case / "report.html").read_text()
    assert "<code>solve.py</code>, line 3" in page and "<pre>os._exit(0) # &lt;b&gt;</pre>" in page
    assert "os._exit(0)" in (case / "report.md").read_text()


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("a single answer", "They are single answers without code: only empty answers could be"),
        ("a reason of its own", "In them only empty answers could be checked;"),
    ],
)
def test_runs_to_which_little_applies_are_named_for_what_they_are(
    tmp_path: Path, reason: str, told: str
) -> None:
    row = look("a", no_use=reason)
    row["does_not_apply"].pop("do-nothing")
    row["not_found"] = ["do-nothing"]
    case = with_looks(scanned(tmp_path, ["clean"] * 2), [row, {**row, "trajectory": "b"}])
    opening = load_case(case).opening
    assert opening is not None and told in opening.headline


TALK, NO_FILES = "a conversation without actions", "tools without files or a shell"


def bare(trajectory: str, reason: str, *looked: str) -> dict[str, Any]:
    """A run to which most families do not apply, and that these looked at."""
    row = look(trajectory, no_use=reason)
    for name in looked:
        row["does_not_apply"].pop(name)
    return {**row, "not_found": [*looked]}


def test_where_no_run_had_files_or_a_shell_that_stands_first(tmp_path: Path) -> None:
    rows = [bare(f"r{n}", NO_FILES, "git-history") for n in range(3)]
    talk = bare("t", TALK, "do-nothing")
    talk["does_not_apply"]["tests"] = "a single answer"
    case = with_looks(scanned(tmp_path, ["clean"] * 4), [*rows, talk])
    opening = load_case(case).opening
    assert opening is not None and opening.headline == (
        "None of 4 runs used files or a shell, so most known shortcuts do not apply; only answers"
        " from git history could be checked in 3, and empty answers in 1. None shows a known"
        " shortcut, and none loops."
    )
    with_looks(case, [*rows, look("c")])  # one had them
    opening = load_case(case).opening
    assert opening is not None and opening.headline == (
        "None of 4 runs shows a known shortcut, and none loops. 3 of the runs used neither files"
        " nor a shell: only answers from git history could be checked."
    )


def test_runs_without_files_count_however_many_kinds_look_at_them(tmp_path: Path) -> None:
    rows = [bare("a", NO_FILES, "tests", "git-history", "do-nothing"), look("c")]
    rows[0]["does_not_apply"] = {"leaks": NO_FILES}
    rows.append(bare("b", NO_FILES, "git-history"))
    case = with_looks(scanned(tmp_path, ["clean"] * 3), rows)
    opening = load_case(case).opening
    assert opening is not None and opening.headline.endswith(
        "2 of the runs used neither files nor a shell: only changed tests, answers from git history"
        " and empty answers could be checked in 1, and answers from git history in 1."
    )


def test_what_was_found_in_such_runs_stands_before_it(tmp_path: Path) -> None:
    rows = [bare(f"r{n}", NO_FILES, "git-history") for n in range(3)]
    case = with_looks(scanned(tmp_path, ["edits", "clean", "clean"]), rows)
    opening = load_case(case).opening
    assert opening is not None and opening.headline.startswith("1 of 3 runs changed what the tests")
    assert any(line.startswith("They used neither files nor a shell") for line in opening.lines)


def test_tools_that_nobody_can_read_are_named(tmp_path: Path) -> None:
    rows = [look("a", some="edits that cannot be followed"), look("b"), look("c")]
    rows[0]["unknown_tools"] = ["splice_region", "vcs"]
    rows[1]["unknown_tools"] = ["splice_region"]
    case = with_looks(scanned(tmp_path, ["clean"] * 3), rows)
    opening = load_case(case).opening
    assert opening is not None and opening.headline == (
        "None of 3 runs shows a known shortcut, and none loops; 1 run could not be checked for"
        " changed tests (edits that cannot be followed); 2 of 3 runs called tools that this scan"
        " cannot read (splice_region, vcs): their effects are unknown."
    )


def test_what_errored_and_what_has_no_outcome_are_told_apart(tmp_path: Path) -> None:
    ends = [(1.0, "terminated")] * 3 + [(None, "truncated")] * 2 + [(0.0, "errored")]
    runs = [
        episode("a", f"t{n}", 0, won=True).model_copy(update={"outcome": outcome, "end": end})
        for n, (outcome, end) in enumerate(ends)
    ]
    write_trajectories(tmp_path / "a.parquet", runs)
    scan(tmp_path / "a.parquet", out=tmp_path / "case", formats=())
    opening = load_case(tmp_path / "case").opening
    assert opening is not None and opening.lines[:2] == (
        "As reported 100 % (3 of 3 scored runs won).",
        "1 of 6 runs errored and 2 have no outcome: counted among findings, not in win rates.",
    )
    assert unscored_told(9, 8, 1).startswith("1 of 9 runs errored: counted")
    assert unscored_told(9, 8).startswith("1 of 9 runs has no outcome: counted")


def test_two_sets_that_share_no_task_say_so_and_what_each_did(tmp_path: Path, capsys: Any) -> None:
    for side in "ab":
        runs = [episode(side, f"{side}{n}", 0, won=True) for n in range(4)]
        write_trajectories(tmp_path / f"{side}.parquet", runs)
    paths = [str(tmp_path / f"{side}.parquet") for side in "ba"]
    out = str(tmp_path / "case")
    assert command(["scan", paths[0], "--before", paths[1], "--out", out]) == 0
    told = capsys.readouterr().out
    assert told.startswith("The two sets share no task, so there is no gain to compute.\n")
    assert "After training: None of 4 runs shows" in told and "Before training: None of 4" in told
    assert "There is no gain to judge." in told and "clause" not in told and "echo" not in told
    report = (tmp_path / "case" / "report.md").read_text()
    assert report.startswith("# The two sets share no task")


def test_without_a_score_on_one_side_that_is_the_reason(tmp_path: Path) -> None:
    for side, outcome in (("a", 1.0), ("b", None)):
        runs = [
            episode(side, f"t{n}", 0, won=True).model_copy(update={"outcome": outcome})
            for n in range(4)
        ]
        write_trajectories(tmp_path / f"{side}.parquet", runs)
    scan(tmp_path / "b.parquet", tmp_path / "a.parquet", out=tmp_path / "case", formats=())
    opening = load_case(tmp_path / "case").opening
    assert opening is not None
    assert opening.headline.startswith("No run after training has a score, so there is no gain")


def test_where_nobody_could_look_the_side_is_named() -> None:
    sides = {side: Looks() for side in ("before", "after-0")}
    for side, looks in sides.items():
        looks.add(look(side, could_not=UNREAD))
    names = "empty answers, answers from git history, changed tests: not checked in"
    assert [*looks_told(sides)] == [
        f"{names} 1 run {when} training ({UNREAD})" for when in ("before", "after")
    ]
    assert [*looks_told({"after-0": sides["after-0"]})] == [f"{names} 1 run ({UNREAD})"]


def test_a_trap_that_there_is_not_is_not_shown(tmp_path: Path) -> None:
    for side in "ab":
        runs = [episode(side, f"t{n}", k, won=bool(k)) for n in range(4) for k in range(2)]
        write_trajectories(tmp_path / f"{side}.parquet", runs)
    scan(tmp_path / "b.parquet", tmp_path / "a.parquet", out=tmp_path / "case")
    data = load_case(tmp_path / "case")
    assert data.answer("behaviour.echo_trap") is not None  # it is in the evidence
    for name in ("report.html", "report.md"):
        text = (tmp_path / "case" / name).read_text().lower()
        assert "no echo trap" not in text and "no collapse" not in text
        assert "behaviour · echo trap" not in text.split("not measured")[0]
