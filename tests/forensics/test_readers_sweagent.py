"""SWE-agent trajectories, by hand after its sources, and its own demonstrations."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, read_logs, sweagent
from forensics.readers.content import HEAD
from forensics.records import Step, ToolCall, Trajectory
from tests.forensics.reader_files import DATA, damaged, survives
from tests.forensics.reader_fuzz import mutated

PATCH = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n-x\n+y\n+z\n"
LOOK, SUBMIT = "I look.\n```\nls -F\n```", "Done.\n```\nsubmit\n```"
TURNS = [
    {
        "action": "ls -F\n",
        "observation": "f\n",
        "response": LOOK,
        "thought": "I look.\n",
        "state": '{"open_file": "n/a", "working_dir": "/r"}',
    },
    {
        "action": "submit\n",
        "observation": PATCH,
        "response": SUBMIT,
        "thought": "Done.\n",
        "state": "{}",
    },
]
PROMPT = [
    {"role": "system", "content": "SETTING", "agent": "primary"},
    {"role": "user", "content": "A demonstration", "is_demo": True, "agent": "primary"},
    {"role": "assistant", "content": "```\nrm -rf demo\n```", "is_demo": True, "agent": "primary"},
    {"role": "user", "content": "ISSUE", "agent": "primary"},
]
INFO = {"exit_status": "submitted", "submission": PATCH, "model_stats": {"api_calls": 2}}
OLD = {
    "environment": "swe_main",
    "trajectory": TURNS,
    "info": INFO,
    "history": [
        *PROMPT,
        {"role": "assistant", "content": LOOK, "thought": "I look.\n", "action": "ls -F\n"},
        {"role": "user", "content": "f\n(Open file: n/a)"},
        {"role": "assistant", "content": SUBMIT, "thought": "Done.\n", "action": "submit\n"},
    ],
}
SHELL = ToolCall(name="bash", arguments=json.dumps({"command": "ls -F\n"}))
CALL = {
    "id": "c",
    "type": "function",
    "function": {"name": "create", "arguments": '{"filename":"g"}'},
}
NEW_TURN = {
    "action": "create g",
    "observation": "[File: g]",
    "response": "I make it.",
    "thought": "I make it.",
    "execution_time": 0.2,
    "state": {"open_file": "/r/g"},
    "query": [*PROMPT[:1], PROMPT[3]],
    "extra_info": {},
}
NEW = {
    "trajectory": [NEW_TURN],
    "info": {**INFO, "exit_status": "submitted (exit_cost)"},
    "environment": "main",
    "history": [
        PROMPT[0],
        {
            "role": "user",
            "content": [{"type": "text", "text": "ISSUE"}],
            "message_type": "observation",
        },
        {
            "role": "assistant",
            "content": "I make it.",
            "thought": "I make it.",
            "action": "create g",
            "message_type": "action",
            "tool_calls": [CALL],
            "thinking_blocks": [{"type": "thinking", "thinking": "Hm."}],
        },
        {"role": "tool", "content": "[File: g]", "tool_call_ids": ["c"]},
    ],
    "replay_config": json.dumps(
        {"agent": {"model": {"name": "gpt-4o"}}, "problem_statement": {"id": "org__repo-1"}}
    ),
}


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))
    return path


def test_before_1_0(tmp_path: Path) -> None:
    folder = tmp_path / "gpt4__set__default__t-0.00__p-0.95__c-3.00__install-1"
    (found,) = read_logs(write(folder / "org__repo-9.traj", OLD))
    assert found == Trajectory(
        id="org__repo-9",
        task="org__repo-9",
        policy="gpt4",
        environment="swe-agent",
        seed=0,
        outcome=None,
        submission="y\nz",
        patch=PATCH,
        end="terminated",
        end_reason="submitted",
        steps=(
            Step(role="system", text="SETTING"),
            Step(role="user", text="A demonstration"),
            Step(role="user", text="```\nrm -rf demo\n```"),
            Step(role="user", text="ISSUE"),
            Step(role="assistant", text=LOOK, tool_calls=(SHELL,)),
            Step(role="tool", text="f\n"),
            Step(
                role="assistant",
                text=SUBMIT,
                tool_calls=(ToolCall(name="bash", arguments=json.dumps({"command": "submit\n"})),),
            ),
            Step(role="tool", text=PATCH),
        ),
    )


def test_after_1_1_with_tool_calls(tmp_path: Path) -> None:
    (found,) = read_logs(write(tmp_path / "a" / "a.traj", NEW))
    assert isinstance(found, Trajectory)
    assert (found.task, found.policy, found.end) == ("org__repo-1", "gpt-4o", "truncated")
    assert found.steps[1:] == (
        Step(role="user", text="ISSUE"),
        Step(role="assistant", text="<think>\nHm.\n</think>\nI make it.",
             tool_calls=(ToolCall(name="create", arguments='{"filename":"g"}'),)),
        Step(role="tool", text="[File: g]"),
    )  # fmt: skip


@pytest.mark.parametrize("key", ["query", "messages"])
def test_without_a_history_the_prompt_is_the_first_query(tmp_path: Path, key: str) -> None:
    turn = {
        **{name: value for name, value in NEW_TURN.items() if name != "query"},
        key: NEW_TURN["query"],
    }
    (found,) = read_logs(write(tmp_path / "a.traj", {"trajectory": [turn], "info": {}}))
    assert isinstance(found, Trajectory)
    assert [step.text for step in found.steps] == ["SETTING", "ISSUE", "I make it.", "[File: g]"]
    assert (
        found.steps[2].tool_calls[0].arguments == '{"command": "create g"}'
        and found.end == "errored"
    )


def test_the_harness_hands_in_after_a_failure(tmp_path: Path) -> None:
    last = {
        "action": "",
        "observation": PATCH,
        "response": "",
        "thought": "Exit due to cost limit",
        "state": {},
    }
    run = {
        **OLD,
        "trajectory": [TURNS[0], last],
        "info": {**INFO, "exit_status": "submitted (exit_cost)"},
    }
    (found,) = read_logs(write(tmp_path / "a.traj", run))
    assert isinstance(found, Trajectory) and found.turns == 1
    assert [step.role for step in found.steps[-3:]] == ["assistant", "tool", "tool"]


def test_calls_are_found_behind_a_turn_that_the_history_left_out(tmp_path: Path) -> None:
    repeated = {
        "action": "bad",
        "observation": "error",
        "response": "I fail.",
        "thought": "I fail.",
    }
    (found,) = read_logs(write(tmp_path / "a.traj", {**NEW, "trajectory": [repeated, NEW_TURN]}))
    assert isinstance(found, Trajectory)
    assert [call.name for step in found.steps for call in step.tool_calls] == ["bash", "create"]


def test_attempts_are_runs_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"resolved_ids": ["a"]}')
    (tmp_path / "a.pred").write_text("{}")
    run = {"attempts": [OLD, {"info": {}}, {**OLD, "info": {"exit_status": "exit_format"}}], **OLD}
    write(tmp_path / "a.traj", run)
    first, broken, last = read_logs(tmp_path)
    assert isinstance(first, Trajectory) and isinstance(last, Trajectory)
    assert (first.id, first.sample, first.outcome) == ("a", 0, 1.0)
    assert isinstance(broken, Unreadable) and broken.where == "attempt 1"
    assert (last.id, last.sample, last.end, last.end_reason) == ("a#2", 2, "errored", "exit_format")


def test_a_file_without_turns_is_told(tmp_path: Path) -> None:
    found = list(read_logs(write(tmp_path / "a.traj", {"info": {}, "trajectory": "gone"})))
    assert [item.reason for item in found if isinstance(item, Unreadable)] == [
        "the run has no trajectory"
    ]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_files_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    value = data.draw(st.sampled_from([OLD, NEW, {"attempts": [OLD, NEW]}]))
    path = tmp_path_factory.getbasetemp() / "bad.traj"
    survives(sweagent.reader, path, data.draw(damaged(json.dumps(value).encode())))
    survives(sweagent.reader, path, json.dumps(data.draw(mutated(value))).encode())


@pytest.mark.skipif(not DATA.is_dir(), reason="the logs of other projects are not here")
def test_its_own_demonstrations() -> None:
    runs = [run for run in read_logs(DATA / "sweagent_demos") if isinstance(run, Trajectory)]
    paths = list((DATA / "sweagent_demos").rglob("*.traj"))
    assert len(runs) == len(paths) == 11 and len({run.id for run in runs}) == 11
    assert all(run.end == "terminated" and run.submission for run in runs)
    originals = [json.loads(path.read_text()) for path in paths]
    assert sorted(run.turns for run in runs) == sorted(
        len(original["trajectory"]) for original in originals
    )
    names = {call.name for run in runs for step in run.steps for call in step.tool_calls}
    assert {"bash", "create", "insert", "submit"} <= names
    assert {run.policy for run in runs} == {"unknown", "replay", "gpt-4o", "gpt4"}


@pytest.mark.parametrize("name", ["x.traj", "x.json", "x.traj.gz"])
def test_a_first_turn_that_ends_behind_the_head_is_recognised(tmp_path: Path, name: str) -> None:
    turn = {**NEW_TURN, "observation": "o" * (3 * HEAD)}
    content = json.dumps({**NEW, "trajectory": [turn]}, sort_keys=True).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    (found,) = read_logs(path)
    assert isinstance(found, Trajectory) and found.environment == "swe-agent"


def test_reports_that_gave_an_outcome_are_no_logs_that_failed(tmp_path: Path) -> None:
    write(tmp_path / "org__repo-1" / "org__repo-1.traj", NEW)
    write(tmp_path / "results.json", {"resolved_ids": ["org__repo-1"]})
    write(tmp_path / "reports" / "org__repo-1.report.json", {"resolved": True})
    write(tmp_path / "org__repo-2" / "org__repo-2.traj", NEW)
    write(tmp_path / "org__repo-2" / "report.json", {"org__repo-1": {"resolved": False}})
    first, second = read_logs(tmp_path)
    assert isinstance(first, Trajectory) and first.outcome == 1
    assert isinstance(second, Trajectory) and second.outcome == 0
