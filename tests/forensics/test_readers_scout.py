"""Inspect Scout's transcript databases, by hand after inspect_scout 0.6.2's schema."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, read_logs, scout
from forensics.records import Step, ToolCall, Trajectory
from tests.episodes import episode_of
from tests.forensics.reader_files import damaged, survives

MESSAGES = [
    {"role": "user", "content": "Add"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "function": "add", "arguments": {"x": 1}}],
    },
    {"role": "tool", "content": "2", "function": "add"},
]
ROW = {
    "transcript_id": "u1",
    "source_type": "eval_log",
    "task_set": "sums",
    "task_id": "7",
    "task_repeat": 3,
    "model": "m",
    "model_options": '{"seed": 5}',
    "score": "C",
    "success": True,
    "error": None,
    "limit": None,
    "messages": json.dumps(MESSAGES),
    "events": "[]",
}
RUN = episode_of(
    id="u1",
    task="7",
    policy="m",
    environment="sums",
    seed=5,
    sample=2,
    rewards={"score": 1.0},
    steps=(
        Step(role="user", text="Add"),
        Step(role="assistant", text="", tool_calls=(ToolCall(name="add", arguments='{"x": 1}'),)),
        Step(role="tool", text="2"),
    ),
)


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def test_a_transcript_and_the_index_that_goes_with_it(tmp_path: Path) -> None:
    write(tmp_path / "transcripts_1.parquet", ROW)
    write(
        tmp_path / "_index" / "index_1.parquet",
        {"transcript_id": "u1", "filename": "transcripts_1.parquet"},
    )
    assert list(read_logs(tmp_path)) == [RUN]


@pytest.mark.parametrize("changes, expected", [
    ({"score": None}, (1.0, {}, "terminated", None)),
    ({"score": None, "success": None}, (None, {}, "terminated", None)),
    ({"score": "8.5"}, (1.0, {"score": 8.5}, "terminated", None)),
    ({"score": '{"a": "I", "b": 2}', "success": False}, (0.0, {"score.a": 0.0, "score.b": 2.0},
     "terminated", None)),
    ({"error": "boom", "score": None, "success": None}, (None, {}, "errored", "boom")),
    ({"limit": "tokens"}, (1.0, {"score": 1.0}, "truncated", "tokens limit")),
])  # fmt: skip
def test_scores_and_endings(tmp_path: Path, changes: dict[str, Any], expected: Any) -> None:
    (found,) = read_logs(write(tmp_path / "a.parquet", {**ROW, **changes}))
    assert isinstance(found, Trajectory)
    assert (found.outcome, found.rewards, found.end, found.end_reason) == expected


def test_only_the_id_and_the_messages_must_be_there(tmp_path: Path) -> None:
    bare = {"transcript_id": "a", "messages": ROW["messages"]}
    first, second, third = read_logs(
        write(tmp_path / "a.parquet", bare, {**bare, "transcript_id": "b"}, ROW | bare)
    )
    assert (
        isinstance(first, Trajectory)
        and isinstance(second, Trajectory)
        and isinstance(third, Trajectory)
    )
    assert first.task == second.task and (first.outcome, first.policy) == (None, "unknown")
    assert third.id == "a~2"


def test_broken_rows_are_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {**ROW, "messages": "[{"}, {**ROW, "messages": None}, ROW)
    *broken, good = read_logs(path)
    assert [item.where for item in broken if isinstance(item, Unreadable)] == [
        "row 0",
        "row 1",
    ] and good == RUN


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_files_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("fuzz")
    content = write(place / "good.parquet", ROW, ROW).read_bytes()
    survives(scout.reader, place / "bad.parquet", data.draw(damaged(content)))
