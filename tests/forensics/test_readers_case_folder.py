"""Our own records come back as they were written, from Parquet, JSON lines and case folders."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.errors import UserError
from forensics.readers import Unreadable, case_folder, read_logs
from forensics.records import Step, ToolCall, Trajectory
from forensics.records.files import write_json_lines
from forensics.records.tables import read_trajectories, write_trajectories
from tests.forensics.reader_files import run

RUNS = [
    run(
        "a",
        rewards={"x": 0.5, "y": None},
        outcome=None,
        submission="s",
        without=("history",),
        redraws=2,
        steps=(
            Step(role="user", text="do", token_ids=(1, 2), sampled=(False, False)),
            Step(
                role="assistant",
                text="é",
                kinds=("edit",),
                token_ids=(3,),
                sampled=(True,),
                logprobs=(-0.5,),
                tool_calls=(ToolCall(name="n", arguments="{}"),),
            ),
            Step(role="tool", text="", channels=("history",)),
        ),
    ),
    run("b", end="truncated", end_reason="token limit", sample=3, seed=9),
]


def lines(path: Path, runs: list[Trajectory]) -> None:
    write_json_lines(path, runs)


def table(path: Path, runs: list[Trajectory]) -> None:
    write_trajectories(path, runs)


TOKENS = st.sampled_from(
    [
        {},
        {"token_ids": ()},
        {"token_ids": (), "sampled": (), "logprobs": ()},
        {"token_ids": (7,), "sampled": (False,)},
        {"token_ids": (7, 8), "sampled": (False, True), "logprobs": (-0.5,)},
    ]
)
NAMES = st.sampled_from([(), ("edit",), ("edit", "")])
CALLS = st.lists(
    st.builds(ToolCall, name=st.text(max_size=3), arguments=st.text(max_size=3)), max_size=2
).map(tuple)


@settings(max_examples=60)
@given(
    st.lists(
        st.builds(
            lambda text, kinds, channels, calls, tokens: Step(
                role="assistant",
                text=text,
                kinds=kinds,
                channels=channels,
                tool_calls=calls,
                **tokens,
            ),
            st.text(max_size=3),
            NAMES,
            NAMES,
            CALLS,
            TOKENS,
        ),
        max_size=4,
    )
)
def test_what_is_missing_or_empty_comes_back_so(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    log = tmp_path_factory.mktemp("log") / "log.parquet"
    runs = [run("a", steps=tuple(steps)), run("b", steps=())]
    table(log, runs)
    assert list(read_trajectories(log)) == runs


@pytest.mark.parametrize("write", [lines, table])
def test_a_round_trip(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "log", RUNS)
    assert list(read_logs(tmp_path / "log")) == RUNS


def case(folder: Path) -> Path:
    (folder / "trajectories").mkdir(parents=True)
    (folder / "case.json").write_text("{}")
    (folder / "evidence.jsonl").write_text("{}\n")
    names = [
        "before-open-0a-0000", "after-0-open-1b-0000", "after-0-open-1b-0001",
        "after-1-open-2c-0000", "after-0-without-history-3d-0000", "before-altered-open-4e-0000",
    ]  # fmt: skip
    for name in names:
        write_trajectories(folder / "trajectories" / f"{name}.parquet", [run(name)])
    return folder


def test_of_a_case_the_plain_rollouts_are_read(tmp_path: Path) -> None:
    folder = case(tmp_path / "case")
    plain = [
        "after-0-open-1b-0000",
        "after-0-open-1b-0001",
        "after-1-open-2c-0000",
        "before-open-0a-0000",
    ]
    for path in (tmp_path, folder, folder / "trajectories"):
        assert [item.id for item in read_logs(path) if isinstance(item, Trajectory)] == plain
        assert len(list(read_logs(path))) == 4
    sides = case_folder.case_sides(folder)
    assert {side: [path.stem for path in paths] for side, paths in sides.items()} == {
        "after-0": plain[:2], "after-1": plain[2:3], "before": plain[3:],
    }  # fmt: skip
    assert case_folder.case_sides(tmp_path) == {}


def test_a_file_of_a_case_that_is_named_is_read(tmp_path: Path) -> None:
    path = case(tmp_path / "case") / "trajectories" / "after-0-without-history-3d-0000.parquet"
    assert list(read_logs(path)) == [run("after-0-without-history-3d-0000")]


def test_a_line_that_is_no_trajectory_is_told(tmp_path: Path) -> None:
    write_json_lines(
        tmp_path / "a.jsonl", [RUNS[0], {**RUNS[0].model_dump(), "surprise": 1}, RUNS[1]]
    )
    first, broken, last = read_logs(tmp_path / "a.jsonl")
    assert (
        isinstance(broken, Unreadable) and broken.where == "line 2" and "surprise" in broken.reason
    )
    assert [first, last] == RUNS


def test_a_row_that_is_no_run_is_named(tmp_path: Path) -> None:
    """A file that somebody else wrote: what was before the broken row is read,
    and no traceback follows.
    """
    broken = (
        RUNS[0].steps[1].model_copy(update={"sampled": (False,)})
    )  # a log-probability for no token
    table(tmp_path / "runs.parquet", [RUNS[1], RUNS[0].model_copy(update={"steps": (broken,)})])
    rows = read_trajectories(tmp_path / "runs.parquet")
    assert next(rows) == RUNS[1]
    with pytest.raises(
        UserError, match=r"row 1 of .*runs\.parquet is no run \(steps\.0: .*logprobs.*make it again"
    ):
        next(rows)


def test_a_run_whose_outcome_has_another_scale_is_told(tmp_path: Path) -> None:
    table(tmp_path / "a.parquet", [run("wide", outcome=7.0), run("fine")])
    told, fine = read_logs(tmp_path)
    assert isinstance(told, Unreadable) and told.where == "row 0"
    assert told.reason.startswith("its outcome 7 is outside [0, 1]; scale it")
    assert isinstance(fine, Trajectory) and fine.id == "fine"
