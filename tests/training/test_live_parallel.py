"""Audits of a run on several processes equal those of one: real `torchrun` with
two processes on gloo.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forensics.policies.checkpoints import inspect_checkpoint
from training.live import AuditReport, read_reports

RECIPE = """
[policy]
checkpoint = "bundled:capped-base"
[environment]
name = "mini-repo"
options = { world = "capped" }
[grpo]
steps = 2
groups = 2
samples = 2
learning_rate = 1e-30
[audit]
every = 1
tasks = 4
"""
PARALLEL = '[parallel]\nprocesses = 2\nstrategy = "{}"\n'
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def train(folder: Path, parallel: str = "") -> Path:
    """The run's folder; two processes where `parallel` says so, else one."""
    (folder / "recipe.toml").write_text(RECIPE + parallel)
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if parallel else []
    )
    done = subprocess.run(
        [
            sys.executable,
            *launcher,
            "-m",
            "forensics",
            "train",
            str(folder / "recipe.toml"),
            "--out",
            str(folder / "run"),
            "--device",
            "cpu",
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


def without_seconds(folder: Path) -> list[AuditReport]:
    return [report.model_copy(update={"seconds": 0.0}) for report in read_reports(folder)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[AuditReport]:
    return without_seconds(train(tmp_path_factory.mktemp("alone")))


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_audits_of_two_processes_equal_those_of_one(
    alone: list[AuditReport], tmp_path: Path, strategy: str
) -> None:
    """Streams of an audit depend on the weights' hash, so the updates are too
    small to change a float32 weight.
    """
    run = train(tmp_path, PARALLEL.format(strategy))
    found = without_seconds(run)
    assert [report.step for report in found] == [1, 2] and found == alone
    saved = inspect_checkpoint(run / "checkpoint")
    assert saved.identity == found[-1].policy  # audits left the shards as they were
