"""Training a BatchTopK crosscoder: tokens per second at equal width, latents
and k.

Sides, in turn on the same batches:

* ours; and ours with all large products in bfloat16;
* *dictionary_learning*: `BatchTopKCrossCoderTrainer` of jkminder's fork, through
  its own `update`. The package registry has only the original, which has no
  crosscoder, so its repository is given by `--dictionary-learning FOLDER`; left
  out without it. Its defaults, but for the learning rate and no warm-up;
* SAELens' own trainer on concatenated activations, its defaults but for the
  learning rate.

One learning rate for all, and too few steps for a latent to count as dead in
any. It was not tuned for a side, and the losses differ, so `variance_explained`
(of a batch that nobody trained on) compares the sides after `steps` steps, no
more: 60 by default, which is far from the end of a training. When a side has explained
as much as another at its end, and one encoder product beside a step, were measured at
commit 43009eee.
On a CPU the sides take turns; on CUDA one side is there at a time, and its peak of memory
is told beside the plan. `TINY_BENCHMARKS=1` tries it out in seconds.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.apart import held as held_bytes, peak, spread, wait

LIMITS = {
    "speed over dictionary_learning": 5.0,
    "speed over SAELens": 5.0,
}


@dataclass(frozen=True, kw_only=True)
class Size:
    """`batch` rows a step, `steps` of each round."""

    width: int
    latents: int
    k: int
    batch: int
    steps: int


SIZES = {
    "cpu": Size(width=512, latents=8192, k=32, batch=2048, steps=15),
    "cuda": Size(width=2048, latents=65_536, k=64, batch=4096, steps=12),
}
TINY = Size(width=16, latents=64, k=4, batch=64, steps=3)
RATE = 1e-3
OURS = {"ours": "float32", "ours, bfloat16": "bfloat16"}
PEER = "dictionary_learning"  # left out without a copy of its repository
HELD = 10_000  # number of the batch that nobody trains on


@dataclass(frozen=True)
class Side:
    """`step(batch)` trains on `[rows, 2, width]`; `explained(batch)` is the share of its
    variance; `plan`: bytes that it should take.
    """

    step: Callable[[Any], None]
    explained: Callable[[Any], float]
    plan: int | None = None


def run(
    device: str = "cpu", repeats: int = 4, dictionary_learning: Path | None = None
) -> dict[str, Any]:
    """Rounds of the same steps for every side in turn; ratios round by round,
    variance explained at the end, on the batch number `HELD`.
    """
    import torch

    size = TINY if os.environ.get("TINY_BENCHMARKS") else SIZES[device]
    make_batch = world(size, device)
    batches = [make_batch(seed) for seed in range(min(40, size.steps * repeats))]
    made = sides(size, device, batches[0], size.steps * repeats, dictionary_learning)
    seconds: dict[str, list[float]] = {name: [] for name in made}
    explained: dict[str, float] = {}
    memory: dict[str, dict[str, int | None]] = {}
    for group in [[*made]] if device == "cpu" else [[name] for name in made]:
        before = held_bytes(device)
        there = {name: made[name]() for name in group}
        for round_ in range(repeats):
            for name, side in there.items():
                seconds[name].append(_time(side, batches, round_ * size.steps, size.steps, device))
        if device != "cpu":
            memory[group[0]] = {"peak": peak(device) - before, "plan": there[group[0]].plan}
        explained |= {name: side.explained(make_batch(HELD)) for name, side in there.items()}
        there, side = {}, None  # type: ignore[assignment]
        if device != "cpu":
            torch.cuda.empty_cache()
    return {
        "benchmark": (
            f"BatchTopK crosscoder, {size.width} x 2, {size.latents} latents, k {size.k}, batch"
            f" {size.batch}"
        ),
        "limits": LIMITS,
        **_ratios(size, seconds),
        "variance_explained": {name: round(share, 4) for name, share in explained.items()},
        "bytes": memory,
        "steps": (size.steps + 1) * repeats,
        "device": device,
    }


def _ratios(size: Size, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Of each side's rounds."""
    rates = {
        name: [size.steps * size.batch / each for each in found] for name, found in seconds.items()
    }
    return {
        "tokens_per_second": {name: spread(found) for name, found in rates.items()},
        "speed_ratio": {
            f"{ours} over {theirs}": spread(
                [a / b for a, b in zip(rates[ours], rates[theirs], strict=True)]
            )
            for ours in OURS
            for theirs in rates.keys() - OURS.keys()
        },
    }


def _time(side: Side, batches: list[Any], first: int, steps: int, device: str) -> float:
    side.step(batches[first % len(batches)])  # warms up what the other sides pushed out
    wait(device)
    start = time.perf_counter()
    for step in range(first, first + steps):
        side.step(batches[step % len(batches)])
    wait(device)
    return time.perf_counter() - start


def world(size: Size, device: str) -> Callable[[int], Any]:
    """Batches from a known dictionary of half as many directions, a tenth of
    them one model's only, and noise.
    """
    import torch

    generator = torch.Generator(device).manual_seed(0)
    number, own = size.latents // 2, size.latents // 40
    known = torch.randn((number, 2 * size.width), generator=generator, device=device)
    known = torch.nn.functional.normalize(known, dim=-1).view(number, 2, size.width)
    known[:own, 1] = 0
    known[-own:, 0] = 0

    def batch(which: int) -> Any:
        drawn = torch.Generator(device).manual_seed(which + 1)
        chosen = torch.randint(number, (size.batch, size.k), generator=drawn, device=device)
        value = 0.5 + torch.rand((size.batch, size.k), generator=drawn, device=device)
        table = known.flatten(1)
        clean = torch.nn.functional.embedding_bag(
            chosen, table, per_sample_weights=value, mode="sum"
        )
        noise = torch.randn(clean.shape, generator=drawn, device=device)
        scaled = clean + 0.2 * (size.k / (2 * size.width)) ** 0.5 * noise
        return (scaled * (2 * size.width / size.k) ** 0.5).view(size.batch, 2, size.width)

    return batch


def sides(
    size: Size, device: str, first: Any, steps: int, dictionary_learning: Path | None
) -> dict[str, Callable[[], Side]]:
    """How each side is made."""
    made: dict[str, Callable[[], Side]] = {
        name: partial(_ours, size, device, first, steps, precision)
        for name, precision in OURS.items()
    }
    made["SAELens"] = partial(_saelens, size, device, steps)
    if dictionary_learning is not None:
        made[PEER] = partial(_dictionary_learning, size, device, steps, dictionary_learning)
    return made


def _ours(size: Size, device: str, first: Any, steps: int, precision: Any) -> Side:
    import torch

    from crosscoders.dictionaries import (
        DictionaryConfig,
        Partition,
        TrainerSettings,
        TrainingJob,
        memory_plan,
    )
    from crosscoders.dictionaries.crosscoder_trainer import Trainer, forward, training_step

    config = DictionaryConfig(width=size.width, partition=Partition(latents=size.latents), k=size.k)
    settings = TrainerSettings(
        tokens=size.batch * (steps + 8),
        batch=size.batch,
        precision=precision,
        learning_rate=RATE,
        warmup=0,
        decay=0,
        dead_after=10_000_000,
    )
    trainer = Trainer(TrainingJob(config=config, settings=settings), first, torch.device(device))

    def explained(batch: Any) -> float:
        with torch.no_grad():
            scaled = trainer.dictionary.scaled(batch)
            step = training_step(trainer.dictionary)
            errors = forward(trainer.dictionary, scaled, step).errors
        return _explained(errors, scaled)

    plan = memory_plan(config, settings, device=device).training
    return Side(trainer.step, explained, plan)


def _explained(errors: Any, there: Any) -> float:
    return float(1 - errors.square().sum() / (there - there.mean(0)).square().sum())


def _dictionary_learning(size: Size, device: str, steps: int, folder: Path) -> Side:
    """The peer's own trainer from a copy of its repository; `layer` and `lm_name` are only
    written into its config.
    """
    import torch

    if not (folder / "dictionary_learning" / "trainers" / "crosscoder.py").is_file():
        raise SystemExit(f"error: {folder} holds no dictionary_learning/trainers/crosscoder.py")
    sys.path.insert(0, str(folder))
    try:
        from dictionary_learning.trainers.crosscoder import BatchTopKCrossCoderTrainer
    finally:
        sys.path.remove(str(folder))
    trainer = BatchTopKCrossCoderTrainer(
        steps=steps + 8,
        activation_dim=size.width,
        dict_size=size.latents,
        k=size.k,
        layer=0,
        lm_name="none",
        lr=RATE,
        warmup_steps=0,
        seed=0,
        device=device,
    )
    taken = itertools.count()

    def explained(batch: Any) -> float:
        with torch.no_grad():
            codes = trainer.ae.encode(batch, use_threshold=False)
            return _explained(trainer.ae.decode(codes) - batch, batch)

    return Side(lambda batch: trainer.update(next(taken), batch), explained)


def _saelens(size: Size, device: str, steps: int) -> Side:
    """SAELens' own trainer on concatenated activations."""
    import torch
    from sae_lens.config import SAETrainerConfig
    from sae_lens.saes.batchtopk_sae import BatchTopKTrainingSAE, BatchTopKTrainingSAEConfig
    from sae_lens.saes.sae import TrainStepInput
    from sae_lens.training.sae_trainer import SAETrainer

    torch.manual_seed(0)  # theirs takes no generator
    config = BatchTopKTrainingSAEConfig(
        d_in=2 * size.width, d_sae=size.latents, k=size.k, device=device
    )
    sae = BatchTopKTrainingSAE(config)
    samples = size.batch * (steps + 8)
    trainer: Any = SAETrainer(
        SAETrainerConfig(
            total_training_samples=samples,
            train_batch_size_samples=size.batch,
            lr_end=0.0,  # of schedules that are not the default
            device=device,
            lr=RATE,
            dead_feature_window=10_000,
        ),
        sae,
        data_provider=iter(()),
    )

    def explained(batch: Any) -> float:
        rows = batch.flatten(1)
        given = TrainStepInput(
            sae_in=rows,
            coefficients={},
            dead_neuron_mask=None,
            n_training_steps=steps,
            is_logging_step=False,
        )
        with torch.no_grad():
            return _explained(sae.training_forward_pass(given).sae_out - rows, rows)

    return Side(lambda batch: trainer.step(batch.flatten(1)), explained)
