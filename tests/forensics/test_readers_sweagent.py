"""SWE-agent trajectories, by hand after its sources, and its own demonstrations."""

import json
from pathlib import Path
from typing import Any

from forensics.readers import read_logs
from forensics.records import Step, ToolCall, Trajectory

PATCH = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n-x\n+y\n+z\n"
LOOK, SUBMIT = "I look.\n```\nls -F\n```", "Done.\n```\nsubmit\n```"
PROMPT = [
    {"role": "system", "content": "SETTING", "agent": "primary"},
    {"role": "user", "content": "A demonstration", "is_demo": True, "agent": "primary"},
    {"role": "assistant", "content": "```\nrm -rf demo\n```", "is_demo": True, "agent": "primary"},
    {"role": "user", "content": "ISSUE", "agent": "primary"},
]
INFO = {"exit_status": "submitted", "submission": PATCH, "model_stats": {"api_calls": 2}}
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
