"""The state of two sharded processes: each writes its rows, and one or two go on from them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from forensics.errors import UserError
from forensics.policies import identify_folder, pieces, trained_tensors
from forensics.records import read_json, write_json
from training.live.watcher import saved_folders
from training.run_state import load_state, read_shards

PROGRAM = """
import os
import signal
import sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor
from training import run_state
from training.distributed import join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

gathers = []
once = DTensor.full_tensor
DTensor.full_tensor = lambda self, **how: (gathers.append(self.shape), once(self, **how))[1]
folder, size, phase = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
process = join(size, "fsdp", "cpu")
torch.manual_seed(int(phase != "start"))  # a resumed run begins with other weights
model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 1))
if size > 1:
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)


def step(number):
    optimizer.zero_grad()
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(number))
    model(x).square().mean().backward()
    optimizer.step()


begun = run_state.load_state(folder, model, optimizer)["step"] if phase != "start" else 0
for number in range(begun, begun + 2 if not begun else begun + 1):
    step(number)
if phase == "killed" and process.rank == 1:
    run_state.write_shards = lambda *what: os.kill(os.getpid(), signal.SIGKILL)
run_state.save_state(folder, model, optimizer, number + 1, process=process)
assert not gathers, "somebody held a whole tensor"


def tell(file):
    whole = {name: run_state.whole(value) for name, value in model.state_dict().items()}
    if process.first:
        save_file(whole, folder / file)


tell("told.safetensors")
if phase == "start":
    step(number + 1)
    tell("straight.safetensors")
process.wait()
os._exit(0)  # gloo's threads may abort an interpreter that ends under them (`Machine.close`)
"""


def run(folder: Path, processes: int, phase: str) -> dict[str, torch.Tensor]:
    """Two steps from the start, or one from the state; the weights then."""
    folder.mkdir(exist_ok=True)
    program = folder / "program.py"
    program.write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [
            sys.executable,
            *(launcher if processes > 1 else []),
            *(str(program), str(folder), str(processes), phase),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (done.returncode == 0) == (phase != "killed"), done.stderr
    return load_file(folder / "told.safetensors")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_sharded_state_goes_on_with_two_and_with_one(tmp_path: Path) -> None:
    """The rows of five and of one, in two processes, are uneven and none. Both go on from the
    same weights and moments, bit for bit, and no whole tensor is held while saving. A process
    that is killed while a state is written leaves the one before.
    """
    before = run(tmp_path / "two", 2, "start")
    state = tmp_path / "two" / "state" / "step-000002"
    assert sorted(file.name for file in state.iterdir()) == [
        "shard-00000-of-00002.safetensors",
        "shard-00001-of-00002.safetensors",
        "shards.json",
        "state.json",
    ]
    for place in trained_tensors(state):
        assert b"".join(pieces(place)) == before[place.name].numpy().tobytes()
    (found,) = saved_folders(tmp_path, tmp_path / "watch")
    assert found.kind == "state" and found.lacks() is None
    run(tmp_path / "two", 2, "killed")  # one process while the state of step 3 is written
    for other in ("one", "whole"):
        shutil.copytree(tmp_path / "two", tmp_path / other)
    older = tmp_path / "whole" / "state" / "step-000002"
    identity = identify_folder(older)
    _make_whole(older)
    assert identify_folder(older) == identity
    two, one = run(tmp_path / "two", 2, "resume"), run(tmp_path / "one", 1, "resume")
    old = run(tmp_path / "whole", 2, "resume")
    straight = load_file(tmp_path / "two" / "straight.safetensors")
    for name in before:
        assert torch.equal(two[name], straight[name]) and torch.equal(one[name], straight[name])
        assert torch.equal(old[name], straight[name]), "an older state"
        assert not torch.equal(one[name], before[name])
    _refuses_a_damaged_state(tmp_path / "one", tmp_path / "two" / "state" / "step-000003")


def _make_whole(state: Path) -> None:
    """As earlier versions wrote it."""
    number = torch.empty(())
    for group in ("weights.safetensors", "optimizer.safetensors"):
        save_file(
            {name: read(number) for name, read in read_shards(state, group).items()}, state / group
        )
    for file in (*state.glob("shard-*"), state / "shards.json"):
        file.unlink()


def _refuses_a_damaged_state(folder: Path, state: Path) -> None:
    shutil.rmtree(folder)
    target = folder / "state" / state.name
    shutil.copytree(state, target)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    index = read_json(target / "shards.json")
    cut = read_json(target / "shards.json")
    cut["weights.safetensors"]["0.weight"]["parts"].pop()
    write_json(target / "shards.json", cut)
    with pytest.raises(UserError, match="does not fit its files"):
        load_state(folder, model, optimizer)
    write_json(target / "shards.json", index)
    assert load_state(folder, model, optimizer)["step"] == 3
    (target / "shard-00001-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match="is missing"):
        load_state(folder, model, optimizer)
