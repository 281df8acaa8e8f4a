"""Results, traces and episodes of verifiers and prime-rl, by hand after their sources."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, prime_rl, read_logs
from forensics.records import Step, ToolCall, Trajectory
from tests.forensics.reader_files import damaged, survives
from tests.forensics.reader_fuzz import mutated

CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
ADDED = (ToolCall(name="add", arguments='{"x": 1}'),)
ROW = {
    "example_id": 0,
    "prompt": [{"role": "user", "content": "Add"}],
    "task": "sums",
    "reward": 0.5,
    "error": None,
    "completion": [
        {"role": "assistant", "content": "", "tool_calls": [json.dumps(CALL)]},
        {"role": "tool", "content": "2", "tool_call_id": "c"},
        {"role": "assistant", "content": "Two"},
    ],
    "generation_ms": 3.0,
    "scoring_ms": 1.0,
    "total_ms": 4.0,
    "answer": "SECRET",
    "correct": 1.0,
}
STEPS = (
    Step(role="user", text="Add"),
    Step(role="assistant", text="", tool_calls=ADDED),
    Step(role="tool", text="2"),
    Step(role="assistant", text="Two"),
)


def node(
    role: str, content: Any, parent: int | None, sampled: bool = False, **message: Any
) -> dict[str, Any]:
    return {"parent": parent, "sampled": sampled, "token_ids": [], "mask": [],
            "message": {"role": role, "content": content, **message}}  # fmt: skip


TRACE = {
    "version": 1,
    "id": "t1",
    "verifiers": {"version": "0.4.0"},
    "task": {"type": "Sum", "data": {"question": "1+1"}, "key": "sum-1", "hash": "h"},
    "agent": {"config": {"model": "m"}, "name": "agent", "trainable": True},
    "nodes": [
        node("user", "Add", None),
        node("assistant", "An example", 0),
        node(
            "assistant",
            None,
            1,
            True,
            tool_calls=[{"id": "c", "type": "function", "name": "add", "arguments": '{"x": 1}'}],
        ),
        node("tool", "2", 2, tool_call_id="c"),
        node("assistant", "Two", 3, True),
    ],
    "calls": [
        {"node": 2, "model": "m", "finish_reason": "tool_calls"},
        {"node": 4, "finish_reason": "stop"},
    ],
    "rewards": {"right": {"score": 1.0, "weight": 0.75}, "style": {"score": 1.0, "weight": 0.25}},
    "metrics": {"turns": 2.0},
    "is_completed": True,
    "ok": True,
    "stop_condition": "agent_completed",
    "errors": [],
}
EPISODE = {"id": "e", "env": {"id": "sums-v1"}, "task": TRACE["task"], "ok": True,
           "traces": [TRACE, {**TRACE, "id": "t2"}]}  # fmt: skip


def write(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def only(path: Path) -> Trajectory:
    (found,) = read_logs(path)
    assert isinstance(found, Trajectory), found
    return found


def test_a_result(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text("{}")
    write(tmp_path / "results.jsonl", ROW)
    found = only(tmp_path)
    assert found == Trajectory(
        id="results line 1",
        task=found.task,
        policy="unknown",
        environment="sums",
        seed=0,
        steps=STEPS,
        outcome=0.5,
        rewards={"reward": 0.5, "correct": 1.0},
        end="terminated",
    )
    assert "SECRET" not in found.model_dump_json()


@pytest.mark.parametrize("changes, expected", [
    ({"error": "ToolError()", "reward": 0.0}, ("errored", "ToolError()", None)),
    ({"is_truncated": True}, ("truncated", None, 0.5)),
    ({"stop_condition": "max_turns_reached"}, ("truncated", "max_turns_reached", 0.5)),
    ({"stop_condition": "no_tools_called", "reward": 2.0}, ("terminated", "no_tools_called", None)),
    ({"reward": None}, ("terminated", None, None)),
])  # fmt: skip
def test_endings_of_results(tmp_path: Path, changes: dict[str, Any], expected: Any) -> None:
    found = only(write(tmp_path / "train_rollouts.jsonl", {**ROW, **changes}))
    assert (found.end, found.end_reason, found.outcome) == expected


def test_a_trace(tmp_path: Path) -> None:
    found = only(write(tmp_path / "rollouts" / "step_3" / "train_rollouts.jsonl", TRACE))
    assert found == Trajectory(
        id="t1",
        task="sum-1",
        policy="m",
        environment="verifiers",
        seed=0,
        outcome=1.0,
        end="terminated",
        steps=(STEPS[0], Step(role="user", text="An example"), *STEPS[1:]),
        end_reason="agent_completed",
        rewards={"right": 1.0, "style": 1.0, "turns": 2.0},
    )


def test_tokens_of_a_path(tmp_path: Path) -> None:
    told = [
        {**TRACE["nodes"][0], "token_ids": [1, 2], "mask": [False, False], "logprobs": []},
        {
            **node("assistant", "Two", 0, True),
            "token_ids": [3, 4, 5],
            "mask": [False, True, True],
            "logprobs": [-0.5, -0.25],
        },
    ]
    asked, answered = only(write(tmp_path / "traces.jsonl", {**TRACE, "nodes": told})).steps
    assert (asked.token_ids, asked.sampled, asked.logprobs) == ((1, 2), (False, False), ())
    assert (answered.token_ids, answered.sampled) == ((3, 4, 5), (False, True, True))
    assert answered.logprobs == (-0.5, -0.25)
    for change in ({"parent": None}, {"token_ids": []}, {"mask": [True]}):
        other = only(
            write(tmp_path / "traces.jsonl", {**TRACE, "nodes": [told[0], {**told[1], **change}]})
        )
        assert all(step.token_ids is None for step in other.steps)


def test_an_episode_holds_a_run_for_each_agent(tmp_path: Path) -> None:
    first, second = read_logs(write(tmp_path / "traces.jsonl", EPISODE))
    assert isinstance(first, Trajectory) and isinstance(second, Trajectory)
    assert (first.id, first.environment, second.id, second.sample) == ("t1", "sums-v1", "t2", 1)


@pytest.mark.parametrize(
    "changes, expected",
    [
        (
            {
                "ok": False,
                "errors": [{"type": "ToolError", "message": "boom"}],
                "rewards": {"right": None},
            },
            ("errored", "ToolError: boom", None),
        ),
        ({"is_timeout": True, "stop_condition": None}, ("truncated", "timeout", 1.0)),
        ({"calls": [{"finish_reason": "length"}]}, ("truncated", "length", 1.0)),
        (
            {"rewards": {"right": {"score": 1.0}, "other": None}},
            ("terminated", "agent_completed", None),
        ),
        ({"rewards": {}}, ("terminated", "agent_completed", None)),
    ],
)
def test_endings_of_traces(tmp_path: Path, changes: dict[str, Any], expected: Any) -> None:
    found = only(write(tmp_path / "traces.jsonl", {**TRACE, **changes}))
    assert (found.end, found.end_reason, found.outcome) == expected


def test_broken_rows_are_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    broken = {**EPISODE, "traces": [TRACE, {**TRACE, "nodes": [{"parent": None}]}]}
    path = write(tmp_path / "traces.jsonl", EPISODE, broken, {"x": 1}, 5, TRACE)
    found = list(read_logs(path))
    assert [item.where for item in found if isinstance(item, Unreadable)] == [
        "line 2, trace 1",
        "line 3",
        "line 4",
    ]
    assert sum(isinstance(item, Trajectory) for item in found) == 4


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged_files_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows = data.draw(st.sampled_from([[ROW, ROW], [TRACE], [EPISODE, TRACE]]))
    path = tmp_path_factory.getbasetemp() / "bad.jsonl"
    survives(prime_rl.reader, path, data.draw(damaged("\n".join(map(json.dumps, rows)).encode())))
    survives(prime_rl.reader, path, "\n".join(map(json.dumps, data.draw(mutated(rows)))).encode())
