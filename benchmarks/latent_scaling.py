"""Latent scaling of all latents: seconds and peak memory of one pass, against
the dense way.

The dense way, as published code does it, decodes one latent after the other for
all rows, or holds rows x latents x width; here it is the cheapest dense form:
two matrix products rows x latents for each model and direction, and dense
codes. What is compared: seconds a pass over the same rows, and the peak above
the dictionary and the rows. Encoding, which both sides need, is measured apart:
`share_of_encoding` is the whole pass over encoding alone.

The second figure is the promise that memory does not grow with latents x batch
x width: the peak at two batch sizes. Each side runs in processes of its own.
"""

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.apart import child, held, peak
from benchmarks.spread import spread

LIMITS = {"speed": 1.0, "peak_growth_with_batch": 1.5}
SIDES = ("ours", "dense", "encoding")


@dataclass(frozen=True, kw_only=True)
class Size:
    """`rows` in blocks of `block`, `width` per model, `latents`, `k` active a row, `tasks`."""

    rows: int
    block: int
    width: int
    latents: int
    k: int
    tasks: int = 64


SIZES = {
    "cpu": Size(rows=16_384, block=4096, width=512, latents=8192, k=32),
    "cuda": Size(rows=262_144, block=16_384, width=2048, latents=65_536, k=64),
}


def run(device: str = "cpu", repeats: int = 3) -> dict[str, Any]:
    """Ratios repeat by repeat: the dense way over ours, ours over encoding, and
    the peak at four times the block.
    """
    size = SIZES[device]
    found = [
        {side: child("benchmarks.latent_scaling", side, device, 1) for side in SIDES}
        for _ in range(repeats)
    ]
    wide = [child("benchmarks.latent_scaling", "ours", device, 4) for _ in range(repeats)]
    return {
        "benchmark": (
            f"latent scaling, {size.rows} rows, {size.width} x 2, {size.latents} latents, k ="
            f" {size.k}"
        ),
        "limits": LIMITS,
        "speed_ratio": spread([row["dense"]["seconds"] / row["ours"]["seconds"] for row in found]),
        "share_of_encoding": spread(
            [row["ours"]["seconds"] / row["encoding"]["seconds"] for row in found]
        ),
        "rows_per_second": spread([size.rows / row["ours"]["seconds"] for row in found]),
        "peak_growth_with_batch": spread(
            [
                four["peak_bytes"] / row["ours"]["peak_bytes"]
                for four, row in zip(wide, found, strict=True)
            ]
        ),
        "peak_mib": {
            side: spread([row[side]["peak_bytes"] / 2**20 for row in found]) for side in SIDES
        },
        "work": {
            "latents x block x width, MiB": size.latents * size.block * size.width * 4 // 2**20
        },
        "device": device,
    }


def measure(side: str, device: str, wider: int = 1) -> dict[str, float]:
    """Seconds (of the processor on a CPU) and peak bytes above what lies there
    before, of one pass.
    """
    import torch

    size = SIZES[device]
    dictionary, stream = _dictionary(size, device), _Made(size, wider, device)
    work = {"ours": _ours, "dense": _dense, "encoding": _encode}[side]
    with torch.no_grad():
        work(dictionary, _Made(size, wider, device, blocks=1))  # loads what is loaded late
        before = held(device)
        clock = time.perf_counter if device == "cuda" else time.process_time
        start = clock()
        work(dictionary, stream)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = clock() - start
    return {"seconds": seconds, "peak_bytes": max(1, peak(device) - before)}


def _dictionary(size: Size, device: str) -> Any:
    """Random TopK: which latents are active does not matter to speed."""
    from crosscoders.dictionaries import Dictionary, DictionaryConfig, Partition

    own = size.latents // 20
    part = Partition(latents=size.latents, before_only=own, after_only=own)
    return Dictionary(
        DictionaryConfig(width=size.width, partition=part, activation="topk", k=size.k)
    ).to(device)


class _Made:
    """Random rows, drawn block by block where they are used: nothing is held."""

    models, site, identity = 2, "synthetic", "synthetic"

    def __init__(self, size: Size, wider: int, device: str, blocks: int | None = None) -> None:
        from crosscoders import TextNote

        self.width, self.block, self.device = size.width, size.block * wider, device
        self.number = blocks or max(1, size.rows // self.block)
        self.tasks = size.tasks
        self.texts = tuple(TextNote(id=str(i), task=str(i)) for i in range(size.tasks))

    def blocks(self, seed: int | None = None) -> Any:
        import numpy as np
        import torch

        from crosscoders import Block, Rows

        generator = torch.Generator(self.device).manual_seed(0)
        text = (np.arange(self.block) % self.tasks).astype(np.int32)
        rows = Rows(**{**vars(Rows.blank(self.block)), "text": text})
        for _ in range(self.number):
            values = torch.randn(self.block, 2, self.width, generator=generator, device=self.device)
            yield Block(activations=values, rows=rows)


def _ours(dictionary: Any, stream: Any) -> None:
    from crosscoders.latents.encoded_blocks import accumulate
    from crosscoders.latents.latent_scale import ScalingAccumulator

    accumulate(dictionary, stream, [ScalingAccumulator(dictionary, stream)])


def _encode(dictionary: Any, stream: Any) -> None:
    from crosscoders.latents.encoded_blocks import accumulate

    accumulate(dictionary, stream, [])


def _dense(dictionary: Any, stream: Any) -> None:
    """The same sums without groups of tasks, from dense codes and dense products."""
    import torch

    directions = dictionary.directions()
    latents = dictionary.config.partition.latents
    squares = torch.zeros(latents, dtype=torch.float64, device=directions.device)
    errors = torch.zeros(latents, 2, 2, dtype=torch.float64, device=directions.device)
    parts = torch.zeros_like(errors)
    for block in stream.blocks():
        scaled = dictionary.scaled(block.activations)
        codes = dictionary.encode(scaled).dense(latents)
        squares += codes.square().sum(0)
        for m in range(2):
            spoken = codes @ directions[:, m]
            for d in range(2):
                parts[:, d, m] += (codes * (spoken @ directions[:, d].T)).sum(0)
                missing = scaled[:, m] - spoken - dictionary.centres[m]
                errors[:, d, m] += (codes * (missing @ directions[:, d].T)).sum(0)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
