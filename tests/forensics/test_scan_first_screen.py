"""The first screen of a scan: every status is told, the same everywhere, and silence is never
sold as a finding.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from forensics.report import write_reports
from forensics.report.data import load_case
from forensics.report.look_counts import looks_json, read_looks
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


def test_the_quoted_code_is_on_the_card(tmp_path: Path) -> None:
    case = scanned(tmp_path, ["edits"])
    row = json.loads((case / "findings.jsonl").read_text())
    row["evidence"] = {"path": "solve.py", "line": 3, "quote": "os._exit(0) # <b>"}
    written_by_hand(case, "findings.jsonl", [row])
    write_reports(case, ["html", "md"])
    page = (case / "report.html").read_text()
    assert "<code>solve.py</code>, line 3" in page and "<pre>os._exit(0) # &lt;b&gt;</pre>" in page
    assert "os._exit(0)" in (case / "report.md").read_text()


TALK, NO_FILES = "a conversation without actions", "tools without files or a shell"


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
