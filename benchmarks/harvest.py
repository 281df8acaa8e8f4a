"""Harvest against the bare forward pass: activation tokens a second, as a share
of what the models alone reach.

Bare pass: both models on the very batches that the harvest makes, already on
the device, with nothing looked at, without the layers behind the site. Harvest:
batches made, rows chosen, checked, written into a store, mapped, pooled and given out in
random order. The sides take turns in one process; what is compared on a CPU is seconds
of the processor,
which other work disturbs less. Tokens are those of the texts, so that padding counts
against everyone.
"""

import copy
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
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
    texts = _texts(size)
    tokens = sum(map(len, texts))
    sides: dict[str, Callable[[], None]] = {
        "bare": _bare(size, texts, [_cut(model, size.site + 1) for model in models], device),
        "harvest": _harvest(size, texts, models),
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


def _texts(size: Size) -> list[Any]:
    import numpy as np

    from crosscoders.activations.streams import plain_text

    random = np.random.default_rng(0)
    return [
        plain_text(random.integers(0, VOCABULARY, length).tolist(), f"text {i}")
        for i, length in enumerate(random.integers(20, size.longest + 1, size.texts))
    ]


def _harvest(size: Size, texts: list[Any], models: list[Any]) -> Callable[[], None]:
    """Models read, stored and given out in random order."""
    from crosscoders.activations.harvest import HarvestConfig, harvest

    policies = [
        SimpleNamespace(
            model=model,
            identity=f"random {seed}",
            capabilities={"weights", "tokens"},
            tokenizer=SimpleNamespace(get_vocab=dict),
            context_length=None,
            within=nullcontext,
        )
        for seed, model in enumerate(models)
    ]
    site, config = f"blocks.{size.site}.hook_resid_post", HarvestConfig(batch=size.batch)

    def drain() -> None:
        for block in harvest(policies, texts, site, config).blocks(0):
            block.activations.sum()  # somebody takes it

    return drain


def _bare(size: Size, texts: list[Any], models: list[Any], device: str) -> Callable[[], None]:
    """Both models on the batches of the harvest, one after the other."""
    batches = [ids.to(device) for ids in _batches(size, texts)]

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


def _batches(size: Size, texts: list[Any]) -> list[Any]:
    """The padded batches of one pass, as the models get them."""
    import torch

    from crosscoders.activations.harvest import batches, windows

    lengths, made = [*map(len, texts)], []
    for window in windows(range(len(texts)), lengths, 8 * size.batch):
        for members in batches(window, lengths, size.batch):
            ids = torch.zeros((len(members), max(lengths[i] for i in members)), dtype=torch.int64)
            for row, i in zip(ids, members, strict=True):
                row[: lengths[i]] = torch.from_numpy(texts[i].token_ids)
            made.append(ids)
    return made


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
