"""mini-swe-agent trajectories, by hand after its sources, and the published ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.readers.submission import benchmark_outcome, submission_of

PATCH = """diff --git a/f.py b/f.py
index 1..2 100644
--- a/f.py
+++ b/f.py
@@ -1,3 +1,3 @@
 a
-b = 1
+b = 2
 c
"""


def write(folder: Path, value: Any, name: str = "org__repo-7.traj.json") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))
    return path


def test_what_is_handed_in() -> None:
    assert submission_of("42", finished=True) == ("42", None)
    assert submission_of(None, finished=True) == (None, None)
    rename = "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"
    assert submission_of(rename, finished=True) == ("", rename)
    assert submission_of(PATCH.replace("\n", "\r\n"), finished=False)[0] == "b = 2"


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("results.json", {"resolved_ids": ["t"]}, 1.0),
        ("results.json", {"unresolved_ids": ["t"]}, 0.0),
        ("results.json", {"submitted_ids": ["t"], "error_ids": ["t"]}, None),
        ("results.json", {"resolved": []}, None),
        ("report.json", {"t": {"resolved": False}}, 0.0),
        ("t.report.json", {"resolved": "maybe"}, None),
        ("t/report.json", {"t": {"resolved": True}}, 1.0),
        ("results.json", [1], None),
        ("lab-model.run-1.json", {"resolved_instances": 1, "resolved_ids": ["t"]}, 1.0),
        ("lab-model.run-1.json", {"resolved_ids": ["t"]}, None),  # anybody's
    ],
)
def test_verdicts_beside(tmp_path: Path, name: str, content: Any, expected: float | None) -> None:
    write(tmp_path, content, name)
    assert benchmark_outcome(tmp_path / "t.traj", "t") == expected


def test_no_verdict_is_looked_up_outside_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path, {"resolved": True}, "t.report.json")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert benchmark_outcome(tmp_path / "a" / "t.traj", "t") == 1.0
    assert benchmark_outcome(tmp_path / "a" / "b" / "t.traj", "../../t") is None
