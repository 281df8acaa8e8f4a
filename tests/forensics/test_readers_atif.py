"""Harbor's trajectories and trials, by hand after its models, and published
ones; Claude Code's sessions.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, atif, read_logs
from forensics.readers.log_reader import installed_readers
from forensics.records import Step, ToolCall, Trajectory
from tests.forensics.reader_files import DATA, damaged, survives
from tests.forensics.reader_fuzz import mutated
from tests.work import calls

AGENT = {"name": "terminus-2", "version": "2", "model_name": "m"}
USER = {"step_id": 1, "source": "user", "message": "Fix it."}
CALL = {"tool_call_id": "c", "function_name": "bash", "arguments": {"command": "ls"}}
ACT = {
    "step_id": 2,
    "source": "agent",
    "message": "I look.",
    "reasoning_content": "Hm.",
    "tool_calls": [CALL],
    "observation": {
        "results": [
            {"source_call_id": "c", "content": "f"},
            {
                "content": [
                    {"type": "text", "text": "g"},
                    {"type": "image", "source": {"media_type": "image/png"}},
                ]
            },
        ]
    },
}
TYPED = json.dumps(
    {"analysis": "a", "commands": [{"keystrokes": "ls\n", "duration": 1}], "task_complete": False}
)
STEPS = (
    Step(role="user", text="Fix it."),
    Step(role="assistant", text="<think>\nHm.\n</think>\nI look.",
         tool_calls=(ToolCall(name="bash", arguments='{"command": "ls"}'),)),
    Step(role="tool", text="f"), Step(role="tool", text="g\n[image]"),
)  # fmt: skip


def document(*steps: Any, **more: Any) -> dict[str, Any]:
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": AGENT,
        "steps": list(steps),
        **more,
    }


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1))
    return path


def runs(path: Path) -> list[Trajectory]:
    found = list(read_logs(path))
    assert all(isinstance(run, Trajectory) for run in found), found
    return [run for run in found if isinstance(run, Trajectory)]


def test_a_document(tmp_path: Path) -> None:
    (found,) = runs(write(tmp_path / "a.json", document(USER, ACT)))
    assert found == Trajectory(
        id="s",
        task=found.task,
        policy="m",
        environment="harbor",
        seed=0,
        steps=STEPS,
        outcome=None,
        end="terminated",
    )
    (other,) = runs(write(tmp_path / "b.json", document(USER)))
    assert other.task == found.task


def test_typed_commands_and_steps_of_the_harness(tmp_path: Path) -> None:
    dispatched = {
        "step_id": 3,
        "source": "agent",
        "message": "context cleared",
        "llm_call_count": 0,
    }
    typed = {"step_id": 2, "source": "agent", "message": TYPED}
    (found,) = runs(write(tmp_path / "a.json", document(USER, typed, dispatched)))
    assert found.steps[1].tool_calls == (
        ToolCall(name="bash_command", arguments='{"keystrokes": "ls\\n"}'),
    )
    assert found.steps[2] == Step(role="tool", text="context cleared")


def test_continuations_are_joined_and_copies_left_out(tmp_path: Path) -> None:
    later = {"step_id": 4, "source": "agent", "message": "Done."}
    copied = [
        {**USER, "is_copied_context": True},
        {**USER, "message": "Go on.", "is_copied_context": True},
        {"step_id": 3, "source": "agent", "message": "I look.", "is_copied_context": True},
    ]
    write(
        tmp_path / "trajectory.json",
        document(USER, ACT, continued_trajectory_ref="trajectory.cont-1.json"),
    )
    write(
        tmp_path / "trajectory.cont-1.json",
        document(*copied, continued_trajectory_ref="trajectory.cont-2.json", session_id="s-cont-1"),
    )
    write(tmp_path / "trajectory.cont-2.json", document(later, session_id="s-cont-2"))
    (found,) = runs(tmp_path)
    assert found.steps == (
        *STEPS,
        Step(role="user", text="Go on."),
        Step(role="assistant", text="Done."),
    )
    (tmp_path / "trajectory.json").unlink()
    (alone,) = runs(tmp_path)
    assert [step.text for step in alone.steps] == ["Fix it.", "Go on.", "I look.", "Done."]


def test_a_missing_continuation_is_told(tmp_path: Path) -> None:
    write(tmp_path / "outside.json", document(USER))
    path = write(
        tmp_path / "in" / "a.json", document(USER, ACT, continued_trajectory_ref="../outside.json")
    )
    run, told = read_logs(path)
    assert isinstance(run, Trajectory) and run.steps == STEPS
    assert isinstance(told, Unreadable) and "not beside" in told.reason


def test_continuations_that_go_in_a_circle_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", document(USER, continued_trajectory_ref="a.json"))
    assert [step.text for step in runs(path)[0].steps] == ["Fix it.", "Fix it."]


def test_sub_agents_stand_where_they_answer(tmp_path: Path) -> None:
    inner = {"step_id": 1, "source": "agent", "message": "A summary."}
    references = [{"trajectory_id": "t"}, {"trajectory_path": "a.summarization-1-summary.json"}]
    asks = {"step_id": 2, "source": "agent", "message": "Ask.",
            "observation": {"results": [{"subagent_trajectory_ref": references}]}}  # fmt: skip
    embedded = {**document({**inner, "message": "Embedded."}), "trajectory_id": "t"}
    write(tmp_path / "a.json", document(USER, asks, subagent_trajectories=[embedded]))
    write(tmp_path / "a.summarization-1-summary.json", document(inner, session_id="s-1"))
    (found,) = runs(tmp_path)
    assert [step.text for step in found.steps] == ["Fix it.", "Ask.", "Embedded.", "A summary."]


def trial(folder: Path, **result: Any) -> Path:
    write(folder / "agent" / "trajectory.json", document(USER, ACT))
    write(folder / "agent" / "sessions" / "x.jsonl", SESSION[0])
    write(folder / "config.json", {})
    write(
        folder / "result.json",
        {"task_name": "t", "trial_name": "t__1", "source": "bench", **result},
    )
    return folder


@pytest.mark.parametrize(
    "result, expected",
    [
        (
            {"verifier_result": {"rewards": {"reward": 1, "style": 0.5}}},
            (1.0, {"reward": 1.0, "style": 0.5}, "terminated"),
        ),
        ({"verifier_result": {"rewards": {"tests": 0}}}, (0.0, {"tests": 0.0}, "terminated")),
        (
            {"verifier_result": {"rewards": {"a": 0, "b": 1}}},
            (None, {"a": 0.0, "b": 1.0}, "terminated"),
        ),
        ({"exception_info": {"exception_type": "AgentTimeoutError"}}, (None, {}, "truncated")),
        ({"exception_info": {"exception_type": "DockerError"}}, (None, {}, "errored")),
    ],
)
def test_a_trial_is_one_run_with_its_result(tmp_path: Path, result: Any, expected: Any) -> None:
    trial(tmp_path / "job" / "t__1", **result)
    write(tmp_path / "job" / "result.json", {})
    (found,) = runs(tmp_path)
    assert (found.outcome, found.rewards, found.end) == expected
    assert (found.id, found.task, found.environment) == ("t__1", "t", "bench")


def test_the_verifiers_own_reward(tmp_path: Path) -> None:
    (trial(tmp_path / "t__1") / "verifier").mkdir()
    (tmp_path / "t__1" / "verifier" / "reward.txt").write_text("1\n")
    assert runs(tmp_path)[0].outcome == 1.0


def line(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "sessionId": "s",
        "isSidechain": False,
        "message": {"role": kind, "content": content, **more},
    }


SESSION = [
    {"type": "summary", "summary": "x", "leafUuid": "u"},
    line("user", "Fix it."),
    line("assistant", [{"type": "thinking", "thinking": "Hm."}], id="m1", model="claude"),
    line("assistant", [{"type": "text", "text": "I look."}], id="m1", model="claude"),
    line(
        "assistant",
        [{"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "ls"}}],
        id="m1",
    ),
    line("user", [{"type": "tool_result", "tool_use_id": "c", "content": "f"}]),
    {**line("user", "Look around."), "isSidechain": True, "agentId": "a"},
    line(
        "assistant",
        [{"type": "text", "text": "Done."}],
        id="m2",
        model="claude",
        stop_reason="end_turn",
    ),
]


def test_a_session_of_claude_code(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, SESSION)))
    found, side = runs(path)
    assert found.steps == (
        Step(role="user", text="Fix it."),
        Step(role="assistant", text="<think>\nHm.\n</think>\nI look.",
             tool_calls=(ToolCall(name="Bash", arguments='{"command": "ls"}'),)),
        Step(role="tool", text="f"), Step(role="assistant", text="Done."),
    )  # fmt: skip
    assert (found.id, found.policy, found.outcome, found.end_reason) == (
        "s",
        "claude",
        None,
        "end_turn",
    )
    assert (side.id, [step.text for step in side.steps]) == ("s/a", ["Look around."])


def parts_of_one_message(path: Path, number: int) -> Path:
    part = json.dumps(line("assistant", [{"type": "text", "text": "x"}], id="m"))
    path.write_text(f"{part}\n" * number)
    return path


def nested_runs(path: Path, number: int) -> Path:
    results = [{"subagent_trajectory_ref": [{"trajectory_id": str(n)}]} for n in range(number)]
    inner = [{**document(USER), "trajectory_id": str(n)} for n in range(number)]
    return write(
        path, document({**ACT, "observation": {"results": results}}, subagent_trajectories=inner)
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("made", "number", "most", "steps"),
    [
        (parts_of_one_message, 9000, 500, 1),
        (nested_runs, 9000, 400, 9001),
    ],
)
def test_hostile_files_are_little_work(
    tmp_path: Path, made: Any, number: int, most: int, steps: int
) -> None:
    """The work for one line or one run stays what it is. Seconds: `benchmarks/hostile.py`."""
    path, found = made(tmp_path / "s.jsonl", number), list[Trajectory]()
    assert calls(lambda: found.extend(runs(path))) < most * number
    assert len(found[0].steps) == steps


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_files_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    inner = {**document(USER), "trajectory_id": "t"}
    results = [{"content": "x", "subagent_trajectory_ref": [{"trajectory_id": "t"}]}]
    refers = {**ACT, "observation": {"results": results}}
    value = document(USER, ACT, refers, {**USER, "message": TYPED}, subagent_trajectories=[inner])
    path = tmp_path_factory.getbasetemp() / "bad.json"
    survives(atif.reader, path, data.draw(damaged(json.dumps(value).encode())))
    survives(atif.reader, path, json.dumps(data.draw(mutated(value))).encode())
    lines = "\n".join(map(json.dumps, data.draw(mutated(SESSION))))
    claude_code = next(one for one in installed_readers() if one.name == "claude-code")
    survives(claude_code, path, data.draw(damaged(lines.encode())))
    survives(claude_code, path, lines.encode())


@pytest.mark.skipif(not DATA.is_dir(), reason="the logs of other projects are not here")
def test_published_ones() -> None:
    found = list(read_logs(DATA / "atif_claudecode_openclaw"))
    ours = [run for run in found if isinstance(run, Trajectory) and run.environment == "harbor"]
    paths = sorted((DATA / "atif_claudecode_openclaw").glob("atif__*.json"))
    originals = [json.loads(path.read_text()) for path in paths]
    for run, original in zip(ours, originals, strict=True):
        assert run.turns == sum(step["source"] == "agent" for step in original["steps"])
    typed = [call for step in ours[1].steps for call in step.tool_calls]
    assert typed and all(call.name == "bash_command" for call in typed)
    sessions = [
        run for run in found if isinstance(run, Trajectory) and run.environment == "claude-code"
    ]
    assert len(sessions) == 5 and all(run.policy.startswith("claude-") for run in sessions)
    assert {call.name for run in sessions for step in run.steps for call in step.tool_calls} >= {
        "Bash",
        "Task",
    }
