"""Training a BatchTopK crosscoder: seconds until as much of the variance is explained as a
peer explains at the end of its training.

Sides as in `dictionaries`, with their own defaults for so many steps, in turn on the same
batches, each used once. After every block of steps each is asked what it explains of a batch
that nobody trains on; asking is not timed. `seconds`: those of a peer's whole training, and
ours until it has reached the same (None: never); on a CPU of the processor. Each repeat is
another world.
"""

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.apart import spread, wait
from benchmarks.dictionaries import HELD, OURS, TINY, Side, Size, sides, world

LIMITS = {"time to equal variance explained": 10.0}
SIZES = {
    "cpu": Size(width=128, latents=2048, k=16, batch=1024, steps=600),
    "cuda": Size(width=1024, latents=16_384, k=32, batch=4096, steps=300),
}
BLOCKS = 60
Curve = list[tuple[float, float]]  # seconds so far, variance explained


def run(
    device: str = "cpu", repeats: int = 3, dictionary_learning: Path | None = None
) -> dict[str, Any]:
    """Ratios of seconds to equal variance explained, a repeat each."""
    size = TINY if os.environ.get("TINY_BENCHMARKS") else SIZES[device]
    told = [_curves(size, device, seed, dictionary_learning) for seed in range(repeats)]
    found = [
        _compared(ours, theirs, curves) | {"repeat": number}
        for number, curves in enumerate(told)
        for theirs in curves.keys() - OURS.keys()
        for ours in curves.keys() & OURS.keys()
    ]
    ratios: dict[str, list[float]] = {}
    for row in found:
        if row["ratio"] is not None:
            ratios.setdefault(f"{row['ours']} over {row['peer']}", []).append(row["ratio"])
    return {
        "benchmark": (
            f"time to equal variance explained, {size.width} x 2, {size.latents} latents, k"
            f" {size.k}, batch {size.batch}, {size.steps} steps, each side's own defaults"
        ),
        "limits": LIMITS,
        "ratio": {name: spread(each) | {"of": len(each)} for name, each in ratios.items()},
        "rows": found,
        "device": device,
    }


def _curves(size: Size, device: str, seed: int, folder: Path | None) -> dict[str, Curve]:
    make_batch = world(size, device, seed)
    first, held = make_batch(0), make_batch(HELD)
    made = sides(size, device, first, size.steps, folder, rate=None)
    if device == "cpu":
        del made["ours, bfloat16"]
    there: dict[str, Side] = {name: make() for name, make in made.items()}
    curves: dict[str, Curve] = {name: [(0.0, side.explained(held))] for name, side in there.items()}
    each = max(1, size.steps // BLOCKS)
    clock = time.process_time if device == "cpu" else time.perf_counter
    for block in range(size.steps // each):
        batches = [make_batch(block * each + number) for number in range(each)]
        for name, side in there.items():
            wait(device)
            start = clock()
            for batch in batches:
                side.step(batch)
            wait(device)
            seconds = curves[name][-1][0] + clock() - start
            curves[name].append((seconds, side.explained(held)))
    return curves


def _compared(ours: str, peer: str, curves: dict[str, Curve]) -> dict[str, Any]:
    theirs, end = curves[peer][-1]
    reached = next((at for at, explained in curves[ours][1:] if explained >= end), None)
    return {
        "ours": ours,
        "peer": peer,
        "explained": {peer: round(end, 4), ours: round(curves[ours][-1][1], 4)},
        "seconds": {peer: theirs, ours: reached, f"{ours}, all steps": curves[ours][-1][0]},
        "ratio": None if reached is None else theirs / max(reached, 1e-9),
    }
