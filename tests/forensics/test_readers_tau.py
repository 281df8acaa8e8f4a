"""tau-bench results, by hand after its `run.py`, and the published ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from forensics.readers import Unreadable, read_logs, tau_bench
from forensics.records import Step, ToolCall, Trajectory
from tests.forensics.reader_files import DATA, damaged, survives

CALL = {"id": "c", "type": "function", "function": {"name": "get_user", "arguments": '{"id":"u"}'}}
TRANSFER = {
    "id": "d",
    "type": "function",
    "function": {"name": "transfer_to_human_agents", "arguments": "{}"},
}
TALK = [
    {"role": "system", "content": "# Policy"}, {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "name": "get_user", "content": "{}"},
]  # fmt: skip
STOP = {"role": "user", "content": "###STOP###"}


def result(**changes: Any) -> dict[str, Any]:
    return {
        "task_id": 3,
        "reward": 1.0,
        "info": {"task": {}},
        "traj": [*TALK, STOP],
        "trial": 2,
        **changes,
    }


def test_a_run(tmp_path: Path) -> None:
    path = tmp_path / "model-retail.json"
    path.write_text(json.dumps([result()], indent=2))
    (found,) = read_logs(path)
    assert found == Trajectory(
        id="element 0 of model-retail.json",
        task="3",
        policy="model-retail",
        environment="tau-bench retail",
        seed=0,
        sample=2,
        rewards={"reward": 1.0},
        outcome=1.0,
        end="terminated",
        end_reason="the user stopped",
        steps=(
            Step(role="system", text="# Policy"),
            Step(role="user", text="Hi"),
            Step(
                role="assistant",
                text="",
                tool_calls=(ToolCall(name="get_user", arguments='{"id":"u"}'),),
            ),
            Step(role="tool", text="{}"),
            Step(role="user", text="###STOP###"),
        ),
    )


@pytest.mark.parametrize(
    "changes, expected",
    [
        (
            {
                "traj": [
                    *TALK,
                    {"role": "assistant", "content": "", "tool_calls": [TRANSFER]},
                    TALK[3],
                ]
            },
            ("terminated", 1.0),
        ),
        ({"traj": TALK, "reward": 0.0}, ("truncated", 0.0)),
        (
            {"traj": [], "reward": 0.0, "info": {"error": "boom", "traceback": "x"}},
            ("errored", None),
        ),
    ],
)
def test_endings(tmp_path: Path, changes: dict[str, Any], expected: Any) -> None:
    (tmp_path / "a.json").write_text(json.dumps([result(**changes)]))
    (found,) = read_logs(tmp_path / "a.json")
    assert isinstance(found, Trajectory) and (found.end, found.outcome) == expected


def test_a_broken_run_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([result(), {"task_id": 1}, result(trial=3)]))
    first, broken, last = read_logs(tmp_path / "a.json")
    assert isinstance(broken, Unreadable) and broken.where == "element 1"
    assert isinstance(first, Trajectory) and isinstance(last, Trajectory) and first.id != last.id


@settings(max_examples=60, deadline=None)
@given(damaged(json.dumps([result(), result()]).encode()))
def test_damaged_results_never_crash(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    survives(tau_bench.reader, tmp_path_factory.getbasetemp() / "bad.json", content)


@pytest.mark.skipif(not DATA.is_dir(), reason="the logs of other projects are not here")
def test_published_results() -> None:
    found = [run for run in read_logs(DATA / "tau_bench") if isinstance(run, Trajectory)]
    (path,) = (DATA / "tau_bench").glob("*.json")
    listed = json.loads(path.read_text())
    assert [(run.task, run.sample, run.outcome) for run in found] == [
        (str(row["task_id"]), row["trial"], row["reward"]) for row in listed
    ]
    assert [len(run.steps) for run in found] == [len(row["traj"]) for row in listed]
    calls = sum(len(message.get("tool_calls") or ()) for row in listed for message in row["traj"])
    assert sum(len(step.tool_calls) for run in found for step in run.steps) == calls > 100
    assert len({run.id for run in found}) == len(found) and {run.environment for run in found} == {
        "tau-bench airline"
    }
