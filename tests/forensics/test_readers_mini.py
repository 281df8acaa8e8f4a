"""mini-swe-agent trajectories, by hand after its sources, and the published ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.readers import read_logs
from forensics.readers.submission import benchmark_outcome, submission_of
from forensics.records import Step, ToolCall, Trajectory

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
ASK = "THOUGHT: look\n\n```bash\nls -la\n```"
HAND_IN = (
    "```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git add -A && git diff --cached\n```"
)
TALK = [
    {"role": "system", "content": "You can use a shell."},
    {"role": "user", "content": "Fix it."},
    {"role": "assistant", "content": ASK, "extra": {"response": {}}},
    {"role": "user", "content": "<returncode>0</returncode>\n<output>\nf.py</output>"},
    {"role": "assistant", "content": HAND_IN},
    {"role": "user", "content": PATCH},
]
BASH = ToolCall(name="bash", arguments='{"command": "ls -la"}')
ASK_TOOL = {
    "role": "assistant",
    "content": "I look.",
    "extra": {"actions": [{"command": "ls -la", "tool_call_id": "c"}]},
    "tool_calls": [
        {
            "id": "c",
            "type": "function",
            "function": {"name": "bash", "arguments": '{"command": "ls -la"}'},
        }
    ],
}
EXIT = {
    "role": "exit",
    "content": PATCH,
    "extra": {"exit_status": "Submitted", "submission": PATCH},
}


def version_2(*messages: Any, **info: Any) -> dict[str, Any]:
    return {
        "info": {"config": {"model": {"model_name": "m"}}, "mini_version": "2.4.6", **info},
        "messages": [*TALK[:2], *messages],
        "trajectory_format": "mini-swe-agent-1.1",
    }


def write(folder: Path, value: Any, name: str = "org__repo-7.traj.json") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))
    return path


def only(path: Path) -> Trajectory:
    (found,) = read_logs(path)
    assert isinstance(found, Trajectory), found
    return found


def test_version_2_with_tool_calls(tmp_path: Path) -> None:
    answer = {
        "role": "tool",
        "tool_call_id": "c",
        "content": '{"returncode": 0}',
        "extra": {"returncode": 0},
    }
    found = only(
        write(tmp_path, version_2(ASK_TOOL, answer, {"role": "user", "content": "Go on!"}, EXIT))
    )
    assert found.steps[2:] == (
        Step(role="assistant", text="I look.", tool_calls=(BASH,)),
        Step(role="tool", text='{"returncode": 0}'),
        Step(role="user", text="Go on!"),
    )
    assert (found.end, found.submission, found.patch) == ("terminated", "b = 2", PATCH)


def test_version_2_without_tool_calls(tmp_path: Path) -> None:
    asked = {"role": "assistant", "content": "```mswea_bash_command\nls -la\n```",
             "extra": {"actions": [{"command": "ls -la"}]}}  # fmt: skip
    found = only(write(tmp_path, version_2(asked, {"role": "user", "content": "f.py"}, EXIT)))
    assert found.steps[2] == Step(
        role="assistant", text="```mswea_bash_command\nls -la\n```", tool_calls=(BASH,)
    )
    assert found.steps[3] == Step(role="tool", text="f.py")


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
