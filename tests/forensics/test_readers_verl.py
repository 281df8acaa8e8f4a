"""verl's dumped generations, by hand after its `_dump_generations`."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, read_logs, verl
from forensics.records import Step, ToolCall, Trajectory
from tests.forensics.reader_files import damaged, survives
from tests.forensics.reader_fuzz import mutated

ROW = {
    "input": "system\nBe.\nuser\n1+1?\nassistant\n",
    "output": "2",
    "gts": "2",
    "score": 1.0,
    "step": 4,
}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def test_a_generation(tmp_path: Path) -> None:
    first, second, other = read_logs(
        write(tmp_path / "4.jsonl", ROW, ROW, {**ROW, "input": "x", "request_id": "u"})
    )
    assert first == Trajectory(
        id="4 line 1",
        task=getattr(second, "task", ""),
        policy="step 4",
        environment="verl",
        seed=0,
        steps=(Step(role="user", text=ROW["input"]), Step(role="assistant", text="2")),
        rewards={"score": 1.0},
        outcome=1.0,
        end="terminated",
    )
    assert isinstance(second, Trajectory) and isinstance(other, Trajectory)
    assert (second.sample, other.sample) == (1, 0) and other.task != second.task


@pytest.mark.parametrize("changes, outcome, rewards", [
    ({"score": -1.0, "acc": False, "pred": "3"}, 0.0, {"score": -1.0, "acc": 0.0}),
    ({"score": -1.0}, None, {"score": -1.0}),
    ({"score": 0.25, "acc": True}, 1.0, {"score": 0.25, "acc": 1.0}),
    ({"score": 0.5, "format": 3}, 0.5, {"score": 0.5, "format": 3.0}),
    ({"score": None}, None, {"score": None}),
])  # fmt: skip
def test_outcomes(
    tmp_path: Path, changes: dict[str, Any], outcome: float | None, rewards: dict[str, Any]
) -> None:
    (found,) = read_logs(write(tmp_path / "4.jsonl", {**ROW, **changes}))
    assert isinstance(found, Trajectory) and (found.outcome, found.rewards) == (outcome, rewards)


def test_turns_with_tools(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    text = f"{call}\nuser\n<tool_response>\n2\n</tool_response>\nassistant\nOk"
    (found,) = read_logs(
        write(tmp_path / "4.jsonl", {**ROW, "output": text, "data_source": "gsm8k"})
    )
    assert isinstance(found, Trajectory) and found.environment == "gsm8k"
    assert [step.role for step in found.steps] == ["user", "assistant", "tool", "assistant"]
    assert found.steps[1].tool_calls == (ToolCall(name="f", arguments="{}"),)


def test_the_ground_truth_is_never_read(tmp_path: Path) -> None:
    found = list(
        read_logs(write(tmp_path / "4.jsonl", {**ROW, "gts": "SECRET"}, {**ROW, "gts": 0.5}))
    )
    runs = [run for run in found if isinstance(run, Trajectory)]
    assert len(runs) == 2 and "SECRET" not in runs[0].model_dump_json()
    assert runs[1].rewards == {"score": 1.0}


def test_broken_lines_are_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path / "4.jsonl", ROW, {"input": 3, "output": "x"}, [1], ROW)
    path.write_text(path.read_text() + json.dumps(ROW)[:-5])
    found = list(read_logs(path))
    assert [item.where for item in found if isinstance(item, Unreadable)] == [
        "line 2",
        "line 3",
        "line 5",
    ]
    assert sum(isinstance(item, Trajectory) for item in found) == 2


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_files_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "4.jsonl"
    survives(
        verl.reader,
        path,
        "\n".join(map(json.dumps, data.draw(mutated([ROW, {**ROW, "acc": True}])))).encode(),
    )
    survives(
        verl.reader, path, data.draw(damaged(f"{json.dumps(ROW)}\n{json.dumps(ROW)}".encode()))
    )
