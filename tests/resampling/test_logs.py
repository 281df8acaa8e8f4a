"""Which runs of a log are looked at."""

from pathlib import Path

import pytest

from forensics.errors import UserError
from forensics.records import Step, Trajectory
from forensics.records.tables import write_trajectories
from resampling.study.cliff_run import read_runs
from resampling.study.settings import Choice


def run(
    name: str, task: str, outcome: float | None, policy: str = "p", without: tuple[str, ...] = ()
) -> Trajectory:
    ids = {"token_ids": (1,), "sampled": (True,), "logprobs": (-0.1,)}
    return Trajectory(
        id=name,
        task=task,
        policy=policy,
        environment="e",
        without=without,
        seed=0,
        outcome=outcome,
        steps=(Step(role="assistant", text="a", **ids),),
        end="terminated",
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    runs = [
        run(f"t{task}-{k}", f"task-{task}", float(k == 2)) for task in range(3) for k in range(3)
    ]
    others = [
        run("x-other", "task-0", 0.0, policy="q"),
        run("scrubbed", "task-0", 0.0, without=("git-history",)),
        run("broken", "task-0", None),
    ]
    write_trajectories(tmp_path / "trajectories" / "a.parquet", runs[:5])
    write_trajectories(tmp_path / "trajectories" / "b.parquet", [*runs[5:], *others])
    return tmp_path


def names(log: Path, policy: str | None = "p", **choice: object) -> list[str]:
    return [found.id for found in read_runs(log, Choice(**choice), policy)]  # type: ignore[arg-type]


def test_runs_are_spread_over_the_tasks(log: Path) -> None:
    assert names(log, most=3) == ["t0-0", "t1-0", "t2-0"]
    assert names(log, most=5) == ["t0-0", "t1-0", "t2-0", "t0-1", "t1-1"]
    assert names(log, most=99, runs="won") == ["t0-2", "t1-2", "t2-2"]
    assert len(names(log, most=99, runs="all")) == 9


def test_runs_with_actions_refused_are_found_by_their_id_only(log: Path) -> None:
    refused = [run("0-refused", "task-0", 0.0)]  # sorts first, as in the folder of a case
    write_trajectories(log / "trajectories" / "after-0-altered-open-1-0000.parquet", refused)
    assert "0-refused" not in names(log, most=99, runs="all")
    assert names(log, only=("0-r",)) == ["0-refused"]


def test_a_policys_own_runs_are_taken_where_there_are_any(log: Path) -> None:
    assert names(log, policy="q") == ["x-other"]
    assert len(names(log, policy="unknown", most=99, runs="all")) == 10


def test_a_scrubbed_world_is_another_log(log: Path) -> None:
    assert names(log, without=("git-history",)) == ["scrubbed"]


def test_runs_by_name(log: Path) -> None:
    assert names(log, only=("t1-2", "x-")) == ["t1-2", "x-other"]
    with pytest.raises(
        UserError, match="3 runs, for example t1-0 and t1-1, with an id that begins with t1"
    ):
        names(log, only=("t1",))
    with pytest.raises(UserError, match="no run with an id that begins with zebra"):
        names(log, only=("zebra",))


def test_what_is_not_there_is_told_in_one_sentence(log: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        names(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no Parquet file"):
        names(tmp_path / "empty")
    with pytest.raises(UserError, match="without answer-file"):
        names(log, without=("answer-file",))
    write_trajectories(tmp_path / "won.parquet", [run("w", "t", 1.0)])
    with pytest.raises(UserError, match="was lost; choose others"):
        names(tmp_path / "won.parquet")
