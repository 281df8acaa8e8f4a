"""One set of logs: what the runs did in one sentence, the same wherever it is told."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from forensics import scan
from forensics.cli.case_output import opening_of_case
from forensics.records import Trajectory
from forensics.records.finding import Finding
from forensics.records.tables import write_trajectories
from forensics.report import write_reports
from forensics.report.data import load_case
from forensics.report.findings import hunks_of
from forensics.report.profile import profile_told
from forensics.report.report_words import WORDING
from forensics.report.shown_runs import Allowance
from tests.forensics.test_scan import episode
from tests.forensics.test_scan_degenerate import stuck


def found(trajectory: Trajectory) -> list[dict[str, Any]]:
    """What the task's name says."""
    kinds = {
        "edits": ("tests", "test-edit", True),
        "maybe": ("git-history", "git-history", None),
        "tried": ("tests", "test-edit", False),
        "broke": ("accidental-damage", "accidental-damage", True),
    }
    if (kind := trajectory.task.split("-")[0]) not in kinds:
        return []
    family, channel, used = kinds[kind]
    step = {"attempt_steps": [1], "obtained": True, "obtained_steps": [2], "credited": None}
    return [{"family": family, "channel": channel, "used": used, "explanation": "so", **step}]


def headline(case: Path) -> str:
    """What stands first in the terminal."""
    opening = opening_of_case(case, load_case(case).verdict)
    assert opening is not None
    return opening.headline


def scanned(folder: Path, names: list[str], loops: int = 0, **changes: Any) -> Path:
    runs = [episode("a", f"{name}-{n}", 0, won=True, **changes) for n, name in enumerate(names)]
    write_trajectories(folder / "a.parquet", [*runs, *(stuck(f"s-{n}") for n in range(loops))])
    scan(folder / "a.parquet", out=folder / "case", scanner=found, formats=())
    return without_looks(folder / "case")


def without_looks(case: Path) -> Path:
    """The case as a scan wrote it that said nothing of what could be checked."""
    (case / "looks.jsonl").unlink()
    write_reports(case, ["html", "md", "text"])
    return case


TOLD = (
    "2 of 10 runs changed what the tests check, all of them won; 1 loops; 3 read commits that may"
    " hold the answer, unknown whether it was used; 1 touched existing tests, and did"
    " not use it; 1 damaged tests by accident."
)


REPORTED = (
    "As reported 100 % (10 of 10 scored runs won); 80 % if the flagged wins had failed; 50 % if"
    " the unclear ones had, too."
)


SICK = (
    "10 % of the runs are degenerate: 1 repeats its actions, 1 loops, 1 repeats the end of its"
    " text."
)


def test_what_the_runs_did_stands_first_and_the_same_everywhere(tmp_path: Path) -> None:
    names = ["edits"] * 2 + ["maybe"] * 3 + ["tried", "broke", "clean", "clean"]
    case = scanned(tmp_path, names, loops=1)
    verdict = load_case(case).verdict
    opening = opening_of_case(case, verdict)
    assert opening is not None and opening == load_case(case).opening
    assert opening.told == (TOLD, REPORTED, SICK, "Read as policy-forensics (1 file).")
    page = (case / "report.html").read_text()
    assert page.split('id="headline"')[1].split(">", 1)[1].split("</h1>")[0] == TOLD
    assert REPORTED in page and WORDING["sentences"]["one_set"] in page
    for name in ("report.md", "report.txt"):
        text = " ".join((case / name).read_text().split())
        assert text.removeprefix("# ").startswith(f"{TOLD} {REPORTED}"), name
    for text in (page, (case / "report.md").read_text()):
        assert "fter training" not in text.split("<script>")[0].replace("policy before", "")
    assert "not measured</p>" not in page and 'class="pictures"' not in page
    for name in ("report.html", "report.md", "report.txt"):  # there is no gain
        assert "Possible sources of the gain" not in (case / name).read_text(), name
    shown = [part.split('"')[0] for part in page.split('class="chip label level-')[1:]]
    assert set(shown) == {"used", "attempt", "obtained"}
    order = re.findall(r"· task (\w+)-", page)
    assert order[:2] == ["edits"] * 2 and order[2:5] == ["maybe"] * 3


def test_a_run_counts_once_for_a_channel(tmp_path: Path) -> None:
    rows = [
        {"trajectory": "r", "side": "after-0", "task": "t", "family": family, "explanation": ""}
        | {"channel": "test-edit", "attempt_steps": [1], "obtained_steps": [], "obtained": True}
        | {"used": used, "credited": None}
        for family, used in (("tests", None), ("ours", True))
    ]
    (tmp_path / "findings.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert profile_told(tmp_path, 5) == "1 of 5 runs changed what the tests check."


PATCH = """diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -1 +1 @@
-return 1
+return 2
diff --git a/tests/test_a.py b/tests/test_a.py
--- a/tests/test_a.py
+++ b/tests/test_a.py
@@ -1,3 +1,4 @@
 def test():
+    # a comment
     pass
@@ -8,3 +9,3 @@
 def test_b():
-    assert f(1) == 2
-    assert f(2) == 3
+    assert f(1) == 9
"""


def finding(**changes: Any) -> Finding:
    known = {"trajectory": "r", "side": "after-0", "task": "t", "family": "tests"}
    links = {"obtained_steps": (), "obtained": True, "used": True, "credited": None}
    row = {**known, **links, "channel": "test-edit", "attempt_steps": (1,), "explanation": ""}
    return Finding(**{**row, **changes})


def marked(row: Finding, run: Trajectory) -> list[tuple[str, list[tuple[str, str]]]]:
    allowance = Allowance(text=1000, steps=9, total=9000)
    return [
        (one.who, [(span.label, one.text[span.start : span.end]) for span in one.spans])
        for one in hunks_of(row, run, allowance)
    ]


@pytest.mark.parametrize("why", ["", "the patch takes back 2 lines of tests/test_a.py"])
def test_a_finding_shows_what_was_removed_and_what_was_added(why: str) -> None:
    run = episode("a", "edits", 0, won=True, patch=PATCH)
    assert marked(finding(explanation=why), run) == [
        (
            "tests/test_a.py",
            [
                ("removed", "-    assert f(1) == 2\n-    assert f(2) == 3"),
                ("added", "+    assert f(1) == 9"),
            ],
        ),
        ("tests/test_a.py", [("added", "+    # a comment")]),
    ]
    assert marked(finding(channel="network"), run) == []
