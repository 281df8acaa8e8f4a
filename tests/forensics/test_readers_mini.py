"""mini-swe-agent trajectories, by hand after its sources, and the published ones."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, mini_sweagent, read_logs
from forensics.readers.submission import benchmark_outcome, submission_of
from forensics.records import Step, ToolCall, Trajectory
from tests.forensics.reader_files import DATA, damaged, survives
from tests.forensics.reader_fuzz import mutated

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
VERSION_1 = {
    "info": {"exit_status": "Submitted", "submission": PATCH, "model_stats": {"api_calls": 2},
             "mini_version": "1.15.0", "config": {"model": {"model_name": "org/model"}}},
    "messages": TALK, "trajectory_format": "mini-swe-agent-1", "instance_id": "org__repo-7",
}  # fmt: skip
STEPS = (
    Step(role="system", text="You can use a shell."),
    Step(role="user", text="Fix it."),
    Step(role="assistant", text=ASK),
    Step(role="tool", text="<returncode>0</returncode>\n<output>\nf.py</output>"),
    Step(role="assistant", text=HAND_IN),
    Step(role="tool", text=PATCH),
)
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


def test_version_1_with_the_benchmarks_report_beside(tmp_path: Path) -> None:
    write(tmp_path, {"patch_exists": True, "resolved": True}, "reports/org__repo-7.report.json")
    assert only(write(tmp_path, VERSION_1)) == Trajectory(
        id="org__repo-7",
        task="org__repo-7",
        policy="org/model",
        environment="mini-swe-agent",
        seed=0,
        steps=STEPS,
        rewards={"resolved": 1.0},
        outcome=1.0,
        submission="b = 2",
        patch=PATCH,
        end="terminated",
        end_reason="Submitted",
    )


def test_a_bare_list_of_messages(tmp_path: Path) -> None:
    found = only(write(tmp_path, TALK))
    assert (found.task, found.policy, found.outcome, found.steps) == (
        "org__repo-7",
        "unknown",
        None,
        STEPS,
    )
    assert (found.submission, found.patch, found.end) == ("b = 2", PATCH, "terminated")
    unfinished = only(write(tmp_path, TALK[:4]))
    assert (unfinished.submission, unfinished.end) == (None, "errored")


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


def test_a_person_who_speaks_after_a_tool_call_stays_one(tmp_path: Path) -> None:
    found = only(write(tmp_path, version_2(ASK_TOOL, {"role": "user", "content": "Stop!"}, EXIT)))
    assert found.steps[3] == Step(role="user", text="Stop!")


def test_version_2_without_tool_calls(tmp_path: Path) -> None:
    asked = {"role": "assistant", "content": "```mswea_bash_command\nls -la\n```",
             "extra": {"actions": [{"command": "ls -la"}]}}  # fmt: skip
    found = only(write(tmp_path, version_2(asked, {"role": "user", "content": "f.py"}, EXIT)))
    assert found.steps[2] == Step(
        role="assistant", text="```mswea_bash_command\nls -la\n```", tool_calls=(BASH,)
    )
    assert found.steps[3] == Step(role="tool", text="f.py")


def test_version_2_of_the_responses_api(tmp_path: Path) -> None:
    asked = {
        "object": "response",
        "extra": {"actions": [{"command": "ls -la"}]},
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "I look."}],
            },
            {
                "type": "function_call",
                "call_id": "c",
                "name": "bash",
                "arguments": '{"command": "ls -la"}',
            },
        ],
    }
    answer = {
        "type": "function_call_output",
        "call_id": "c",
        "output": "f.py",
        "extra": {"returncode": 0},
    }
    found = only(write(tmp_path, version_2(asked, answer, EXIT)))
    assert found.steps[2].role == "assistant" and found.steps[2].tool_calls == (BASH,)
    assert found.steps[2].text.endswith("I look.") and "Hm." in found.steps[2].text
    assert found.steps[3:] == (Step(role="tool", text="f.py"),)


@pytest.mark.parametrize(
    "status, expected",
    [
        ("LimitsExceeded", ("truncated", "LimitsExceeded", None)),
        ("TimeExceeded", ("truncated", "TimeExceeded", None)),
        ("RuntimeError", ("errored", "RuntimeError", None)),
        ("Submitted", ("terminated", "Submitted", "")),
        ("", ("errored", "the log does not say how the run ended", None)),
    ],
)
def test_endings_where_nothing_was_handed_in(tmp_path: Path, status: str, expected: Any) -> None:
    found = only(write(tmp_path, version_2(exit_status=status, submission="")))
    assert (found.end, found.end_reason, found.submission) == expected and found.outcome is None


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


def test_broken_files_are_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    write(tmp_path, VERSION_1)
    (tmp_path / "a.traj.json").write_text(
        '{"info": {"exit_status": "Submitted"}, "messages": [{"role": "us'
    )
    write(tmp_path, {"info": {}, "messages": 3}, "b.traj.json")
    write(tmp_path, {}, "preds.json")
    found = list(read_logs(tmp_path))
    assert [item.path.name for item in found if isinstance(item, Unreadable)] == [
        "a.traj.json",
        "b.traj.json",
    ]
    assert len([item for item in found if isinstance(item, Trajectory)]) == 1 and len(found) == 3


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_files_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    value = data.draw(st.sampled_from([VERSION_1, TALK, version_2(ASK_TOOL, TALK[3], EXIT)]))
    path = tmp_path_factory.getbasetemp() / "bad.traj.json"
    survives(mini_sweagent.reader, path, data.draw(damaged(json.dumps(value).encode())))
    survives(mini_sweagent.reader, path, json.dumps(data.draw(mutated(value))).encode())


@pytest.mark.skipif(not DATA.is_dir(), reason="the logs of other projects are not here")
def test_published_runs() -> None:
    found = list(read_logs(DATA / "gemini3_miniswe"))
    runs = {run.task: run for run in found if isinstance(run, Trajectory)}
    assert len(found) == len(runs) == 33
    with (DATA / "gemini3_miniswe" / "results_summary.csv").open() as file:
        rows = {row["instance_id"]: row for row in csv.DictReader(file)}
    assert rows and all(
        runs[name].outcome == float(row["resolved"] == "True") for name, row in rows.items()
    )
    assert all(runs[name].turns == int(row["n_steps"]) for name, row in rows.items())
    for task, run in runs.items():
        original = json.loads((DATA / "gemini3_miniswe" / f"{task}.traj.json").read_text())
        assert [step.text for step in run.steps] == [
            message["content"] for message in original["messages"]
        ]
        assert (
            run.patch == original["info"]["submission"]
            and run.policy == "google/gemini-3-pro-preview"
        )
    (bare,) = read_logs(DATA / "miniswe_testdata")
    assert (
        isinstance(bare, Trajectory)
        and bare.turns == 10
        and "division(a: float" in str(bare.submission)
    )
