"""GRPO steps of models of half a billion and of seven billion parameters, with random
weights: seconds by stage, tokens a second, memory at most, and whether what a GPU does by
graphs, in buffers of its own and by rows that part, is what it does without.

The shapes are those of Qwen2.5; the seven billion are held in bfloat16 under an adapter,
64 rows of 2,048 tokens, as in the memory plan of docs/training.md. On a CPU the same rows
run on a tiny model, to show that they run.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.apart import held, peak, wait
from benchmarks.trainer import evens, taken
from tests.tiny import tiny_tokenizer

SENTENCE = " guess {}: higher, lower, right"


@dataclass(frozen=True, kw_only=True)
class Size:
    """A model's shape as its config says it, and a training step: `prompt` and `drawn`
    tokens of each of `groups` x `samples` rows.
    """

    shape: dict[str, Any]
    dtype: str
    lora: bool
    groups: int = 8
    samples: int = 8
    prompt: int
    drawn: int
    steps: int = 3


def qwen(width: int, inner: int, layers: int, heads: int, key_heads: int) -> dict[str, Any]:
    return {
        "vocab_size": 151_936,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "max_position_embeddings": 32_768,
    }


SEVEN = {**qwen(3584, 18_944, 28, 28, 4), "vocab_size": 152_064, "tie_word_embeddings": False}
HALF = qwen(896, 4864, 24, 14, 2)
TINY = {**qwen(64, 128, 2, 2, 1), "vocab_size": 304}
SIZES = {
    "0.5B, 64 x 64": Size(shape=HALF, dtype="float32", lora=False, prompt=64, drawn=64, steps=4),
    "7B, 64 x 64": Size(shape=SEVEN, dtype="bfloat16", lora=True, prompt=64, drawn=64),
    "7B, 64 x 2,048": Size(
        shape=SEVEN, dtype="bfloat16", lora=True, prompt=1536, drawn=500, steps=2
    ),
}


def random_qwen2(size: Size, device: str) -> Any:
    """Made where it stays and filled in place."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(**{"tie_word_embeddings": True, **size.shape})
    with torch.device("meta"):
        model = Qwen2ForCausalLM(config)
    model = model.to(getattr(torch, size.dtype)).to_empty(device=device)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, one in model.named_parameters():
            one.fill_(1.0) if "norm" in name else one.normal_(0, 0.02, generator=generator)
    return model.eval()


def question(tokenizer: Any, number: int, tokens: int) -> str:
    """A text of about so many tokens in the chat template."""
    text = f"open {number};"
    step = len(tokenizer(SENTENCE.format(1))["input_ids"])
    return text + "".join(SENTENCE.format(number + i) for i in range(max(0, tokens - 30) // step))


def trained(size: Size, device: str) -> tuple[dict[str, Any], Any]:
    """Steps of GRPO; what they took, without the first one, and the policy."""
    from forensics import policy_from
    from training import Prompts, StepReport, grpo, parse_recipe

    tokenizer = tiny_tokenizer()
    policy = policy_from(random_qwen2(size, device), tokenizer, "start")
    content: dict[str, Any] = {
        "policy": {"checkpoint": "-"},
        "environment": {"name": "prompts"},
        "sampling": {"max_turn_tokens": size.drawn, "max_tokens": 2048},
        "grpo": {"steps": size.steps, "groups": size.groups, "samples": size.samples},
        "compute": {
            "dtype": "float32" if device == "cpu" else "bfloat16",
            "gradient_checkpointing": size.lora,
        },
    } | ({"lora": {"rank": 16}} if size.lora else {})
    content["grpo"]["learning_rate"] = 1e-6
    reports, clock, before = list[StepReport](), [time.perf_counter()], held(device)

    def report(step: StepReport) -> None:
        wait(device)
        reports.append(step)
        clock.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "questions.jsonl"
        told = {"verifier": {"type": "exact", "value": "yes"}, "split": "train"}
        texts = [question(tokenizer, number, size.prompt) for number in range(64)]
        file.write_text("".join(json.dumps({"prompt": text, **told}) + "\n" for text in texts))
        reward = (lambda t, g: evens(t.actions[-1][1].token_ids or ()), 1.0)
        grpo(
            policy,
            Prompts(file=str(file)),
            parse_recipe(content, "benchmark"),
            0,
            None,
            report,
            rewards={"evens": reward},
        )
    last = reports[-1]
    return {
        "seconds_a_step": [round(one, 2) for one in taken(clock)],
        "sampling": round(last.seconds["collect"], 2),
        "update": round(last.seconds["update"], 2),
        "tokens_drawn": last.tokens,
        "tokens_drawn_a_second": round(last.tokens / last.seconds["collect"]),
        "loss": last.loss,
        "optimizer_steps": last.optimizer_steps,
        "weights_gb": round(before / 1e9, 2),
        "peak_gb": round(peak(device) / 1e9, 2),
        "rows_of_2048_that_fit": policy.room.rows(2048),
    }, policy


def step(name: str, size: Size, device: str) -> dict[str, Any]:
    """A row of the table: training, and scoring what was played once."""
    from forensics.protocols import SamplingSettings

    found, policy = trained(size, device)
    settings = SamplingSettings(max_turn_tokens=size.drawn, max_tokens=2048)
    rows = [list(range(3, 3 + size.prompt + size.drawn))] * (size.groups * size.samples)
    rows = [[*row[:-1], number % 300] for number, row in enumerate(rows)]
    start = time.perf_counter()
    policy.logprobs(rows, settings)
    wait(device)
    return {
        "benchmark": f"GRPO step, {name}",
        **found,
        "scoring": round(time.perf_counter() - start, 2),
    }


@contextmanager
def plain_steps(on: bool) -> Iterator[None]:
    """Without captured graphs."""
    from forensics.policies import huggingface

    kept = huggingface.captured_steps
    if on:
        huggingface.captured_steps = lambda model: None
    try:
        yield
    finally:
        huggingface.captured_steps = kept


def answers(policy: Any, length: int, rows: int = 32) -> tuple[float, list[Any]]:
    from forensics.protocols import SamplingSettings

    settings = SamplingSettings(max_turn_tokens=length, max_tokens=2048)
    prefixes = [list(range(5, 40 + number % 7)) for number in range(rows)]
    start = time.perf_counter()
    drawn = [one for each in policy.sample(prefixes, 2, settings, seed=3) for one in each]
    return time.perf_counter() - start, drawn


def alike(found: Sequence[Any], wanted: Sequence[Any]) -> dict[str, float]:
    """How much of two sides' answers is one, and how far log-probabilities are apart there."""
    same, apart, tokens = 0, 0.0, sum(len(one.token_ids) for one in wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        pairs = zip(mine.token_ids, theirs.token_ids, strict=False)
        until = next((i for i, (a, b) in enumerate(pairs) if a != b), len(theirs.token_ids))
        same += until
        gaps = zip(mine.logprobs[:until], theirs.logprobs[:until], strict=False)
        apart = max([apart, *(abs(a - b) for a, b in gaps)])
    return {"tokens_equal_until_they_part": same / tokens, "largest_gap_nats": apart}


def equality(size: Size, device: str) -> dict[str, Any]:
    """Graphs against plain steps; float32 without the rounding of TF32, then bfloat16."""
    import torch

    from forensics import policy_from

    told: dict[str, Any] = {"benchmark": "captured steps against plain ones, 64 rows x 64"}
    for dtype in ("float32", "bfloat16"):
        policy = policy_from(
            random_qwen2(replace(size, dtype=dtype), device), tiny_tokenizer(), "x"
        )
        with plain_steps(True):
            answers(policy, 8)
            slow, wanted = answers(policy, 64)
        answers(policy, 64)
        fast, found = answers(policy, 64)
        parted = policy.read_ahead
        policy.read_ahead = 1
        answers(policy, 64)
        ragged, rows_apart = answers(policy, 64)
        policy.read_ahead = parted
        told[dtype] = {
            "seconds_plain": round(slow, 3),
            "seconds_captured": round(fast, 3),
            "seconds_rows_apart": round(ragged, 3),
            "captured": alike(found, wanted),
            "rows_apart": alike(rows_apart, wanted),
        }
        del policy
    if device != "cpu":
        torch.cuda.empty_cache()
    return told


def halved(size: Size, device: str) -> dict[str, Any]:
    """A batch on a card of which most is taken away: it goes on in halves, to the same end."""
    import torch

    from forensics import policy_from

    policy = policy_from(random_qwen2(size, device), tiny_tokenizer(), "x")
    with plain_steps(True):
        _, wanted = answers(policy, 256, 256)
        if device != "cpu":
            torch.cuda.empty_cache()
            whole = torch.cuda.get_device_properties(0).total_memory
            room = torch.cuda.memory_allocated() + 2.5e9
            torch.cuda.set_per_process_memory_fraction(room / whole)
        try:
            _, found = answers(policy, 256, 256)
        finally:
            if device != "cpu":
                torch.cuda.set_per_process_memory_fraction(1.0)
    rows = {"rows_before": 512, "rows_in_the_end": policy.room.most}
    return {"benchmark": "halving on out-of-memory", **rows, **alike(found, wanted)}


def cache_dtype(size: Size, device: str) -> str:
    """Of keys and values under autocast, as training samples."""
    import torch

    from forensics.policies import new_cache

    model = random_qwen2(replace(size, dtype="float32"), device)
    cache = new_cache(model.config)
    with torch.inference_mode(), torch.autocast(torch.device(device).type, torch.bfloat16):
        model(torch.ones(1, 4, dtype=torch.long, device=device), past_key_values=cache)
    kinds = {kept.dtype for layer in cache.layers for kept in (layer.keys, layer.values)}
    return ", ".join(sorted(map(str, kinds)))


def run(device: str = "cpu") -> dict[str, Any]:
    """Every row; one that fails says why, and the others go on."""
    cuda, half = device != "cpu", SIZES["0.5B, 64 x 64"]
    small = replace(half, shape=TINY, groups=2, samples=2, drawn=8, steps=2)
    sizes = SIZES if cuda else {"tiny, 4 x 8": small, "tiny, adapter": replace(small, lora=True)}
    half = half if cuda else small
    work: list[tuple[Any, ...]] = [
        (equality, half, device),
        *((step, name, size, device) for name, size in sizes.items()),
        (halved, half, device),
    ]
    rows = []
    for one, *given in work:
        try:
            rows.append(one(*given))
        except Exception as error:
            rows.append({"benchmark": str(given[0]), "failed": f"{type(error).__name__}: {error}"})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)  # nothing lost by a limit on time
        if cuda:
            _emptied()
    return {"benchmark": "large models", "cache_dtype": cache_dtype(half, device), "rows": rows}


def _emptied() -> None:
    import gc

    import torch

    gc.collect()
    torch.cuda.empty_cache()
