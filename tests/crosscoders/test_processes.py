"""Several processes of one training give what one gives: quickly with threads that exchange
what processes would, and slowly with real ones, killed and resumed.
"""

import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from crosscoders.activation_functions.builtin import BatchTopK, batch_topk
from crosscoders.dictionaries.crosscoder_run import endless_batches, train_crosscoder
from crosscoders.dictionaries.crosscoder_trainer import Trainer
from crosscoders.dictionaries.processes import ALONE, Processes
from forensics.errors import UserError
from tests.crosscoders.shared_training import (
    JOBS,
    PARTS,
    STEPS,
    WIDTH,
    job,
    numbers,
    stream,
    trained,
)

REDUCE = {"SUM": torch.sum, "MIN": torch.amin, "MAX": torch.amax}


@dataclass(frozen=True, kw_only=True)
class Threads(Processes):
    """Processes that are threads: they wait for one another and see each other's values."""

    barrier: threading.Barrier
    given: dict[int, Any] = field(default_factory=dict)

    def _reduce_(self, value: torch.Tensor, how: Any) -> None:
        self.given[self.rank] = value.clone()
        self.barrier.wait(60)
        parts = torch.stack([self.given[rank] for rank in range(self.size)])
        self.barrier.wait(60)
        value.copy_(REDUCE[str(how).split(".")[-1]](parts, 0))


def in_threads(number: int, work: Any) -> list[Any]:
    barrier, given, found = threading.Barrier(number), {}, [None] * number

    def one(rank: int) -> None:
        try:
            found[rank] = work(Threads(rank=rank, size=number, barrier=barrier, given=given))
        except BaseException:
            barrier.abort()
            raise

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The largest relative distance of two sets of numbers."""
    assert one.keys() == other.keys()
    return max(
        float((value - other[name]).norm() / value.norm().clamp(min=1e-30))
        for name, value in one.items()
    )


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The largest relative distance of two dictionaries."""
    joined = [
        {name: torch.cat([v.flatten() for key, v in each.items() if key.split()[0] == name])}
        for name in JOBS
        for each in (one, other)
    ]
    return max(distance(a, b) for a, b in zip(joined[::2], joined[1::2], strict=True))


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("activation", ["batchtopk", "topk", "jumprelu"])
def test_three_give_what_one_gives(name: str, activation: str) -> None:
    """Weights, moments, threshold, counters and measures after 20 steps; 50 rows among 3."""
    if name == "apart" and activation != "batchtopk":
        pytest.skip("only BatchTopK chooses apart")
    asked = job(name, activation)

    def steps(processes: Processes) -> tuple[dict[str, torch.Tensor], Any]:
        first, _, _ = next(endless_batches(stream(), asked.settings, 0, 0))
        trainer = Trainer(asked, first, torch.device("cpu"), processes)
        batches = endless_batches(stream(), asked.settings, 0, 0)
        for _ in range(STEPS):
            trainer.step(next(batches)[0])
        return trainer.state(), trainer.measures()

    alone, measures = steps(ALONE)
    assert float(alone["steps"]) == STEPS and (
        measures["dead_share"] > 0 or activation == "jumprelu"
    )
    for state, others in in_threads(3, steps):
        for told in ("silent", "dead", "generator"):
            assert torch.equal(alone[told], state[told]), told
        weights = {n: v.double() for n, v in state.items() if v.is_floating_point()}
        assert distance({n: alone[n].double() for n in weights}, weights) < 1e-5
        for key, value in measures.items():
            assert others[key] == pytest.approx(value, rel=1e-5), key


@pytest.mark.parametrize("seed", range(30))
def test_the_largest_are_those_of_all_processes_whatever_the_values(seed: int) -> None:
    """Many equal values too, and shares that hold most or nothing of what is kept."""
    generator = torch.Generator().manual_seed(seed)
    pre = torch.randn((13, 20), generator=generator) + seed % 3 - 1
    pre = (pre * 4).round() / 4 if seed % 2 else pre
    pre[: seed % 7] += 3
    number = 1 + seed * 8
    parts = torch.arange(13).tensor_split(3)
    chosen = in_threads(3, lambda one: batch_topk(one.share(pre), number, one))
    assert all(found.tolist() == sorted(set(found.tolist())) for found in chosen)
    values = torch.cat(
        [pre[part].flatten()[found] for part, found in zip(parts, chosen, strict=True)]
    )
    expected = pre.flatten().sort(descending=True).values[:number]
    assert values.sort(descending=True).values.tolist() == expected[expected > 0].tolist()


def test_what_cannot_be_shared_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = job("plain")
    with pytest.raises(UserError, match=r"wants 2 processes and 1 runs; start your script with"):
        train_crosscoder(stream(), asked.config, asked.settings, processes=2)
    with pytest.raises(UserError, match="4 processes cannot share a batch of 3 rows"):
        Processes(rank=1, size=4).share(torch.zeros(3, 2, WIDTH))
    monkeypatch.setattr(BatchTopK, "shared_out", False)
    with pytest.raises(UserError, match="batchtopk chooses among the rows of a batch"):
        train_crosscoder(stream(), asked.config, asked.settings, processes=2)
    monkeypatch.setenv("WORLD_SIZE", "2")  # somebody else's processes
    train_crosscoder(stream(), asked.config, asked.settings)


def launched(folder: Path, *given: object) -> subprocess.CompletedProcess[str]:
    run = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = Path(__file__).with_name("shared_training.py")
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-m", *run, str(script), str(folder), *map(str, given)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": root},
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_real_processes_killed_and_resumed_give_what_one_gives(tmp_path: Path) -> None:
    """Killed before steps 7 and 14, behind the checkpoints of 4 and 12; what two have begun is
    resumed by two, and by one. All weights together: where the gradient of a bias cancels but
    for rounding, Adam moves that one bias by a whole step.
    """
    whole = trained(None)
    for cut in (7, 14):
        assert launched(tmp_path, 2, cut).returncode != 0
        assert not (tmp_path / "0.pt").exists()
        assert (tmp_path / "training" / f"step-{cut - cut % 4:08d}").is_dir()
    other = trained(tmp_path / "training")
    assert apart(numbers(whole), numbers(other)) < 1e-5
    again = tmp_path / "again"
    again.mkdir()
    assert launched(again, 2, 7).returncode != 0
    done = launched(again, 2)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        told = torch.load(again / f"{rank}.pt", weights_only=False)
        assert apart(numbers(whole), told["numbers"]) < 1e-5
        for name, one in whole.items():
            assert [row["step"] for row in told["history"][name]] == [5, 10, 15, 20]
            for row, mine in zip(one.history, told["history"][name], strict=True):
                assert mine["loss"] == pytest.approx(row["loss"], rel=1e-5)
