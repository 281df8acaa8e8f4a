"""Harbor's trajectories and trials, by hand after its models, and published
ones; Claude Code's sessions.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.readers import read_logs
from forensics.records import Trajectory
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
