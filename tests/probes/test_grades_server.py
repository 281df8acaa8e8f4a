"""`forensics grade` and a case's shared pass through servers of completions: in
a process of its own, on loopback.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from forensics import load_policy
from forensics.cli.main import run
from forensics.records.tables import read_trajectories, write_trajectories
from tests.probes.leak_pair import BASE, LEAK, write_log
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


class Servers(NamedTuple):
    """Addresses: a server of the leak, one of its base, and one of the leak
    that tells no log-probabilities.
    """

    ours: str
    theirs: str
    mute: str


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """All in one process of their own."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(LEAK), str(BASE)],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield Servers(*process.stdout.readline().split())
        finally:
            process.stdin.close()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("log"), TASKS, dealt=("after", "before"))


@pytest.fixture(scope="module")
def here(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same log graded with the checkpoints on this machine."""
    out = tmp_path_factory.mktemp("here") / "out"
    assert run(command(log, out)) == 0
    return out


def command(
    log: Path, out: Path, *more: str, policy: Path = LEAK, reference: Path = BASE
) -> list[str]:
    return [
        "grade",
        str(log),
        "--policy",
        str(policy),
        "--reference",
        str(reference),
        "--out",
        str(out),
        *more,
    ]


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "grades.parquet").to_pylist()
    return found


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


def test_a_server_that_cannot_score_is_refused_in_one_sentence(
    servers: Servers, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _refused(command(log, tmp_path / "a", "--server", servers.mute), capsys)
    assert "no log-probabilities of a prompt" in said and "vLLM" in said
    url = servers.theirs  # one model cannot be both
    both = ("--server", url, "--reference-server", url, "--server-model", "tiny")
    assert "one model" in _refused(command(log, tmp_path / "a", *both), capsys)
    assert not (tmp_path / "a" / "grades.json").exists()
    with serving(load_policy(BASE, device="cpu")) as gone:
        url = gone.url
    assert "no server" in _refused(command(log, tmp_path / "a", "--server", url), capsys)
    assert "give --server too" in _refused(
        command(log, tmp_path / "a", "--server-model", "x"), capsys
    )
    assert "--reference-server too" in _refused(
        command(log, tmp_path / "a", "--reference-server-model", "x"), capsys
    )


def _refused(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run(line) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("error: ")
    return said
