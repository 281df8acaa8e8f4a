"""Scoring a log of uneven texts under two checkpoints, vocabulary 152k: ours
against the two usual ways.

The log: tasks with four runs each, which share their prompt and nothing else; a
run takes turns of actions and observations, so that its length is anything
between one and eight turns. The peers, both in batches of eight texts in the
order of the log:

* *trl*: as TRL's trainers lay out a batch (prompts filled up on the left,
  completions on the right), logits of the completion, then TRL's own
  `selective_log_softmax`.
* *loop*: texts filled up on the right, all logits, `log_softmax`, gather.

Each side runs in a process of its own, in turn. The peers give
log-probabilities; ours gives every standard column (entropy, KL, self-certainty
and top log-probability, too). On a CPU seconds are those of the processor,
which other work on the machine disturbs less. Memory is the peak above what the
two models take. On CUDA the share of the forward pass's roofline is told as
well: operations of products with weights, for the tokens of all texts but those
that are read once for several, over the time and the device's measured speed of
such products.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from benchmarks.apart import VOCABULARY, child, held, peak, random_qwen3
from benchmarks.spread import spread

LIMITS = {"speed": 2.0, "memory": 1 / 8}
SIDES = ("ours", "trl", "loop")
SAMPLES = 4
ROWS = 8  # texts in a batch of the peers


@dataclass(frozen=True, kw_only=True)
class Size:
    """The log: `tasks`; tokens of a prompt, an action and an observation up to
    these. The models: the rest.
    """

    tasks: int
    prompt: int
    action: int
    observation: int
    width: int
    inner: int
    layers: int
    heads: int
    dtype: str


SIZES = {
    "cpu": Size(
        tasks=6,
        prompt=120,
        action=16,
        observation=48,
        width=512,
        inner=1536,
        layers=3,
        heads=8,
        dtype="float32",
    ),
    # the shape of a Qwen of half a billion parameters
    "cuda": Size(
        tasks=64,
        prompt=600,
        action=100,
        observation=200,
        width=896,
        inner=4864,
        layers=24,
        heads=14,
        dtype="bfloat16",
    ),
}


def run(device: str = "cpu", repeats: int = 3) -> dict[str, Any]:
    """Ratios, repeat by repeat: how many times faster ours is, and its share of
    the peer's memory.
    """
    kind = device.split(":")[0]
    found = [
        {side: child("benchmarks.log_scoring", side, device) for side in SIDES}
        for _ in range(repeats)
    ]
    peers = SIDES[1:]
    gaps = [
        abs(one["ours"]["mean_logprob"] - one[peer]["mean_logprob"])
        for one in found
        for peer in peers
    ]
    size = SIZES[kind]
    return {
        "benchmark": (
            f"both checkpoints over a log of {size.tasks * SAMPLES} texts, vocabulary {VOCABULARY}"
        ),
        "limits": LIMITS,
        "speed": {
            peer: spread([one[peer]["seconds"] / one["ours"]["seconds"] for one in found])
            for peer in peers
        },
        "memory": {
            peer: spread([one["ours"]["peak_bytes"] / one[peer]["peak_bytes"] for one in found])
            for peer in peers
        },
        "tokens_per_second": {
            side: spread([one[side]["tokens"] / one[side]["seconds"] for one in found])
            for side in SIDES
        },
        "peak_mib": {
            side: spread([one[side]["peak_bytes"] / 2**20 for one in found]) for side in SIDES
        },
        "roofline": spread([one["ours"]["roofline"] for one in found]) if kind == "cuda" else None,
        "work": {
            "tokens": found[0]["ours"]["tokens"],
            "sampled": found[0]["ours"]["sampled"],
            "gap_of_mean_logprobs": max(gaps),
        },
        "device": device,
    }


def measure(side: str, device: str, times: int = 1) -> dict[str, float]:
    """Median seconds, the peak of memory above the models, and what was computed."""
    import torch

    size = SIZES[device.split(":")[0]]
    models = [_model(size, seed, device) for seed in (0, 1)]
    log = _log(size)
    score = {"ours": ours, "trl": padded, "loop": _loop}[side]
    clock = time.process_time if device == "cpu" else time.perf_counter
    seconds, mean = [], 0.0
    score(models, log[:1])  # loads what is loaded late
    before = held(device)
    for _ in range(times + (device != "cpu")):  # on a GPU the first warms up
        start = clock()
        mean = score(models, log)
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(clock() - start)
    tokens = sum(len(step.token_ids or ()) for run in log for step in run.steps)
    taken = statistics.median(seconds[-times:])
    return {
        "seconds": taken,
        "peak_bytes": max(1, peak(device) - before),
        "mean_logprob": mean,
        "tokens": 2 * tokens,
        "sampled": sum(run.sampled_tokens or 0 for run in log),
        "roofline": (
            _roofline(models[0], log, taken, device) if side == "ours" and device != "cpu" else 0.0
        ),
    }


def ours(models: list[Any], log: list[Any]) -> float:
    """`score_log`, every standard column."""
    import numpy as np

    from probes import score_log

    policies = [_Bare(model=model, identity=str(number)) for number, model in enumerate(models)]
    scored = list(score_log(policies[0], policies[1], log))
    columns = [
        np.concatenate([one.columns[name] for one in scored]) for name in ("policy", "reference")
    ]
    return float(np.mean(columns))


@dataclass(frozen=True, kw_only=True)
class _Bare:
    """A model without a tokenizer, which a log with token ids does not need."""

    model: Any
    identity: str
    capabilities = frozenset({"weights"})
    within = nullcontext


def padded(models: list[Any], log: list[Any], rows: int = ROWS) -> float:
    """As TRL lays out a batch, `rows` texts at a time."""
    import torch
    from trl.trainer.utils import selective_log_softmax

    def score(model: Any, batch: list[Any]) -> Any:
        prompts = [list(run.steps[0].token_ids) for run in batch]
        rests = [_ids(run)[len(prompt) :] for run, prompt in zip(batch, prompts, strict=True)]
        left, right = max(map(len, prompts)), max(map(len, rests))
        rows = [
            [0] * (left - len(p)) + p + r + [0] * (right - len(r))
            for p, r in zip(prompts, rests, strict=True)
        ]
        mask = [
            [0] * (left - len(p)) + [1] * (len(p) + len(r)) + [0] * (right - len(r))
            for p, r in zip(prompts, rests, strict=True)
        ]
        ids = torch.tensor(rows, device=model.device)
        logits = model(
            ids,
            attention_mask=torch.tensor(mask, device=model.device),
            use_cache=False,
            logits_to_keep=right + 1,
        ).logits[:, :-1]
        found = selective_log_softmax(logits, ids[:, -right:])
        drawn = [
            _drawn(run)[len(p) :] + [False] * (right - len(r))
            for run, p, r in zip(batch, prompts, rests, strict=True)
        ]
        return found[torch.tensor(drawn, device=model.device)]

    return _in_batches(score, models, log, rows)


def _loop(models: list[Any], log: list[Any]) -> float:
    import torch

    def score(model: Any, batch: list[Any]) -> Any:
        length = max(len(_ids(run)) for run in batch)
        ids = torch.tensor(
            [_ids(run) + [0] * (length - len(_ids(run))) for run in batch], device=model.device
        )
        mask = torch.tensor(
            [[1] * len(_ids(run)) + [0] * (length - len(_ids(run))) for run in batch]
        )
        logits = model(ids, attention_mask=mask.to(model.device), use_cache=False).logits
        found = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        drawn = [_drawn(run)[1:] + [False] * (length - len(_ids(run))) for run in batch]
        return found[torch.tensor(drawn, device=model.device)]

    return _in_batches(score, models, log)


def _in_batches(
    score: Callable[[Any, list[Any]], Any], models: list[Any], log: list[Any], rows: int = ROWS
) -> float:
    import torch

    with torch.inference_mode():
        found = [
            score(model, log[first : first + rows]).double().cpu()
            for model in models
            for first in range(0, len(log), rows)
        ]
    return float(torch.cat(found).mean())


def _log(size: Size) -> list[Any]:
    """Runs of one to eight turns, random tokens."""
    import numpy as np

    from forensics.records import Step, Trajectory

    generator = np.random.default_rng(0)

    def ids(most: int) -> tuple[int, ...]:
        return tuple(
            generator.integers(0, VOCABULARY, generator.integers(most // 4, most + 1)).tolist()
        )

    def step(role: Any, tokens: tuple[int, ...]) -> Step:
        return Step(
            role=role, text="", token_ids=tokens, sampled=(role == "assistant",) * len(tokens)
        )

    runs = []
    for task in range(size.tasks):
        prompt = step("user", ids(size.prompt))
        for sample in range(SAMPLES):
            turns = int(generator.choice([1, 1, 2, 2, 3, 4, 6, 8]))
            rest = [
                step(*turn)
                for _ in range(turns)
                for turn in (("assistant", ids(size.action)), ("tool", ids(size.observation)))
            ]
            runs.append(
                Trajectory(
                    id=f"{task}-{sample}",
                    task=str(task),
                    policy="",
                    environment="",
                    seed=0,
                    sample=sample,
                    steps=(prompt, *rest),
                    outcome=None,
                    end="terminated",
                )
            )
    return runs


def _ids(run: Any) -> list[int]:
    return [token for step in run.steps for token in step.token_ids]


def _drawn(run: Any) -> list[bool]:
    return [own for step in run.steps for own in step.sampled]


def _model(size: Size, seed: int, device: str) -> Any:
    return random_qwen3(
        size.dtype,
        seed,
        device,
        hidden_size=size.width,
        intermediate_size=size.inner,
        head_dim=64,
        num_attention_heads=size.heads,
        num_hidden_layers=size.layers,
        max_position_embeddings=32768,
    )


def _roofline(model: Any, log: list[Any], seconds: float, device: str) -> float:
    """Share of the time that the products with weights would take at the device's own speed."""
    import numpy as np

    from forensics.policies.sampled_tokens import layout_of
    from forensics.policies.shared_prefixes import PackCost, pack_by_prefix

    layouts = [layout_of(run) for run in log]
    texts = [layout.ids[: layout.at.max()] for layout in layouts]
    (whole,) = pack_by_prefix(texts, PackCost(call=1e18, square=1e18, most=10**12))
    layers = sum(p.numel() for name, p in model.named_parameters() if "layers" in name)
    head = model.get_output_embeddings().weight.numel()
    sampled = len(
        np.unique(
            np.concatenate(
                [
                    path[x.at - 1]
                    for x, path in zip([layouts[i] for i in whole.texts], whole.paths, strict=True)
                ]
            )
        )
    )
    operations = (
        2 * 2 * (layers * len(whole.ids) + head * sampled)
    )  # a product and a sum, two models
    return operations / _speed(device) / seconds


def _speed(device: str) -> float:
    """Operations a second of a large product of bfloat16 matrices."""
    import torch

    square = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    times = []
    for _ in range(8):
        torch.cuda.synchronize()
        start = time.perf_counter()
        square @ square
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 2 * 8192**3 / min(times)


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:3])))
