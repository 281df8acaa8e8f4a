"""`forensics cliffs --server`: the server samples, the checkpoint scores; on a
stub that speaks vLLM's completions.
"""

import json
from pathlib import Path

import pytest

from forensics import load_policy
from forensics.cli.main import run
from forensics.protocols import SamplingSettings
from forensics.records.tables import write_trajectories
from tests.resampling.completion_stub import serving
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

BASE = checkpoint_path("bundled:capped-base")


def command(log: Path, url: str, out: Path) -> list[str]:
    world = ("--env", "mini-repo", "--env-option", "world=capped")
    return [
        "cliffs",
        str(log),
        "--policy",
        str(BASE),
        *world,
        "--most",
        "1",
        "--budget",
        "80",
        "--delete-keep",
        "0",
        "--server",
        url,
        "--out",
        str(out),
        "--json",
    ]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, world = tmp_path_factory.mktemp("log"), MiniRepo(world="capped")
    runs = load_policy(BASE, device="cpu").play(
        world, world.tasks("held-out", 8, 3), 1, SamplingSettings(), 3
    )
    write_trajectories(folder / "runs.parquet", runs)
    return folder


@pytest.mark.slow
def test_a_server_samples_for_the_search(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(load_policy(BASE, device="cpu")) as stub:
        assert run(command(log, stub.url, tmp_path / "out")) == 0
        asked = sum(body.get("n", 1) for body in stub.seen)
    summary = json.loads(capsys.readouterr().out)
    assert summary["runs"] == 1 and summary["missing"] == 0
    assert 0 < summary["rollouts"] <= asked


def test_another_policy_behind_the_address_is_refused(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(load_policy(checkpoint_path("bundled:leak"), device="cpu")) as stub:
        assert run(command(log, stub.url, tmp_path / "out")) == 2
    assert "policy" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_nobody_at_the_address(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(log, "http://127.0.0.1:9/v1", tmp_path / "out")) == 2
    assert "there is no server" in capsys.readouterr().err
