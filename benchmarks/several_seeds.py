"""Several seeds of a dictionary side by side against one, at the sizes that `diff` trains on a
small network: 384 latents over two models of width 96, in batches of 250.

Sides take turns on the same batches; told is the ratio of seconds of the processor (of the
device's clock on CUDA), three seeds over one.
"""

import time
from dataclasses import replace
from typing import Any

from benchmarks.apart import spread, wait

WIDTH, BATCH, SEEDS, STEPS = 96, 250, 3, 100
BATCHES = 20


def run(device: str = "cpu", repeats: int = 7) -> dict[str, Any]:
    """The row of this benchmark."""
    import torch

    from crosscoders.dictionaries.crosscoder_trainer import Trainer, stacks

    batches = [_batch(seed).to(device) for seed in range(BATCHES)]
    job, where = _job(), torch.device(device)

    def sides(number: int) -> list[Any]:
        jobs = [
            replace(job, settings=replace(job.settings, weights_seed=seed))
            for seed in range(number)
        ]
        return stacks(Trainer(one, batches[0], where) for one in jobs)

    one, several = sides(1), sides(SEEDS)
    seconds: list[list[float]] = [[], []]
    for repeat in range(repeats + 1):
        for place, side in enumerate((one, several)):
            seconds[place].append(_time(side, batches, device))
            if repeat == 0:
                seconds[place].clear()  # warms up
    alone, together = seconds
    return {
        "benchmark": f"{SEEDS} seeds of a dictionary of {4 * WIDTH} latents over {WIDTH} x 2",
        "limits": "at most 2 times the time of one",
        "ratio": spread([b / a for a, b in zip(alone, together, strict=True)]),
        "milliseconds_a_step": {
            "one": spread([1e3 * each / STEPS for each in alone]),
            f"{SEEDS} together": spread([1e3 * each / STEPS for each in together]),
        },
        "device": device,
    }


def _time(side: list[Any], batches: list[Any], device: str) -> float:
    clock = time.process_time if device == "cpu" else time.perf_counter
    start = clock()
    for step in range(STEPS):
        for stepper in side:
            stepper.step(batches[step % len(batches)])
    wait(device)
    return clock() - start


def _job() -> Any:
    from crosscoders.dictionaries import DictionaryConfig, Partition, TrainerSettings, TrainingJob

    part = Partition(latents=4 * WIDTH, after_only=12, tied=True, readers="all")
    config = DictionaryConfig(width=WIDTH, partition=part, k=12, own_k=2.0)
    settings = TrainerSettings(
        tokens=400_000, batch=BATCH, learning_rate=3e-3, difference_weight=(1.0, 10.0)
    )
    return TrainingJob(config=config, settings=settings)


def _batch(seed: int) -> Any:
    """Sparse sums of known directions; one of them is the second model's alone."""
    import torch

    known = torch.randn((2 * WIDTH, WIDTH), generator=torch.Generator().manual_seed(0))
    known = torch.nn.functional.normalize(known, dim=-1)
    drawn = torch.Generator().manual_seed(seed + 1)
    active = torch.rand((BATCH, len(known)), generator=drawn) < 0.06
    value = active * (1 + torch.rand(active.shape, generator=drawn))
    noise = 0.05 * torch.randn((BATCH, 2, WIDTH), generator=drawn)
    both = torch.stack([value[:, 1:] @ known[1:], value @ known], 1)
    return both + noise
