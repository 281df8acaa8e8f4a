"""Several processes equal one: real `torchrun` with two processes on gloo."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from forensics.records.tables import read_rows
from training.organisms.building import BUNDLED

RECIPE = """
[policy]
checkpoint = "bundled:open-base"
[environment]
name = "mini-repo"
options = {{ world = "open" }}
[grpo]
steps = 2
groups = 6
samples = 4
rows = 5
save_every = 1
recompute_old = true
{grpo}
[objective]
kl = "k3"
kl_weight = 0.01
{extra}
"""
PARALLEL = "[parallel]\nprocesses = 2\nstrategy = \"{}\"\n"


def train(
    folder: Path, processes: int, extra: str = "", grpo: str = "", *more: str
) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(extra=extra, grpo=grpo))
    command = ["-m", "forensics", "train", str(recipe), "--out", str(folder / "run"), "--device", "cpu", *more]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.run(
        [sys.executable, *(launcher if processes > 1 else []), *command], capture_output=True, text=True, timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def moved(folder: Path) -> torch.Tensor:
    """How far the last state's float32 weights are from the start."""
    state = load_file(sorted((folder / "run" / "state").glob("step-*"))[-1] / "weights.safetensors")
    start = load_file(BUNDLED / "open-base" / "model.safetensors")
    return torch.cat([(state[name] - start[name].float()).flatten() for name in sorted(state)])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    done = train(folder, 1)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_equal_one(alone: Path, tmp_path: Path, strategy: str) -> None:
    """Weights (Adam's first steps magnify rounding, hence a relative norm), and the state is picked up by one."""
    done = train(tmp_path, 2, PARALLEL.format(strategy))
    assert done.returncode == 0, done.stderr
    assert (moved(alone) - moved(tmp_path)).norm() < 0.01 * moved(alone).norm()
    shards = [sorted((folder / "run" / "record").glob("step-*.parquet")) for folder in (alone, tmp_path)]
    assert len(shards[0]) == len(shards[1]) == 2
    passes = [[value for row in read_rows(files[0], ["old_logprobs", "reference_logprobs", "entropies"])
               for values in row.values() for value in values or ()] for files in shards]
    assert len(passes[0]) > 300 and passes[1] == pytest.approx(passes[0], abs=1e-4)
    resumed = train(tmp_path, 1, "", "", "--resume")
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.timeout(120)
def test_the_number_of_processes_is_asserted(tmp_path: Path) -> None:
    done = train(tmp_path, 1, PARALLEL.format("ddp"))
    assert done.returncode == 2 and "torchrun --nproc-per-node 2" in done.stderr and "Traceback" not in done.stderr
