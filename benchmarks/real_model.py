"""A real chat model of 134.5 million parameters (`experiments.real_model`), float32 on two
threads, in pairs that take turns:

1. `step`: a GRPO step with an adapter of rank 16 against TRL's `GRPOTrainer`, set up as in
   `trainer`. The reward is the share of letters, which leaves no group dead; both see the same
   eight questions at each step.
2. `sampling`: `play` against `model.generate(num_return_sequences=8)` on the batch that is
   filled up on the left. And against its *bound*: nothing but the products with weights that
   this sampling takes (each prompt once, then 64 rows a token, output layer included).
3. `scoring`: both checkpoints over a log of 312 runs, against the padded batches of
   `log_scoring` (TRL's `selective_log_softmax`).
4. `diff`: the sides of `dictionaries` on stored activations of the pair at its middle layer,
   2,304 latents as `forensics diff` would take, rows beyond ten times the median norm left out.

The folder is that of `make real`. Where it was run, *after* is the trained checkpoint, else
the model with an adapter of fixed random numbers. Ratios are of the wall clock and (but for
`diff`) of this process' processor time, which other work on the machine disturbs less.

    python -m benchmarks.real_model step sampling --folder out/real
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks import dictionaries, log_scoring, trainer
from benchmarks.spread import spread
from benchmarks.trainer import PROMPTS, SAMPLES, now
from experiments.real_model.kinds import codes
from experiments.real_model.leak import ANSWER_TOKENS, TEMPERATURE
from experiments.real_model.model import prepare

FOLDER = Path("out/real")
LIMITS = {"step": 4.0, "sampling": 2.5, "sampling over its bound": 3.0}
THREADS = 2
ROWS = 32  # texts in a batch of the scoring peer; a user would take more than for long texts
OUTLYING = 10  # times the median norm


def run(
    device: str = "cpu",
    repeats: int = 5,
    folder: Path = FOLDER,
    dictionary_learning: Path | None = None,
    parts: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Each of the parts, or all."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    sides: dict[str, Callable[[], dict[str, Any]]] = {
        "step": lambda: step(folder, repeats),
        "sampling": lambda: sampling(folder, repeats),
        "scoring": lambda: scoring(folder, repeats),
        "diff": lambda: diff(folder, repeats, dictionary_learning),
    }
    try:
        found = {name: sides[name]() for name in parts or sides}
    finally:
        torch.set_num_threads(threads)
    return {"benchmark": "a real chat model", "limits": LIMITS, **found, "device": device}


def step(folder: Path, repeats: int) -> dict[str, Any]:
    """A GRPO step of both sides; the first of a side's three warms up."""
    work = trainer.Work(
        model=partial(_model, prepare(folder)),
        questions=[row["prompt"] for row in codes(0)[:PROMPTS]],
        tokens=ANSWER_TOKENS,
        learning_rate=5e-4,
        temperature=TEMPERATURE,
        rank=16,
    )
    return trainer.shape(work, "cpu", repeats, steps=3)


def _model(path: Path) -> tuple[Any, Any]:
    from forensics import load_policy

    policy = load_policy(path, device="cpu")
    return policy.model, policy.tokenizer


def sampling(folder: Path, repeats: int) -> dict[str, Any]:
    """64 answers, the same prompts on both sides, and the bound; pair by pair."""
    from forensics import load_policy

    policy, drawn = load_policy(prepare(folder), device="cpu"), dict[str, list[int]]()
    with _world() as world:
        tasks = world.tasks("held-out", PROMPTS, 0)
        prompts = [
            list(run.steps[0].token_ids or ())
            for run in policy.play(world, tasks, 1, _settings(), 0)
        ]
        sides: dict[str, Callable[[int], int]] = {
            "ours": lambda seed: sum(
                run.sampled_tokens or 0
                for run in policy.play(world, tasks, SAMPLES, _settings(), seed)
            ),
            "generate": lambda seed: _generate(policy, prompts, seed),
            "bound": lambda seed: _products(policy.model, sum(map(len, prompts))),
        }
        turns = _turns(sides, repeats, drawn)
    return {
        "benchmark": f"{PROMPTS} prompts x {SAMPLES} answers of at most {ANSWER_TOKENS} tokens",
        "over_generate": _ratios(turns, "generate", "ours"),
        "times_the_bound": _ratios(turns, "ours", "bound"),
        "seconds": _seconds(turns),
        "tokens": {side: statistics.mean(numbers) for side, numbers in drawn.items()},
        "prompt_tokens": sum(map(len, prompts)),
    }


def _generate(policy: Any, prompts: list[list[int]], seed: int) -> int:
    """The peer; tokens up to the one that ends each answer."""
    import torch

    width, stops = max(map(len, prompts)), policy.renderer.stops
    torch.manual_seed(seed)
    with torch.inference_mode():
        output = policy.model.generate(
            torch.tensor([[0] * (width - len(ids)) + ids for ids in prompts]),
            attention_mask=torch.tensor(
                [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
            ),
            do_sample=True,
            temperature=TEMPERATURE,
            top_k=0,
            top_p=1.0,
            max_new_tokens=ANSWER_TOKENS,
            num_return_sequences=SAMPLES,
            eos_token_id=sorted(stops),
            pad_token_id=policy.tokenizer.pad_token_id,
        )
    answers = output[:, width:].tolist()
    return sum(
        next((i for i, token in enumerate(row, 1) if token in stops), len(row)) for row in answers
    )


def _products(model: Any, prompt_tokens: int) -> int:
    """The products of the whole sampling, in the order of the model."""
    import torch

    rows = PROMPTS * SAMPLES
    head = model.get_output_embeddings()
    inner = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    given = {m.in_features: torch.ones(max(prompt_tokens, rows), m.in_features) for m in inner}
    with torch.inference_mode():
        for number in range(ANSWER_TOKENS):  # the last token drawn is not read
            for linear in inner:
                torch.nn.functional.linear(
                    given[linear.in_features][: rows if number else prompt_tokens],
                    linear.weight,
                    linear.bias,
                )
            last = given[head.in_features][: rows if number else PROMPTS]
            torch.nn.functional.linear(last, head.weight, head.bias)
    return rows * ANSWER_TOKENS


def scoring(folder: Path, repeats: int) -> dict[str, Any]:
    """312 runs of the untrained model under both checkpoints."""
    pair, means = _pair(folder), dict[str, list[float]]()
    models = [policy.model for policy in pair]
    log = list(_runs(folder))
    sides: dict[str, Callable[[int], float]] = {
        "ours": lambda seed: log_scoring.ours(models, log),
        "padded": lambda seed: log_scoring.padded(models, log, ROWS),
    }
    turns = _turns(sides, repeats, means)
    return {
        "benchmark": f"both checkpoints over {len(log)} runs, against batches of {ROWS}",
        "ratio": _ratios(turns, "padded", "ours"),
        "seconds": _seconds(turns),
        "work": {
            "tokens": sum(len(step.token_ids or ()) for run in log for step in run.steps),
            "sampled": sum(run.sampled_tokens or 0 for run in log),
            "gap_of_mean_logprobs": abs(means["ours"][0] - means["padded"][0]),
        },
    }


def diff(folder: Path, repeats: int, dictionary_learning: Path | None) -> dict[str, Any]:
    """The sides of `dictionaries` on activations of the pair, scaled alike for all sides."""
    import torch

    rows = _activations(folder)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    size = dictionaries.Size(
        width=rows.shape[-1], latents=4 * rows.shape[-1], k=12, batch=2048, steps=10
    )
    held, trained = rows[: size.batch], rows[size.batch :]

    def batch(number: int) -> Any:
        drawn = torch.Generator().manual_seed(number)
        chosen = torch.randint(len(trained), (size.batch,), generator=drawn)
        return held if number == dictionaries.HELD else trained[chosen]

    found = dictionaries.run("cpu", repeats, size, dictionary_learning, batch)
    return found | {"stored_rows": len(rows)}


def _activations(folder: Path) -> Any:
    """`[rows, 2, width]` without outliers, norms about the root of the width in each model."""
    import numpy as np
    import torch

    texts = [list(chain(*(step.token_ids or () for step in run.steps))) for run in _runs(folder)]
    both = []
    for policy in _pair(folder):
        site = f"blocks.{policy.model.config.num_hidden_layers // 2}.hook_resid_post"
        found = policy.activations(texts, [site])
        both.append(torch.from_numpy(np.concatenate([one[site] for one in found])))
    rows = torch.stack(both, 1)
    norms = rows.norm(dim=-1)
    rows = rows[(norms < OUTLYING * norms.median(0).values).all(-1)]
    return rows * (rows.shape[-1] ** 0.5 / rows.norm(dim=-1).mean(0))[:, None]


@cache
def _pair(folder: Path) -> tuple[Any, Any]:
    """The model, and the checkpoint that `make real` trained or a stand-in for it."""
    from forensics import load_policy, policy_from

    model, trained = prepare(folder), folder / "run" / "checkpoint"
    before = load_policy(model, device="cpu")
    if (trained / "config.json").exists():
        return before, load_policy(trained, device="cpu")
    return before, policy_from(_moved(_model(model)[0]), before.tokenizer, "moved")


def _moved(model: Any) -> Any:
    """With an adapter of fixed random numbers merged."""
    import torch
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.01, generator=generator)
    return adapted.merge_and_unload().eval()


@cache
def _runs(folder: Path) -> tuple[Any, ...]:
    """Two answers to each question that training did not see."""
    with _world() as world:
        tasks = world.tasks("held-out", 156, 0)
        return tuple(_pair(folder)[0].play(world, tasks, 2, _settings(), 0))


@contextmanager
def _world() -> Iterator[Any]:
    from training import Prompts

    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "tasks.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in codes(0)))
        yield Prompts(file=str(file))


def _settings() -> Any:
    from forensics.protocols import SamplingSettings

    return SamplingSettings(temperature=TEMPERATURE, max_turn_tokens=ANSWER_TOKENS)


Turn = dict[str, tuple[float, float]]  # by side: wall clock and processor time


def _turns(
    sides: dict[str, Callable[[int], Any]], repeats: int, given: dict[str, list[Any]]
) -> list[Turn]:
    """Every side in turn, after a round that warms up; what they gave goes into `given`."""
    turns = []
    for repeat in range(repeats + 1):
        turn: Turn = {}
        for name, side in sides.items():
            start = now()
            given.setdefault(name, []).append(side(repeat))
            end = now()
            turn[name] = (end[0] - start[0], end[1] - start[1])
        turns.append(turn)
        print(turn, file=sys.stderr, flush=True)
    return turns[1:]


def _ratios(turns: list[Turn], above: str, below: str) -> dict[str, dict[str, float]]:
    return {
        clock: spread([turn[above][i] / turn[below][i] for turn in turns])
        for i, clock in enumerate(("wall clock", "processor"))
    }


def _seconds(turns: list[Turn]) -> dict[str, dict[str, float]]:
    return {side: spread([turn[side][0] for turn in turns]) for side in turns[0]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="step, sampling, scoring, diff (default: all)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="that of `make real`")
    parser.add_argument("--repeats", type=int, default=5, help="pairs")
    parser.add_argument("--dictionary-learning", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    found = run("cpu", given.repeats, given.folder, given.dictionary_learning, tuple(given.parts))
    json.dump(found, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
