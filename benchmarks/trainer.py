"""One optimizer step, generation included: our core against TRL's `GRPOTrainer`
on the same work.

Both train the same randomly initialised Qwen3 (float32 on a CPU, bfloat16
forward on CUDA) on the same prompts with the same group size, the same limit on
the completion and the same reward, single-turn, on-policy, without a KL term.
TRL is set up as its documentation recommends for one device: all of a step's
completions generated in one batch, logging to nothing, no saving. Tokens drawn
and tokens of a prompt are printed, so that the work can be compared. The first
step warms up. Our core computes a group's prompt once, TRL once a row, so the
ratio grows with the prompt: three lengths are shown, a bare question, one with
its instructions (about what a grade-school problem in a chat template takes, to
which the limit applies), and one with a page of context.
"""

import contextlib
import io
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.apart import VOCABULARY, random_qwen3, spread
from tests.tiny import tiny_tokenizer

LIMIT = {"cpu": 2.0, "cuda": 1.5}
PROMPTS, SAMPLES, TOKENS = 8, 8, 64
QUESTION = "What is the capital of France? open 1; edit 2 x * 3 - {}"
CONTEXT = " guess {}: higher, lower, right"
SENTENCES = (0, 4, 10)  # of context behind the question: about 50, 140 and 270 tokens in all
JUDGED = 1
RATE = 1e-6


def question(number: int, sentences: int) -> str:
    return QUESTION.format(number) + "".join(CONTEXT.format(number + i) for i in range(sentences))


def build(device: str) -> tuple[Any, Any]:
    """A random Qwen3: of the organisms' size (0.4 million parameters) on a CPU,
    of 0.5 billion on CUDA.
    """
    big = device != "cpu"
    shape = {
        "vocab_size": VOCABULARY if big else 304,
        "hidden_size": 1024 if big else 96,
        "intermediate_size": 3072 if big else 256,
        "num_hidden_layers": 24 if big else 3,
        "num_attention_heads": 16 if big else 3,
        "num_key_value_heads": 8 if big else 3,
        "head_dim": 64 if big else 32,
        "max_position_embeddings": 2048,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "bos_token_id": None,
    }
    return random_qwen3("float32", 0, device, **shape), tiny_tokenizer()


def evens(ids: Sequence[int]) -> float:
    """A reward that hardly ever leaves a group dead, whatever the tokens mean."""
    return sum(one % 2 == 0 for one in ids) / max(1, len(ids))


def ours(questions: Sequence[str], device: str, steps: int) -> dict[str, Any]:
    """Seconds of each step after the first, tokens a step, and seconds by stage."""
    from forensics import policy_from
    from training import Prompts, StepReport, grpo, parse_recipe

    model, tokenizer = build(device)
    recipe = parse_recipe(
        {
            "policy": {"checkpoint": "-"},
            "environment": {"name": "prompts"},
            "sampling": {"max_turn_tokens": TOKENS, "max_tokens": 512},
            "grpo": {
                "steps": steps,
                "groups": PROMPTS,
                "samples": SAMPLES,
                "learning_rate": RATE,
                "rows": 64,
            },
            "compute": {"dtype": "float32" if device == "cpu" else "bfloat16"},
        },
        "benchmark",
    )
    clock, reports = [time.perf_counter()], list[StepReport]()

    def report(step: StepReport) -> None:
        reports.append(step)
        clock.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "questions.jsonl"
        told = {"verifier": {"type": "exact", "value": "yes"}, "split": "train"}
        rows = [{"prompt": question, **told} for question in questions]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        grpo(
            policy_from(model, tokenizer, "start"),
            Prompts(file=str(file)),
            recipe,
            0,
            None,
            report,
            rewards={"evens": (lambda t, g: evens(t.actions[-1][1].token_ids or ()), 1.0)},
        )
    return {
        "seconds": taken(clock[1:]),
        "tokens": statistics.mean(step.tokens for step in reports[1:]),
        "kept": statistics.mean(step.kept for step in reports[1:]),
        "prompt": prompt_tokens(tokenizer, questions[0]),
        "stages": {
            stage: round(statistics.median(step.seconds[stage] for step in reports[1:]), 4)
            for stage in ("collect", "update", "record")
        },
    }


def trl(questions: Sequence[str], device: str, steps: int) -> dict[str, Any]:
    """The same of TRL."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = build(device)
    clock, tokens = list[float](), list[int]()

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *a: Any, **k: Any) -> None:
            clock.append(time.perf_counter())

        def on_train_end(self, *a: Any, **k: Any) -> None:
            clock.append(time.perf_counter())

    def reward(completions: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        tokens.append(sum(len(ids) for ids in completion_ids))
        return [evens(ids) for ids in completion_ids]

    rows = [{"prompt": [{"role": "user", "content": question}]} for question in questions]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=[reward],
            train_dataset=Dataset.from_list(rows),
            callbacks=[Clock()],
            args=GRPOConfig(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=PROMPTS * SAMPLES,
                num_generations=SAMPLES,
                max_completion_length=TOKENS,
                learning_rate=RATE,
                beta=0.0,
                loss_type="dapo",
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                use_cpu=device == "cpu",
                bf16=device != "cpu",
                gradient_checkpointing=False,
            ),
        )
        trainer.train()
    return {"seconds": taken(clock[1:]), "tokens": statistics.mean(tokens[1:])}


def taken(clock: Sequence[float]) -> list[float]:
    """Seconds between the marks."""
    return [after - before for before, after in pairwise(clock)]


def prompt_tokens(tokenizer: Any, question: str) -> int:
    """In the chat template."""
    messages = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return len(tokenizer(text)["input_ids"])


def run(device: str = "cpu", repeats: int = 3, steps: int = 6) -> dict[str, Any]:
    """Every length of prompt; the limit applies to the middle one."""
    found = [
        shape([question(i, sentences) for i in range(200)], device, repeats, steps)
        for sentences in SENTENCES
    ]
    judged = found.pop(JUDGED)
    return judged | {"limit": LIMIT["cpu" if device == "cpu" else "cuda"], "other_prompts": found}


def shape(questions: Sequence[str], device: str, repeats: int, steps: int) -> dict[str, Any]:
    """Both sides in turn, `repeats` times; ratio of median seconds a step, pair by pair."""
    pairs = [
        (ours(questions, device, steps), trl(questions, device, steps)) for _ in range(repeats)
    ]
    medians = [(statistics.median(a["seconds"]), statistics.median(b["seconds"])) for a, b in pairs]
    mine, theirs = pairs[0]
    return {
        "benchmark": (
            f"one optimizer step, {PROMPTS} prompts of {mine['prompt']} tokens x {SAMPLES},"
            f" {TOKENS} tokens, against TRL"
        ),
        "ratio": spread([b / a for a, b in medians]),
        "seconds_a_step": {
            "ours": spread([a for a, _ in medians]),
            "TRL": spread([b for _, b in medians]),
        },
        "tokens_a_step": {"ours": mine["tokens"], "TRL": theirs["tokens"]},
        "groups_trained_on": mine["kept"],
        "stages": mine["stages"],
        "device": device,
    }
