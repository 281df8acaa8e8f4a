"""Harvest against the bare forward pass: activation tokens a second, as a share
of what the models alone reach.

Bare pass: both models on the very batches that the harvest makes, already on
the device, with nothing looked at. It comes in two kinds: *stopping*, whose
decoder has no layers behind the site, and *whole*, all layers and the logits of
one position. Harvest: batches made, rows chosen, checked, written into a store, mapped,
pooled and given out in random order. The sides take turns in one process; what is compared on
a CPU is seconds of the processor, which other work disturbs less. Tokens are
those of the texts, so that padding counts against everyone. A second harvest
reads the decision tokens only.
"""

import copy
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

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
    texts, harvested = _harvests(size, models)
    tokens = sum(map(len, texts))
    batches = _batches(size, texts)
    sides: dict[str, Callable[[], None]] = {
        "stopping": _bare(batches, [_cut(model, size.site + 1) for model in models], device),
        "whole": _bare(batches, models, device, logits_to_keep=1),
        "harvest": lambda: _drain(harvested("all")),
        "decisions": lambda: _drain(harvested("deciding")),
    }
    with torch.no_grad():
        turns = [
            {name: _seconds(side, device) for name, side in sides.items()}
            for _ in range(repeats + 1)
        ][1:]
    share = {
        f"{name} / {bare}": _spread([turn[bare] / turn[name] for turn in turns])
        for name in ("harvest", "decisions")
        for bare in ("stopping", "whole")
    }
    return {
        "benchmark": (
            f"harvest of two models, {tokens} tokens, width {size.width}, behind layer"
            f" {size.site + 1} of {size.layers}"
        ),
        "limit": {"harvest / stopping": LIMIT},
        "share_of_bare_pass": share,
        "tokens_per_second": {
            name: _spread([tokens / turn[name] for turn in turns]) for name in sides
        },
        "padding": round(sum(ids.numel() for ids in batches) / tokens, 3),
        "device": device,
    }


def _harvests(size: Size, models: list[Any]) -> tuple[list[Any], Callable[[Any], Any]]:
    """The texts, and what harvests some of their rows."""
    from types import SimpleNamespace

    import numpy as np

    from crosscoders.activations.harvest import HarvestConfig, harvest
    from crosscoders.activations.texts import TokenizedText, plain_text

    random = np.random.default_rng(0)
    texts: list[TokenizedText] = []
    for i, length in enumerate(random.integers(20, size.longest + 1, size.texts)):
        text = plain_text(random.integers(0, VOCABULARY, length).tolist(), f"text {i}")
        text.deciding[::10] = True
        texts.append(text)
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
    site = f"blocks.{size.site}.hook_resid_post"

    def harvested(rows: Any) -> Any:
        return harvest(policies, texts, site, HarvestConfig(batch=size.batch, rows=rows))

    return texts, harvested


def _bare(batches: list[Any], models: list[Any], device: str, **options: Any) -> Callable[[], None]:
    """Both models on the batches of the harvest, one after the other."""
    there = [ids.to(device) for ids in batches]

    def run_models() -> None:
        for ids in there:
            for model in models:
                model(input_ids=ids, use_cache=False, **options)

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

    from crosscoders.activations.store import batches, windows

    lengths, made = [*map(len, texts)], []
    for window in windows(range(len(texts)), lengths, 8 * size.batch):
        for members in batches(window, lengths, size.batch):
            ids = torch.zeros((len(members), max(lengths[i] for i in members)), dtype=torch.int64)
            for row, i in zip(ids, members, strict=True):
                row[: lengths[i]] = torch.from_numpy(texts[i].token_ids)
            made.append(ids)
    return made


def _drain(stream: Any) -> None:
    for block in stream.blocks(0):
        block.activations.sum()  # somebody takes it


def _seconds(side: Callable[[], None], device: str) -> float:
    import torch

    cuda = device.startswith("cuda")
    clock = time.perf_counter if cuda else time.process_time
    start = clock()
    side()
    if cuda:
        torch.cuda.synchronize()
    return clock() - start


def _model(size: Size, seed: int, device: str) -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=size.width,
        intermediate_size=3 * size.width,
        num_attention_heads=8,
        num_hidden_layers=size.layers,
        num_key_value_heads=4,
        head_dim=size.width // 8,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config).to(device=device, dtype=getattr(torch, size.dtype)).eval()


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "min": round(min(values), 3),
        "median": round(statistics.median(values), 3),
        "max": round(max(values), 3),
    }
