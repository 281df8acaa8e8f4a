"""A training that several processes share: `torchrun ... shared_training.py FOLDER PROCESSES
[KILLED]`, which writes FOLDER/RANK.pt; before step KILLED its last process is killed.
"""

import os
import signal
import sys
from pathlib import Path

import torch

from crosscoders.activations.streams import Rows
from crosscoders.dictionaries import DictionaryConfig, Partition, TrainerSettings, TrainingJob
from crosscoders.dictionaries.crosscoder_run import TrainedDictionary, train_crosscoders
from crosscoders.dictionaries.crosscoder_trainer import Trainer
from tests.crosscoders.tensor_stream import TensorStream

WIDTH, STEPS = 12, 20
PARTS: dict[str, dict[str, float]] = {"plain": {}, "apart": {"own_k": 1.0}}
JOBS = {"plain": 0, "apart": 0, "twin": 1}  # seeds of the weights; alone a twin is stacked


def stream() -> TensorStream:
    generator = torch.Generator().manual_seed(0)
    known = torch.randn((24, 2, WIDTH), generator=generator)
    value = torch.rand((700, 24), generator=generator)
    rows = torch.einsum("rl,lmw->rmw", (value > 0.85) * value, known)
    return TensorStream(activations=rows, rows=Rows.blank(700), block=100)


def job(name: str, activation: str = "batchtopk", weights_seed: int = 0) -> TrainingJob:
    """Some latents die and are revived, and the difference weighs, on the way."""
    parted = Partition(latents=200, before_only=6, after_only=6, tied=True, readers="all")
    partition = parted if name == "apart" else Partition(latents=200)
    return TrainingJob(
        config=DictionaryConfig(
            width=WIDTH, partition=partition, k=3, activation=activation, **PARTS.get(name, {})
        ),
        settings=TrainerSettings(
            tokens=STEPS * 50,
            batch=50,
            learning_rate=1e-3,
            dead_after=150,
            auxiliary_latents=4,
            difference_weight=(0.0, 1.0),
            weights_seed=weights_seed,
            scale_rows=200,
            log_every=5,
            save_every=4,
        ),
    )


def trained(folder: Path | None, processes: int = 1) -> dict[str, TrainedDictionary]:
    return train_crosscoders(
        stream(),
        {name: job(name, weights_seed=seed) for name, seed in JOBS.items()},
        folder=folder,
        resume=True,
        device="cpu",
        processes=processes,
    )


def numbers(found: dict[str, TrainedDictionary]) -> dict[str, torch.Tensor]:
    return {
        f"{name} {part}": value.clone()
        for name, one in found.items()
        for part, value in one.dictionary.state_dict().items()
    }


def killed_before(step: int) -> None:
    taken = Trainer.step

    def step_or_die(trainer: Trainer, batch: torch.Tensor) -> None:
        if trainer.steps_done + 1 == step and trainer.processes.rank:
            os.kill(os.getpid(), signal.SIGKILL)
        taken(trainer, batch)

    Trainer.step = step_or_die  # type: ignore[method-assign]


if __name__ == "__main__":
    place, wanted = Path(sys.argv[1]), int(sys.argv[2])
    if len(sys.argv) > 3:
        killed_before(int(sys.argv[3]))
    done = trained(place / "training", wanted)
    history = {name: one.history for name, one in done.items()}
    rank = os.environ.get("RANK", "0")
    torch.save({"numbers": numbers(done), "history": history}, place / f"{rank}.pt")
