"""OpenHands events and outputs of both generations, by hand after their sources."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, openhands, read_logs
from forensics.records import Step, ToolCall, Trajectory
from tests.forensics.reader_files import damaged, survives
from tests.forensics.reader_fuzz import mutated

PATCH = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n x\n+y\n"


def call(name: str, arguments: str, number: str) -> dict[str, Any]:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


RESPONSE = {
    "id": "r1",
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    call("execute_bash", '{"command": "ls"}', "c1"),
                    call("think", '{"thought": "Hm."}', "c2"),
                ],
            }
        }
    ],
}


def metadata(name: str, number: str) -> dict[str, Any]:
    return {
        "function_name": name,
        "tool_call_id": number,
        "model_response": RESPONSE,
        "total_calls_in_response": 2,
    }


EVENTS: list[dict[str, Any]] = [
    {"id": 0, "source": "agent", "action": "system", "args": {"content": "You are OpenHands"}},
    {"id": 1, "source": "user", "action": "message", "args": {"content": "Fix it."}},
    {"id": 2, "source": "user", "action": "recall", "args": {"query": "Fix it."}},
    {
        "id": 3,
        "source": "agent",
        "observation": "agent_state_changed",
        "content": "",
        "extras": {"agent_state": "running"},
    },
    {
        "id": 4,
        "source": "agent",
        "action": "run",
        "args": {"command": "ls", "thought": "I look."},
        "tool_call_metadata": metadata("execute_bash", "c1"),
    },
    {
        "id": 5,
        "source": "agent",
        "cause": 4,
        "observation": "run",
        "content": "f",
        "extras": {"command": "ls", "metadata": {"exit_code": 0}},
    },
    {
        "id": 6,
        "source": "agent",
        "action": "edit",
        "args": {"path": "f", "thought": "", "old_str": None},
    },
    {
        "id": 7,
        "source": "environment",
        "cause": 6,
        "observation": "edit",
        "content": "done",
        "extras": {},
    },
    {"id": 8, "source": "agent", "action": "finish", "args": {"final_thought": "ok"}},
]
STEPS = (
    Step(role="system", text="You are OpenHands"),
    Step(role="user", text="Fix it."),
    Step(
        role="assistant",
        text="I look.",
        tool_calls=(ToolCall(name="execute_bash", arguments='{"command": "ls"}'),),
    ),
    Step(role="tool", text="f\n[Command finished with exit code 0]"),
    Step(role="assistant", text="", tool_calls=(ToolCall(name="edit", arguments='{"path": "f"}'),)),
    Step(role="tool", text="done"),
    Step(
        role="assistant",
        text="",
        tool_calls=(ToolCall(name="finish", arguments='{"final_thought": "ok"}'),),
    ),
)
OUTPUT = {
    "instance_id": "org__repo-1", "instruction": "Fix it.", "history": EVENTS, "error": None,
    "test_result": {"git_patch": PATCH, "report": {"resolved": True, "error_eval": False}},
    "metadata": {"llm_config": {"model": "m"}, "dataset": "swe-bench", "max_iterations": 30},
}  # fmt: skip


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def act(name: str, arguments: str, number: str, response: str, thought: str = "") -> dict[str, Any]:
    return {
        "kind": "ActionEvent",
        "source": "agent",
        "thought": [text(thought)] if thought else [],
        "tool_name": name,
        "tool_call_id": number,
        "llm_response_id": response,
        "action": {},
        "tool_call": {"id": number, "name": name, "arguments": arguments, "origin": "completion"},
    }


NEW_EVENTS = [
    {
        "kind": "SystemPromptEvent",
        "source": "agent",
        "system_prompt": text("You are OpenHands"),
        "tools": [],
    },
    {
        "kind": "MessageEvent",
        "source": "user",
        "llm_message": {"role": "user", "content": [text("Fix it.")]},
    },
    act("terminal", '{"command": "ls"}', "c1", "r1", "I look."),
    act("terminal", '{"command": "pwd"}', "c2", "r1"),
    {
        "kind": "ObservationEvent",
        "source": "environment",
        "tool_name": "terminal",
        "tool_call_id": "c1",
        "observation": {
            "kind": "TerminalObservation",
            "content": [text("f")],
            "metadata": {"exit_code": 1},
        },
    },
    {
        "kind": "AgentErrorEvent",
        "source": "agent",
        "tool_name": "terminal",
        "error": "no such tool",
    },
    {"kind": "ConversationStateUpdateEvent", "source": "environment", "key": "x", "value": 1},
    act("finish", "{}", "c3", "r2"),
]


def write(path: Path, value: Any, lines: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, value)) + "\n" if lines else json.dumps(value))
    return path


def only(path: Path) -> Trajectory:
    (found,) = read_logs(path)
    assert isinstance(found, Trajectory), found
    return found


def test_a_row_of_an_output(tmp_path: Path) -> None:
    assert only(write(tmp_path / "output.jsonl", [OUTPUT], lines=True)) == Trajectory(
        id="org__repo-1",
        task="org__repo-1",
        policy="m",
        environment="swe-bench",
        seed=0,
        steps=STEPS,
        rewards={"outcome": 1.0},
        outcome=1.0,
        submission="y",
        patch=PATCH,
        end="terminated",
        end_reason="finish",
    )


def test_pairs_are_the_same_as_events(tmp_path: Path) -> None:
    pairs = [EVENTS[:2], EVENTS[2:4], EVENTS[4:6], EVENTS[6:8], [EVENTS[8]]]
    assert (
        only(write(tmp_path / "output.jsonl", [{**OUTPUT, "history": pairs}], lines=True)).steps
        == STEPS
    )


def test_calls_of_one_response_that_were_answered_one_by_one(tmp_path: Path) -> None:
    said = "f\n[Command finished with exit code 0]"
    told = {**EVENTS[5], "content": said}
    thinks = {"source": "agent", "action": "think", "args": {"thought": "Hm."},
              "tool_call_metadata": metadata("think", "c2")}  # fmt: skip
    logged = {"source": "environment", "observation": "think", "content": "logged", "extras": {}}
    found = only(write(tmp_path / "e.json", [*EVENTS[:5], told, thinks, logged]))
    assert [(step.role, [call.name for call in step.tool_calls]) for step in found.steps[2:]] == [
        ("assistant", ["execute_bash"]), ("tool", []), ("assistant", ["think"]), ("tool", []),
    ]  # fmt: skip
    assert found.steps[3].text == said and found.steps[4].text == ""


def test_events_of_the_new_generation(tmp_path: Path) -> None:
    row = {**OUTPUT, "history": NEW_EVENTS, "attempt": 2, "test_result": {"git_patch": ""},
           "metadata": {"llm": {"model": "n"}, "dataset": "d"}}  # fmt: skip
    found = only(write(tmp_path / "output.jsonl", [row], lines=True))
    assert found.steps == (
        Step(role="system", text="You are OpenHands"),
        Step(role="user", text="Fix it."),
        Step(
            role="assistant",
            text="I look.",
            tool_calls=(
                ToolCall(name="terminal", arguments='{"command": "ls"}'),
                ToolCall(name="terminal", arguments='{"command": "pwd"}'),
            ),
        ),
        Step(role="tool", text="f\n[Command finished with exit code 1]"),
        Step(role="tool", text="no such tool"),
        Step(role="assistant", text="", tool_calls=(ToolCall(name="finish", arguments="{}"),)),
    )
    assert (found.id, found.sample, found.policy, found.outcome) == ("org__repo-1#2", 1, "n", None)
    assert (found.submission, found.patch) == ("", None)


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"history": EVENTS[:8]}, ("truncated", "the run ends without a finish", 1.0)),
        (
            {"error": "Agent reached maximum iteration"},
            ("truncated", "Agent reached maximum iteration", 1.0),
        ),
        ({"error": "docker is gone", "test_result": {}}, ("errored", "docker is gone", None)),
        (
            {"test_result": {"report": {"resolved": False, "error_eval": True}}},
            ("terminated", "finish", None),
        ),
        ({"test_result": {}, "report": {"resolved": False}}, ("terminated", "finish", 0.0)),
    ],
)
def test_endings_and_outcomes(tmp_path: Path, changes: dict[str, Any], expected: Any) -> None:
    found = only(write(tmp_path / "output.jsonl", [{**OUTPUT, **changes}], lines=True))
    assert (found.end, found.end_reason, found.outcome) == expected


@pytest.mark.parametrize("lines", [False, True])
def test_a_file_of_events_is_one_run(tmp_path: Path, lines: bool) -> None:
    found = only(write(tmp_path / "org__repo-1" / "trajectory.json", EVENTS, lines))
    assert (found.task, found.steps, found.outcome, found.end) == (
        "org__repo-1",
        STEPS,
        None,
        "terminated",
    )


def test_a_folder_of_event_files_is_one_run(tmp_path: Path) -> None:
    for event in EVENTS:
        write(tmp_path / "s" / "events" / f"{event['id']}.json", event)
    write(tmp_path / "s" / "event_cache" / "0-9.json", EVENTS)
    (tmp_path / "s" / "events" / "3.json").write_text("{")
    (tmp_path / "s" / "events" / "2.json").write_text(json.dumps(EVENTS[2])[:-2])
    *broken, found = sorted(read_logs(tmp_path), key=lambda item: isinstance(item, Trajectory))
    assert isinstance(found, Trajectory) and found.steps == STEPS
    assert sorted(item.path.name for item in broken if isinstance(item, Unreadable)) == [
        "2.json",
        "3.json",
    ]
    for number, event in enumerate(NEW_EVENTS):
        write(tmp_path / "new" / "events" / f"event-{number:05d}-ab12.json", event)
    assert only(tmp_path / "new").end == "terminated"


def test_broken_lines_are_told_and_the_run_goes_on(tmp_path: Path) -> None:
    rows = [json.dumps(event) for event in EVENTS]
    (tmp_path / "e.jsonl").write_text("\n".join([*rows[:3], "{", '{"no": 1}', *rows[3:]]))
    *broken, found = read_logs(tmp_path / "e.jsonl")
    assert [item.where for item in broken if isinstance(item, Unreadable)] == ["line 4", "line 5"]
    assert isinstance(found, Trajectory) and found.steps == STEPS


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged_files_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows = data.draw(
        st.sampled_from([[OUTPUT, OUTPUT], EVENTS, NEW_EVENTS, [{**OUTPUT, "history": NEW_EVENTS}]])
    )
    lines = "\n".join(map(json.dumps, rows)).encode()
    path = tmp_path_factory.getbasetemp() / "bad.jsonl"
    survives(openhands.reader, path, data.draw(damaged(lines)))
    survives(openhands.reader, path, "\n".join(map(json.dumps, data.draw(mutated(rows)))).encode())
    survives(openhands.reader, path, json.dumps(data.draw(mutated(rows))).encode())
