"""Several processes equal one: real `torchrun` with two processes on gloo."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from forensics import policy_from
from forensics.cli.main import run
from forensics.policies import pieces, trained_tensors
from forensics.protocols import SamplingSettings
from forensics.records.tables import read_rows
from training.distributed import Process
from training.organisms.base_model import build_model, build_tokenizer
from training.organisms.organism import BUNDLED
from training.recipe import parse_recipe
from training.trained_model import Machine

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
PARALLEL = '[parallel]\nprocesses = 2\nstrategy = "{}"\n'


def train(
    folder: Path, processes: int, extra: str = "", grpo: str = "", *more: str
) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(extra=extra, grpo=grpo))
    command = [*f"-m forensics train {recipe} --out {folder / 'run'} --device cpu".split(), *more]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.run(
        [sys.executable, *(launcher if processes > 1 else []), *command],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def moved(folder: Path) -> torch.Tensor:
    """How far the last state's float32 weights are from the start."""
    place = sorted((folder / "run" / "state").glob("step-*"))[-1]
    saved = ((one, b"".join(pieces(one))) for one in trained_tensors(place))
    state = {
        one.name: torch.frombuffer(bytearray(data), dtype=torch.float32).view(one.shape)
        for one, data in saved
    }
    start = load_file(BUNDLED / "open-base" / "model.safetensors")
    return torch.cat([(state[name] - start[name].float()).flatten() for name in sorted(state)])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    done = train(folder, 1)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_equal_one(alone: Path, tmp_path: Path, strategy: str) -> None:
    """Weights (Adam's first steps magnify rounding, hence a relative norm), and
    the state is picked up by one.
    """
    done = train(tmp_path, 2, PARALLEL.format(strategy))
    assert done.returncode == 0, done.stderr
    assert (moved(alone) - moved(tmp_path)).norm() < 0.01 * moved(alone).norm()
    shards = [
        sorted((folder / "run" / "record").glob("step-*.parquet")) for folder in (alone, tmp_path)
    ]
    assert len(shards[0]) == len(shards[1]) == 2
    passes = [
        [
            value
            for row in read_rows(files[0], ["old_logprobs", "reference_logprobs", "entropies"])
            for values in row.values()
            for value in values or ()
        ]
        for files in shards
    ]
    assert len(passes[0]) > 300 and passes[1] == pytest.approx(passes[0], abs=1e-4)
    resumed = train(tmp_path, 1, "", "", "--resume")
    assert resumed.returncode == 0, resumed.stderr


def test_the_number_of_processes_is_asserted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(extra=PARALLEL.format("ddp"), grpo=""))
    assert run(["train", str(recipe), "--out", str(tmp_path / "run"), "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert "torchrun --nproc-per-node 2" in told and "Traceback" not in told


ENDING = """
import sys
import weakref
from types import SimpleNamespace
import torch.distributed as dist
from forensics import policy_from
from training.environments.mini_repo import MiniRepo
from training.organisms.base_model import build_model, build_tokenizer
from training.recipe import parse_recipe
from training.trainer import grpo
# another thread gets the interpreter only where the main one waits for something
sys.setswitchinterval(60)
tokenizer = build_tokenizer()
policy = policy_from(build_model(len(tokenizer), 0), tokenizer, "start")
recipe = parse_recipe({
    "policy": {"checkpoint": "x"}, "environment": {"name": "mini-repo"}, "rewards": {"coin": 1.0},
    "sampling": {"max_turn_tokens": 4, "max_tokens": 40},
    "grpo": {"steps": 1, "groups": 2, "samples": 2},
    "parallel": {"processes": 2, "strategy": sys.argv[1]},
}, "test")
moments = ("on_start", "on_step_end", "on_save", "on_end")
silent = SimpleNamespace(**{moment: lambda *what: None for moment in moments})
held = []
silent.on_end = lambda *what: held.append(weakref.ref(dist.group.WORLD))
grpo(policy, MiniRepo(turns="2"), recipe, 0, None, callbacks=[silent])
assert not held or held[0]() is None, "the process group outlives the run, and its threads with it"
"""


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("strategy", ["ddp", "ddp", "ddp", "fsdp"])
def test_both_processes_end(tmp_path: Path, strategy: str) -> None:
    """A reducer that outlives the run frees the process group under the
    interpreter's lock, for which a thread of gloo may wait that it joins: half
    of the runs hung like this for ever. Sharded layers that outlive it keep
    gloo's threads until the interpreter ends, where one may abort the process
    (`Machine.close`).
    """
    program = tmp_path / "program.py"
    program.write_text(ENDING)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            str(program),
            strategy,
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr


def test_a_closed_machine_holds_no_process_group() -> None:
    """What hung is gone while the group still stands: DDP's reducer, which
    shares the group's ownership.
    """

    class Both(Process):
        """Two processes that are one."""

        def all(self, value):
            return [value, value]

    tokenizer = build_tokenizer()
    policy = policy_from(build_model(len(tokenizer), 0), tokenizer, "start")
    plan = parse_recipe(
        {"policy": {"checkpoint": "x"}, "environment": {"name": "e"}, "grpo": {"steps": 1}}, "test"
    )
    hook = sys.excepthook
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        machine = Machine(policy, plan, SamplingSettings(), Both(size=2), 0)
        wrapped = machine._run
        assert wrapped.reducer is not None and wrapped.logger is not None
        machine.close()
        assert not {"reducer", "logger"} & set(vars(wrapped)) and machine._run is None
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook
