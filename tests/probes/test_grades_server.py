"""`forensics grade` and a case's shared pass through servers of completions: in
a process of its own, on loopback.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics import load_policy
from forensics.cli.main import run
from forensics.records.tables import read_trajectories, write_trajectories
from tests.probes.leak_pair import BASE, grade_command as command, grade_rows as rows, write_log
from tests.resampling.completion_stub import serving

TASKS = 12
PROGRAM = """
import sys
from forensics import load_policy
from tests.resampling.completion_stub import serving
ours, theirs = (load_policy(path, device="cpu") for path in sys.argv[1:])
with serving(ours) as one, serving(theirs) as other, serving(ours, "no logprobs") as mute:
    print(one.url, other.url, mute.url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("log"), TASKS, dealt=("after", "before"))


@pytest.fixture(scope="module")
def here(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same log graded with the checkpoints on this machine."""
    out = tmp_path_factory.mktemp("here") / "out"
    assert run(command(log, out)) == 0
    return out


def read(folder: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((folder / name).read_text()))


def agree(one: Path, other: Path) -> None:
    """The same steps, the same grades up to what a server's rounding does."""
    for told, known in zip(rows(one), rows(other), strict=True):
        assert (told["trajectory"], told["step"], told["tokens"]) == (
            known["trajectory"],
            known["step"],
            known["tokens"],
        )
        assert told["grade"] == pytest.approx(known["grade"], abs=1e-3)
        assert told["ratio_sum"] == pytest.approx(known["ratio_sum"], abs=1e-2)


def test_one_side_may_be_served_and_a_log_without_ids_is_tokenised_again(
    log: Path, tmp_path: Path
) -> None:
    bare = [
        one.model_copy(
            update={
                "steps": tuple(
                    step.model_copy(update={"token_ids": None, "sampled": None, "logprobs": None})
                    for step in one.steps
                )
            }
        )
        for one in list(read_trajectories(log / "after.parquet"))[:9]
    ]
    write_trajectories(tmp_path / "bare.parquet", bare)
    assert run(command(tmp_path / "bare.parquet", tmp_path / "here")) == 0
    with serving(load_policy(BASE, device="cpu")) as theirs:
        assert (
            run(
                command(
                    tmp_path / "bare.parquet", tmp_path / "out", "--reference-server", theirs.url
                )
            )
            == 0
        )
    agree(tmp_path / "out", tmp_path / "here")
    assert read(tmp_path / "out", "grades.json")["retokenised_runs"] == 9
