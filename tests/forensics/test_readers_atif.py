"""Harbor's trajectories and trials, by hand after its models, and published
ones; Claude Code's sessions.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics import scan
from forensics.actions import actions_of
from forensics.cli.case_output import summary
from forensics.readers import read_logs
from forensics.records import Trajectory
from forensics.shortcuts.record_integrity import record_gaps
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
    "observation": {"results": [{"source_call_id": "c", "content": "f"},
     {"content": [{"type": "text", "text": "g"}, {"type": "image",
     "source": {"media_type": "image/png"}}]}]},
}  # fmt: skip


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


def line(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "sessionId": "s",
        "isSidechain": False,
        "message": {"role": kind, "content": content, **more},
    }


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
    [(parts_of_one_message, 9000, 500, 1), (nested_runs, 9000, 400, 9001)],
)
def test_hostile_files_are_little_work(
    tmp_path: Path, made: Any, number: int, most: int, steps: int
) -> None:
    """The work for one line or one run stays what it is."""
    path, found = made(tmp_path / "s.jsonl", number), list[Trajectory]()
    assert calls(lambda: found.extend(runs(path))) < most * number
    assert len(found[0].steps) == steps


def trial(folder: Path, **files: Any) -> Path:
    """A Harbor trial whose `result.json` and verifier's files say these rewards."""
    names = {"result": "result.json", "json": "verifier/reward.json", "txt": "verifier/reward.txt"}
    steps = [{"source": "user", "message": "Mend it."}, {"source": "agent", "message": "Done."}]
    said = {
        "agent/trajectory.json": {"schema_version": "ATIF-v1.5", "steps": steps},
        "config.json": {},
    }
    for key, value in files.items():
        told = {"trial_name": folder.name, "task_name": "t", "verifier_result": {"rewards": value}}
        said[names[key]] = told if key == "result" else value
    for name, value in said.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize(
    ("files", "outcome", "differ"),
    [
        ({"result": {"reward": 0}, "txt": 1}, 0.0, "result.json) 0, reward (in v"),
        ({"result": {"pass": 0}, "txt": 1}, 0.0, "reward (in verifier/reward.txt) 1"),
        ({"result": None, "json": {"reward": 0.5}, "txt": 1}, 0.5, "reward.json) 0.5, reward (in"),
        ({"result": {"reward": 1, "a": 1}, "json": {"reward": 1, "a": 0}}, 1.0, "a (in result.js"),
        ({"result": {"reward": 1}, "json": {"reward": 1}, "txt": 0}, 1.0, "verifier/reward.txt) 0"),
        ({"result": {"reward": 1}, "txt": 1.0}, 1.0, ""),
        ({"result": {"reward": 1 / 3}, "txt": 0.3333}, 1 / 3, ""),
        ({"result": None, "txt": 1}, 1.0, ""),
        ({"result": {"reward": 1}, "json": {"speed": 0.2, "style": 1}}, 1.0, ""),
        ({"result": {"reward": 1}, "txt": "passed"}, 1.0, ""),
        ({"result": {"a": 1, "b": 0}, "txt": 1}, None, ""),
    ],
)  # fmt: skip
def test_records_of_one_outcome_that_differ_are_told_and_the_first_counts(
    tmp_path: Path, files: dict[str, Any], outcome: float | None, differ: str
) -> None:
    (run,) = read_logs(trial(tmp_path / "trial", **files))
    assert isinstance(run, Trajectory) and run.outcome == outcome
    told = {gap.check: gap.quote for gap in record_gaps(run, actions_of(run))}
    assert list(told) == (["two records of the outcome differ"] if differ else [])
    assert differ in told.get("two records of the outcome differ", "")


def test_runs_whose_records_differ_are_counted_and_none_is_accused(tmp_path: Path) -> None:
    trial(tmp_path / "logs" / "one", result={"reward": 0}, txt=1)
    trial(tmp_path / "logs" / "two", result={"reward": 0}, txt=0)
    scan(tmp_path / "logs", out=tmp_path / "case")
    told = "Unreliable records: two records of the outcome differ in 1 run (integrity.jsonl)"
    assert told in summary(tmp_path / "case")
    (row,) = map(json.loads, (tmp_path / "case" / "integrity.jsonl").read_text().splitlines())
    assert row["trajectory"] == "one" and (tmp_path / "case" / "findings.jsonl").read_text() == ""
