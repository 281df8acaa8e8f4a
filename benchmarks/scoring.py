"""Scoring existing tokens under two checkpoints: the chunked projection against
full logits, vocabulary 152k.

The peer is the usual way: the model's logits of all positions, then the chosen
logit minus the log of the sum. Each side runs in processes of its own, in turn;
what is compared is seconds (on a CPU those of the processor, which other work
on the machine disturbs less), and the peak of memory above what the two models
take, as a share of one array of full logits in float32. Neither side computes
entropies. Models are random Qwen3 of few layers, so that the output layer is
most of the work: with more layers the speeds draw together.
"""

import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.apart import VOCABULARY, child, measured, random_qwen3, spread

LIMITS = {"memory": 1 / 8, "speed": 1.0}
SIDES = ("chunked", "full logits")


@dataclass(frozen=True, kw_only=True)
class Size:
    """`rows` x `length` tokens; `width` and `layers` of the models; `chunk` positions at once."""

    rows: int
    length: int
    width: int
    layers: int
    chunk: int
    dtype: str

    @property
    def full_logits(self) -> int:
        """Bytes of the logits of all positions in float32."""
        return self.rows * (self.length - 1) * VOCABULARY * 4


SIZES = {
    "cpu": Size(rows=12, length=257, width=256, layers=2, chunk=64, dtype="float32"),
    "cuda": Size(rows=16, length=1025, width=1024, layers=4, chunk=512, dtype="bfloat16"),
}


def run(device: str = "cpu", repeats: int = 3) -> dict[str, Any]:
    """Ratios pair by pair: speed of ours over the peer's, and each side's peak
    over one array of full logits.
    """
    turns = [
        {side: child("benchmarks.scoring", side, device) for side in SIDES} for _ in range(repeats)
    ]
    ours, theirs = ([turn[side] for turn in turns] for side in SIDES)
    pairs, size = list(zip(ours, theirs, strict=True)), SIZES[device]
    return {
        "benchmark": (
            f"two checkpoints, {size.rows} x {size.length - 1} tokens, vocabulary {VOCABULARY}"
        ),
        "limits": LIMITS,
        "speed_ratio": spread([b["seconds"] / a["seconds"] for a, b in pairs]),
        "peak_over_full_logits": {
            side: spread([turn[side]["peak_bytes"] / size.full_logits for turn in turns])
            for side in SIDES
        },
        "seconds": {side: spread([turn[side]["seconds"] for turn in turns]) for side in SIDES},
        "gap_of_mean_logprobs": max(abs(a["mean_logprob"] - b["mean_logprob"]) for a, b in pairs),
        "device": device,
    }


def measure(side: str, device: str, times: int = 1) -> dict[str, float]:
    """Median seconds of scoring under both models, the peak of memory above the
    models, and what was computed.
    """
    import torch

    size = SIZES[device]
    models = [_model(size, seed, device) for seed in (0, 1)]
    ids = torch.randint(
        VOCABULARY, (size.rows, size.length), generator=torch.Generator().manual_seed(2)
    ).to(device)
    score = _score(side, size)

    def work() -> float:
        return statistics.mean(score(model, ids).double().mean().item() for model in models)

    with torch.no_grad():
        return measured(lambda: score(models[0], ids[:1, :3]), work, device, times)


def _score(side: str, size: Size) -> Callable[[Any, Any], Any]:
    from forensics.policies.scorer import token_logprobs_and_entropies
    from forensics.protocols import SamplingSettings

    def chunked(model: Any, ids: Any) -> Any:
        return token_logprobs_and_entropies(
            model, ids, SamplingSettings(), chunk=size.chunk, entropies=False
        )[0]

    def full(model: Any, ids: Any) -> Any:
        logits = model(ids[:, :-1], use_cache=False).logits.float()
        return logits.gather(-1, ids[:, 1:, None]).squeeze(-1) - logits.logsumexp(-1)

    return {"chunked": chunked, "full logits": full}[side]


def _model(size: Size, seed: int, device: str) -> Any:
    return random_qwen3(
        size.dtype,
        seed,
        device,
        hidden_size=size.width,
        intermediate_size=3 * size.width,
        num_attention_heads=4,
        num_hidden_layers=size.layers,
        head_dim=size.width // 4,
    )


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:3])))
