"""Scoring a log of uneven texts under two checkpoints, vocabulary 152k: ours
against the usual way.

The log: tasks with four runs each, which share their prompt and nothing else; a
run takes turns of actions and observations, so that its length is anything
between one and eight turns. The peer takes batches of eight texts in the order
of the log, as TRL's trainers lay out a batch (prompts filled up on the left,
completions on the right): logits of the completion, then TRL's own
`selective_log_softmax`.

Each side runs in a process of its own, in turn. The peer gives
log-probabilities; ours gives every standard column (entropy, KL, self-certainty
and top log-probability, too). On a CPU seconds are those of the processor,
which other work on the machine disturbs less. Memory is the peak above what the
two models take.
"""

import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from benchmarks.apart import VOCABULARY, child, measured, random_qwen3, spread

LIMITS = {"speed": 2.0, "memory": 1 / 8}
SIDES = ("ours", "trl")
SAMPLES = 4
ROWS = 8  # texts in a batch of the peer


@dataclass(frozen=True, kw_only=True)
class Size:
    """The log: `tasks`; tokens of a prompt, an action and an observation up to
    these. The models: `shape` and `dtype`.
    """

    tasks: int
    prompt: int
    action: int
    observation: int
    dtype: str
    shape: dict[str, int]


def _shape(width: int, inner: int, layers: int, heads: int) -> dict[str, int]:
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "head_dim": 64,
        "max_position_embeddings": 32768,
    }


SMALL, HALF_A_BILLION = _shape(512, 1536, 3, 8), _shape(896, 4864, 24, 14)
SIZES = {
    "cpu": Size(tasks=6, prompt=120, action=16, observation=48, dtype="float32", shape=SMALL),
    "cuda": Size(
        tasks=64, prompt=600, action=100, observation=200, dtype="bfloat16", shape=HALF_A_BILLION
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
    gaps = [abs(one["ours"]["mean_logprob"] - one["trl"]["mean_logprob"]) for one in found]
    size = SIZES[kind]
    return {
        "benchmark": (
            f"both checkpoints over a log of {size.tasks * SAMPLES} texts, vocabulary {VOCABULARY}"
        ),
        "limits": LIMITS,
        "speed": spread([one["trl"]["seconds"] / one["ours"]["seconds"] for one in found]),
        "memory": spread([one["ours"]["peak_bytes"] / one["trl"]["peak_bytes"] for one in found]),
        "tokens_per_second": {
            side: spread([one[side]["tokens"] / one[side]["seconds"] for one in found])
            for side in SIDES
        },
        "peak_mib": {
            side: spread([one[side]["peak_bytes"] / 2**20 for one in found]) for side in SIDES
        },
        "work": {
            "tokens": found[0]["ours"]["tokens"],
            "sampled": found[0]["ours"]["sampled"],
            "gap_of_mean_logprobs": max(gaps),
        },
        "device": device,
    }


def measure(side: str, device: str, times: int = 1) -> dict[str, float]:
    """Median seconds, the peak of memory above the models, and what was computed."""
    size = SIZES[device.split(":")[0]]
    models = [random_qwen3(size.dtype, seed, device, **size.shape) for seed in (0, 1)]
    log = _log(size)
    score = {"ours": ours, "trl": padded}[side]
    found = measured(lambda: score(models, log[:1]), lambda: score(models, log), device, times)
    tokens = sum(len(step.token_ids or ()) for run in log for step in run.steps)
    return found | {"tokens": 2 * tokens, "sampled": sum(run.sampled_tokens or 0 for run in log)}


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


def padded(models: list[Any], log: list[Any]) -> float:
    """As TRL lays out a batch."""
    import torch

    with torch.inference_mode():
        found = [
            _batch(model, log[first : first + ROWS]).double().cpu()
            for model in models
            for first in range(0, len(log), ROWS)
        ]
    return float(torch.cat(found).mean())


def _batch(model: Any, batch: list[Any]) -> Any:
    """Log-probabilities of what was sampled."""
    import torch
    from trl.trainer.utils import selective_log_softmax

    prompts = [list(run.steps[0].token_ids) for run in batch]
    rests = [_ids(run)[len(prompt) :] for run, prompt in zip(batch, prompts, strict=True)]
    left, right = max(map(len, prompts)), max(map(len, rests))

    def filled(before: Any, prompt: Any, rest: Any) -> Any:
        rows = [
            [before] * (left - len(p)) + prompt(p) + rest(r) + [before] * (right - len(r))
            for p, r in zip(prompts, rests, strict=True)
        ]
        return torch.tensor(rows, device=model.device)

    ids = filled(0, lambda p: p, lambda r: r)
    mask = filled(0, lambda p: [1] * len(p), lambda r: [1] * len(r))
    output = model(ids, attention_mask=mask, use_cache=False, logits_to_keep=right + 1)
    found = selective_log_softmax(output.logits[:, :-1], ids[:, -right:])
    drawn = [
        _drawn(run)[len(p) :] + [False] * (right - len(r))
        for run, p, r in zip(batch, prompts, rests, strict=True)
    ]
    return found[torch.tensor(drawn, device=model.device)]


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

    turn = (("assistant", size.action), ("tool", size.observation))
    runs = []
    for task in range(size.tasks):
        prompt = step("user", ids(size.prompt))
        for sample in range(SAMPLES):
            turns = int(generator.choice([1, 1, 2, 2, 3, 4, 6, 8]))
            rest = [step(role, ids(most)) for _ in range(turns) for role, most in turn]
            run = Trajectory(
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
            runs.append(run)
    return runs


def _ids(run: Any) -> list[int]:
    return [token for step in run.steps for token in step.token_ids]


def _drawn(run: Any) -> list[bool]:
    return [own for step in run.steps for own in step.sampled]


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:3])))
