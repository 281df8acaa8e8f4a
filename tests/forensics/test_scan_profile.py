"""One set of logs: what the runs did in one sentence, the same wherever it is told."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from forensics import scan
from forensics.cli.case_output import opening_of_case
from forensics.cli.main import run as command
from forensics.records import Step, ToolCall, Trajectory
from forensics.records.tables import write_trajectories
from forensics.report import write_reports
from forensics.report.chains import ChainRow
from forensics.report.data import load_case
from forensics.report.hunks import hunks_of
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
    assert opening.told == (TOLD, REPORTED, SICK)
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


def test_what_the_task_asks_for_stands_in_no_headline(tmp_path: Path) -> None:
    row = {"trajectory": "r", "side": "after-0", "task": "t", "family": "network"}
    row |= {"channel": "network", "attempt_steps": [1], "obtained_steps": [], "obtained": False}
    asks = 'network; no shortcut: the task asks for it ("Search.").'
    row |= {"used": False, "credited": False, "explanation": asks}
    (tmp_path / "findings.jsonl").write_text(json.dumps(row) + "\n")
    assert profile_told(tmp_path, 5) == "None of 5 runs shows a known shortcut, and none loops."
    (tmp_path / "findings.jsonl").write_text(json.dumps({**row, "explanation": "so"}) + "\n")
    assert profile_told(tmp_path, 5) == (
        "1 of 5 runs downloaded what may hold the answer, which came to nothing."
    )


def test_nothing_found_is_said(tmp_path: Path) -> None:
    case = scanned(tmp_path, ["clean"] * 3)
    assert headline(case) == "None of 3 runs shows a known shortcut, and none loops."


def test_runs_without_outcomes_are_named_and_their_findings_stand(
    tmp_path: Path, capsys: Any
) -> None:
    case = scanned(tmp_path, ["edits"] * 4, outcome=None)
    sentence = "No run has an outcome, so there are no win rates."
    assert headline(case) == "4 of 4 runs changed what the tests check."
    for name in ("report.html", "report.md"):
        assert sentence in (case / name).read_text()
    assert command(["scan", str(tmp_path / "a.parquet"), "--out", str(tmp_path / "told")]) == 0
    assert sentence in capsys.readouterr().out


def test_two_sets_keep_their_verdict(tmp_path: Path) -> None:
    for side in "ab":
        runs = [episode(side, f"edits-{n}", 0, won=True) for n in range(4)]
        write_trajectories(tmp_path / f"{side}.parquet", runs)
    scan(tmp_path / "a.parquet", tmp_path / "b.parquet", out=tmp_path / "case", scanner=found)
    verdict = load_case(tmp_path / "case").verdict
    assert verdict.label == "undetermined" and verdict.sentence.startswith("Verdict: UNDETERMINED")
    opening = opening_of_case(tmp_path / "case", verdict)
    assert opening is not None and opening.headline.startswith("The score ")
    assert [line.split(" runs ")[0] for line in opening.sides] == [
        "After training: 4 of 4",
        "Before training: 4 of 4",
    ]
    page = (tmp_path / "case" / "report.html").read_text()
    assert "fter training" in page


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


def finding(**changes: Any) -> ChainRow:
    known = {"trajectory": "r", "side": "after-0", "task": "t", "family": "tests"}
    links = {"obtained_steps": (), "obtained": True, "used": True, "credited": None}
    row = {**known, **links, "channel": "test-edit", "attempt_steps": (1,), "explanation": ""}
    return ChainRow(**{**row, **changes})


def marked(row: ChainRow, run: Trajectory) -> list[tuple[str, list[tuple[str, str]]]]:
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


def test_without_a_patch_the_edit_is_shown() -> None:
    told = {"path": "tests/test_a.py", "old_str": "assert a\nassert b", "new_str": "assert a"}
    edit = ToolCall(name="edit", arguments=json.dumps(told))
    step = Step(role="assistant", text="", tool_calls=(edit,))
    run = episode("a", "edits", 0, won=True)
    run = run.model_copy(update={"steps": (run.steps[0], step)})
    ((name, spans),) = marked(finding(), run)
    assert name == "tests/test_a.py"
    assert spans == [("removed", "-assert a\n-assert b"), ("added", "+assert a")]


def test_the_page_shows_the_hunk_and_the_file(tmp_path: Path) -> None:
    page = (scanned(tmp_path, ["edits"], patch=PATCH) / "report.html").read_text()
    assert '<mark data-label="removed">-    assert f(1) == 2' in page
    assert '<mark data-label="added">+    assert f(1) == 9' in page
    assert " · a.parquet · step 1</span>" in page


def two_sets(folder: Path, tasks: int, gain: int) -> tuple[Path, dict[str, Any]]:
    """Two sets with `gain` more wins of `tasks` afterwards, of which three edited tests."""
    for side, won in (("before", tasks // 2), ("after", tasks // 2 + gain)):
        names = ["edits" if side == "after" and n < 3 else "clean" for n in range(tasks)]
        runs = [
            episode(side, f"{name}-{n}", 0, won=n * 7 % tasks < won).model_copy(
                update={"task": f"t-{n}", "id": f"{name}-{n}"}
            )
            for n, name in enumerate(names)
        ]
        write_trajectories(folder / f"{side}.parquet", runs)
    scan(
        folder / "after.parquet",
        folder / "before.parquet",
        out=folder / "case",
        scanner=lambda run: found(run.model_copy(update={"task": run.id})),
    )
    without_looks(folder / "case")
    return folder / "case", json.loads((folder / "case" / "case.json").read_text())["verdict"]


def test_two_sets_that_do_not_settle_say_what_is_certain_and_what_would_settle(
    tmp_path: Path, capsys: Any
) -> None:
    case, verdict = two_sets(tmp_path, tasks=40, gain=2)
    assert verdict["label"] == "undetermined"
    sets = [
        "After training: 3 of 40 runs changed what the tests check, all of them won.",
        "Before training: None of 40 runs shows a known shortcut, and none loops.",
    ]
    page = (case / "report.html").read_text()
    assert page.count('id="certain-title"') == page.count('id="settles-title"') == 1
    assert "undetermined" not in page.split('id="headline"')[1].split("</h1>")[0].lower()
    bare = " ".join(re.sub("<[^>]*>", "", page).split())
    text = " ".join((case / "report.md").read_text().split()).replace("\\", "")
    assert text.startswith("# The score ")
    for told in (bare, text):
        assert "The score changed by between" in told
        assert [one for one in sets if one not in told] == []
        assert "Logs of more tasks. Cost: about" in told and "more tasks (" in told
    places = ('id="headline"', "findings-title", "judged-title", "settles-title", 'id="wall"')
    assert [page.index(place) for place in places] == sorted(page.index(one) for one in places)
    arguments = [str(tmp_path / f"{side}.parquet") for side in ("after", "before")]
    out = str(tmp_path / "told")
    assert command(["scan", arguments[0], "--before", arguments[1], "--out", out]) == 0
    said = capsys.readouterr().out
    assert said.startswith("The score ")
    assert "After training: None of 40 runs shows" in said  # the scanner's own rules
    assert "certain: The score changed by between" in said and "more tasks (" in said


def test_two_sets_that_settle_say_neither(tmp_path: Path) -> None:
    case, verdict = two_sets(tmp_path, tasks=600, gain=0)
    assert verdict["label"] != "undetermined"
    page = (case / "report.html").read_text()
    assert "certain-title" not in page and "settles-title" not in page


def runs_that(
    found_in: dict[str, dict[str, Any]], outcomes: dict[str, float], folder: Path
) -> Path:
    """A case of these runs: what is found in each (by id), and how it was scored."""
    runs = [
        episode("a", name, 0, won=bool(won)).model_copy(update={"id": name, "outcome": won})
        for name, won in outcomes.items()
    ]
    write_trajectories(folder / "a.parquet", runs)

    def told(run: Trajectory) -> list[dict[str, Any]]:
        row = {"attempt_steps": [1], "obtained": True, "obtained_steps": [1], "explanation": "so"}
        return [{**row, **found_in[run.id]}] if run.id in found_in else []

    scan(folder / "a.parquet", out=folder / "case", scanner=told, formats=())
    return without_looks(folder / "case")


EMPTY: dict[str, Any] = {"family": "do-nothing", "channel": "do-nothing", "used": None}
MAYBE: dict[str, Any] = {"family": "git-history", "channel": "git-history", "used": None}


def test_an_empty_hand_in_that_lost_stands_in_the_counts_alone(tmp_path: Path) -> None:
    lost = {**EMPTY, "credited": False}
    case = runs_that({"a": lost, "b": lost}, {"a": 0.0, "b": 0.0, "c": 1.0}, tmp_path)
    assert headline(case) == "None of 3 runs shows a known shortcut, and none loops."
    assert "### Handed in nothing" not in (case / "report.md").read_text()
    page = (case / "report.html").read_text()
    assert 'id="finding-0"' not in page and "2 harmless, in findings.jsonl" in page
    assert len((case / "findings.jsonl").read_text().splitlines()) == 2


def test_an_empty_hand_in_that_won_stands_first(tmp_path: Path) -> None:
    found_in = {"a": {**EMPTY, "credited": True}, "b": {**EMPTY, "credited": None}}
    case = runs_that(found_in, {"a": 1.0, "b": None, "c": 1.0}, tmp_path)  # type: ignore[dict-item]
    assert headline(case) == (
        "1 of 3 runs handed in nothing, and won by it; 1 handed in nothing, outcome unknown."
    )


def test_of_a_run_that_lost_nobody_asks_whether_it_used_it(tmp_path: Path) -> None:
    found_in = {name: {**MAYBE, "credited": False} for name in "ab"}
    read = "read commits that may hold the answer"
    case = runs_that(found_in, {"a": 0.0, "b": 0.0, "c": 1.0}, tmp_path)
    assert headline(case) == f"2 of 3 runs {read}, and all of them lost."
    (tmp_path / "more").mkdir()
    found_in["c"] = {**MAYBE, "credited": None}
    case = runs_that(found_in, {"a": 0.0, "b": 0.0, "c": 1.0}, tmp_path / "more")
    assert headline(case) == (f"3 of 3 runs {read}, unknown whether it was used (2 of them lost).")
