"""Harvest against the bare forward pass: activation tokens a second, as a share
of what the models alone reach.

Bare pass: both models on the very batches that the harvest makes, already on
the device, with nothing looked at, without the layers behind the site. Harvest:
the shuffled stream (batches made, rows chosen, checked, pooled and given out). The
sides take turns in one process; what is compared on a CPU is seconds of the processor,
which other work disturbs less. Tokens are those of the texts, so that padding counts
against everyone.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.apart import random_qwen3, spread, wait

LIMIT = 0.9
VOCABULARY = 8192


@dataclass(frozen=True, kw_only=True)
class Size:
    """`texts` of 20 to `longest` tokens; models of `width` and `layers`, read
    behind layer `site`.
    """

    texts: int
    longest: int
    width: int
    layers: int
    site: int
    batch: int
    dtype: str


SIZES = {
    "cpu": Size(texts=64, longest=120, width=256, layers=4, site=1, batch=2048, dtype="float32"),
    "cuda": Size(
        texts=4096, longest=1000, width=2048, layers=16, site=8, batch=32768, dtype="bfloat16"
    ),
}


def run(device: str = "cpu", repeats: int = 3) -> dict[str, Any]:
    """Shares of the bare pass's tokens a second, turn by turn."""
    import torch

    size = SIZES["cuda" if device.startswith("cuda") else "cpu"]
    models = [_model(size, seed, device) for seed in (0, 1)]
    stream = _stream(size, models, device)
    tokens = sum(len(text) for text in stream.tokenized)
    sides: dict[str, Callable[[], None]] = {
        "bare": _bare(stream, [_cut(model, size.site + 1) for model in models], device),
        "harvest": lambda: _drain(stream),
    }
    with torch.no_grad():
        turns = [
            {name: _seconds(side, device) for name, side in sides.items()}
            for _ in range(repeats + 1)
        ][1:]
    return {
        "benchmark": (
            f"harvest of two models, {tokens} tokens, width {size.width}, behind layer"
            f" {size.site + 1} of {size.layers}"
        ),
        "limit": LIMIT,
        "share_of_bare_pass": spread([turn["bare"] / turn["harvest"] for turn in turns]),
        "tokens_per_second": {
            name: spread([tokens / turn[name] for turn in turns]) for name in sides
        },
        "device": device,
    }


def _stream(size: Size, models: list[Any], device: str) -> Any:
    import numpy as np
    import torch

    from crosscoders.activations.harvest_stream import HarvestConfig, Reader, harvest
    from crosscoders.activations.texts import plain_text
    from forensics.policies.sites import read_sites

    random = np.random.default_rng(0)
    texts = [
        plain_text(random.integers(0, VOCABULARY, length).tolist(), f"text {i}")
        for i, length in enumerate(random.integers(20, size.longest + 1, size.texts))
    ]
    readers = [
        Reader(
            identity=f"random {seed}",
            read=partial(read_sites, model),
            vocabulary={},
            tokens=VOCABULARY,
            positions=None,
            device=torch.device(device),
            dtype=model.dtype,
        )
        for seed, model in enumerate(models)
    ]
    site = f"blocks.{size.site}.hook_resid_post"
    return harvest(readers, texts, site, HarvestConfig(batch=size.batch))


def _bare(stream: Any, models: list[Any], device: str) -> Callable[[], None]:
    """Both models on the batches of the stream, one after the other."""
    batches = [ids.to(device) for ids in _batches(stream)]

    def run_models() -> None:
        for ids in batches:
            for model in models:
                model(input_ids=ids, use_cache=False)

    return run_models


def _cut(model: Any, layers: int) -> Any:
    """The decoder with its first layers only, sharing their weights."""
    decoder = copy.copy(model.model)
    decoder._modules = dict(decoder._modules) | {"layers": model.model.layers[:layers]}
    decoder.config = copy.deepcopy(model.config)
    decoder.config.num_hidden_layers = layers
    return decoder


def _batches(stream: Any) -> list[Any]:
    """The padded batches of one pass, as the readers get them."""
    import torch

    from crosscoders.activations.harvest_stream import HarvestStream, Reader

    seen: list[torch.Tensor] = []

    def look(ids: torch.Tensor, sites: Any) -> list[torch.Tensor]:
        seen.append(ids)
        return [torch.zeros((*ids.shape, 1)) for _ in sites]

    reader = Reader(
        identity="",
        read=look,
        vocabulary={},
        tokens=VOCABULARY,
        positions=None,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    for _ in HarvestStream([reader], stream.tokenized, stream.site, stream.config, 1).blocks(0):
        pass
    return seen


def _drain(stream: Any) -> None:
    for block in stream.blocks(0):
        block.activations.sum()  # somebody takes it


def _seconds(side: Callable[[], None], device: str) -> float:
    clock = time.perf_counter if device.startswith("cuda") else time.process_time
    start = clock()
    side()
    wait(device)
    return clock() - start


def _model(size: Size, seed: int, device: str) -> Any:
    return random_qwen3(
        size.dtype,
        seed,
        device,
        vocab_size=VOCABULARY,
        hidden_size=size.width,
        intermediate_size=3 * size.width,
        num_attention_heads=8,
        num_hidden_layers=size.layers,
        num_key_value_heads=4,
        head_dim=size.width // 8,
    )
