"""Runs of a case as ATIF 1.8: our own reader gives the same runs again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from forensics import UserError
from forensics.cli.main import run as command
from forensics.readers import read_logs
from forensics.readers.atif import reader
from forensics.records import Step, ToolCall, Trajectory
from forensics.report import render
from forensics.report.case_logs import find_logs
from forensics.report.writer import document_of
from tests.forensics.report_case import CasePlan, build_case

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NAMES = st.lists(st.sampled_from(["bash", "edit", "history"]), max_size=2).map(tuple)
CALLS = st.builds(
    ToolCall,
    name=st.sampled_from(["bash", "edit"]),
    arguments=st.one_of(
        TEXT, st.sampled_from(['{"a": 1}', '{"a":1}', "[1]", "{}", '{"keystrokes"'])
    ),
)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    role: Any = draw(st.sampled_from(["system", "user", "assistant", "tool"]))
    ours = role == "assistant"
    return Step(
        role=role,
        text=draw(TEXT),
        kinds=draw(NAMES) if ours else (),
        channels=() if ours else draw(NAMES),
        tool_calls=tuple(draw(st.lists(CALLS, max_size=2))) if ours else (),
    )


RUNS = st.builds(
    Trajectory,
    id=TEXT.filter(bool),
    task=TEXT,
    policy=TEXT,
    environment=TEXT,
    without=NAMES,
    seed=st.integers(0, 9),
    sample=st.integers(0, 9),
    steps=st.lists(steps(), min_size=1, max_size=6).map(tuple),
    rewards=st.dictionaries(TEXT, st.one_of(st.none(), st.floats(-1, 1)), max_size=2),
    outcome=st.one_of(st.none(), st.floats(0, 1)),
    submission=st.one_of(st.none(), TEXT),
    end=st.sampled_from(["terminated", "truncated", "errored"]),
    end_reason=st.one_of(st.none(), TEXT),
)


@given(RUNS)
def test_a_run_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, run: Trajectory
) -> None:
    path = tmp_path_factory.mktemp("atif") / "run.json"
    path.write_text(json.dumps(document_of(run)))
    assert [*reader.read(path)] == [run]


def test_the_runs_of_a_case_as_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = build_case(tmp_path / "case", CasePlan(tasks=3, samples=2))
    assert command(["report", str(case), "--format", "atif"]) == 0
    assert "atif" in capsys.readouterr().out
    logs = find_logs(case)
    assert len(logs) == 4
    for log in logs:
        world = "-".join(("without", *log.without)) if log.without else "open"
        place = case / "atif" / f"{log.side}-{world}"
        back = [run for run in read_logs(place) if isinstance(run, Trajectory)]
        key = {run.id: run for run in back}
        bare = {"token_ids": None, "sampled": None, "logprobs": None}
        for run in log.rollouts:
            told = [step.model_copy(update=bare) for step in run.steps]
            assert key.pop(run.id) == run.model_copy(update={"steps": tuple(told), "file": None})
        assert not key
        for path in place.iterdir():
            text = path.read_text()
            document = json.loads(text)
            assert str(tmp_path) not in text
            assert document["schema_version"] == "ATIF-v1.8"
            assert [step["step_id"] for step in document["steps"]] == [
                *range(1, len(document["steps"]) + 1)
            ]
    shutil.rmtree(case / "atif" / "before-open")
    assert command(["report", str(case), "--format", "atif"]) == 0  # made anew
    assert (case / "atif" / "before-open").is_dir()
    with pytest.raises(UserError, match="write_reports"):
        render(case, ["atif"])


def test_an_outcome_off_the_scale_is_not_read(tmp_path: Path) -> None:
    run = Trajectory(id="a", task="t", policy="p", environment="e", seed=0, outcome=1,
                     steps=(Step(role="assistant", text="x"),), end="terminated")  # fmt: skip
    document = document_of(run)
    document["extra"]["policy_forensics"]["outcome"] = 3
    (tmp_path / "run.json").write_text(json.dumps(document))
    (found,) = read_logs(tmp_path)
    assert "outside [0, 1]" in str(found)


def test_drawn_tokens_stand_in_the_metrics() -> None:
    step = Step(role="assistant", text="x", token_ids=(7, 8, 9), sampled=(False, True, True),
                logprobs=(-0.5, -1.0))  # fmt: skip
    run = Trajectory(id="a", task="t", policy="p", environment="e", seed=0, outcome=None,
                     steps=(step,), end="terminated")  # fmt: skip
    (told,) = document_of(run)["steps"]
    assert told["metrics"] == {
        "completion_tokens": 2, "completion_token_ids": [8, 9], "logprobs": [-0.5, -1.0],
    }  # fmt: skip
