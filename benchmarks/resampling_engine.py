"""Continuations at every prefix: our tree against
`model.generate(num_return_sequences=64)`.

Both sides get the same texts, prefixes and number of continuations of each, the
same settings and the same model. The peer goes prefix by prefix, as the
published method's code does, with a KV cache.

1. *Episodes* (the limit applies here on the CPU): a bundled policy's runs in
   `mini-repo`, from every token on to the end of the run. The peer draws the
   rest of the running action with `num_return_sequences=64`, and each later
   action of the 64 episodes with `generate` on their token ids, filled up on
   the left; environments and snapshots are shared.
2. *Long texts* (the limit applies here on a GPU): one answer, random weights,
   nothing ends it early, so that both sides have the same tokens to make. A
   policy that is sure of most tokens, and one that is sure of none: there no
   two rollouts share a token for long, and what is saved is the prefill and the
   library's overhead alone.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.resampling_peers import TURNS, Made, N, Size, generate, prefixes, turn_by_turn
from benchmarks.spread import spread
from forensics import load_policy, policy_from
from forensics.policies.decoder import BatchDecoder
from forensics.protocols import (
    Channel,
    Environment,
    Observation,
    Policy,
    SamplingSettings,
    StepResult,
)
from forensics.records import Trajectory
from resampling import LocalSampler, Request
from training import MiniRepo, checkpoint_path

LIMIT = 4.0
PROMPT = "Count on: 1 2 3 4 5 6 7 8"


class Writing:
    """One answer, of any length, that nobody judges."""

    name = "writing"
    options: dict[str, str] = {}
    channels: tuple[Channel, ...] = ()
    scrubbed: tuple[str, ...] = ()

    def without(self, *channels: str) -> "Writing":
        return self

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return tuple(f"text {i}" for i in range(number))

    def spawn(self) -> "Writing":
        return Writing()

    def reset(self, task: str, seed: int) -> Observation:
        return Observation(text=f"{task}. {PROMPT}")

    def step(self, action: str) -> StepResult:
        return StepResult(observation="", kinds=("answer",), terminated=True, outcome=1.0)

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("answer",)

    def snapshot(self) -> str:
        return "asked"

    def restore(self, state: str) -> None:
        pass


CPU = Size(layers=3, width=96, heads=4, vocabulary=512, tokens=64, every=4, texts=1)
CUDA = Size(
    layers=24, width=896, heads=14, vocabulary=151936, tokens=300, every=15, texts=1
)  # half a billion
EPISODES = 3


def policy_of(size: Size, sureness: float, device: str) -> Policy:
    """A random Qwen3 that never stops. `sureness` stretches its logits."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.width,
        intermediate_size=4 * size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=max(1, size.heads // 7),
        head_dim=size.width // size.heads,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
    )
    torch.manual_seed(0)
    model = (
        Qwen3ForCausalLM(config).to(device).to(torch.float32 if device == "cpu" else torch.bfloat16)
    )
    model.model.norm.weight.data *= sureness
    return policy_from(model, _Bytes(), "random", _Endless())


class _Bytes:
    chat_template = None
    eos_token_id = None


class _Endless:
    """Texts as bytes, and no token that ends an action."""

    stops: frozenset[int] = frozenset()

    def prompt(self, text: str, system: str | None) -> list[int]:
        return list(text.encode())

    def reply(self, observation: str, action: Sequence[int]) -> list[int]:
        return list(observation.encode())

    def action_text(self, token_ids: Sequence[int]) -> str:
        return " ".join(map(str, token_ids))


def text(
    policy: Policy,
    world: Environment,
    runs: Sequence[Trajectory],
    every: int,
    settings: SamplingSettings,
    seed: int,
) -> Made:
    """Ours. A sampler of its own each time: texts are read and runs replayed
    within the time that counts.
    """
    sampler = LocalSampler(policy, world, runs, settings, seed)
    requests = [
        Request(trace=run.id, kept=kept, n=N) for run in runs for kept in prefixes(run, every)
    ]
    with _Counted() as forwarded:
        rollouts = list(sampler.draw(requests))
    read = sum(len(step.token_ids or ()) for run in runs for step in run.steps)
    return Made(
        rollouts=len(rollouts),
        tokens=sum(len(rollout.tokens) for rollout in rollouts),
        forwarded=sum(forwarded) + read,
        success=statistics.mean(rollout.outcome or 0 for rollout in rollouts),
    )


class _Counted:
    """Counts the positions that the engine feeds to the model."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self._feed = BatchDecoder._feed

    def __enter__(self) -> list[int]:
        def feed(engine: Any, rows: Any, cache: Any, start: int, end: int, ready: Any) -> Any:
            self.found.append(len(rows) * (end - start))
            return self._feed(engine, rows, cache, start, end, ready)

        BatchDecoder._feed = feed  # type: ignore[method-assign]
        return self.found

    def __exit__(self, *error: object) -> None:
        BatchDecoder._feed = self._feed  # type: ignore[method-assign]


def run(device: str = "cpu", repeats: int = 3) -> dict[str, Any]:
    """All kinds; the limit applies to episodes on the CPU, on CUDA to long
    texts of a policy that is mostly sure.
    """
    kinds = {
        "episodes": lambda: compared(device, repeats, *episodes(device)),
        "long texts, mostly sure": lambda: compared(
            device, repeats, *long_texts(device, MOSTLY_SURE)
        ),
        "long texts, sure of nothing": lambda: compared(device, repeats, *long_texts(device, 1.0)),
    }
    found = {name: kind() for name, kind in kinds.items()}
    judged = found.pop("episodes" if device == "cpu" else "long texts, mostly sure")
    return judged | {"limit": LIMIT, "others": found}


MOSTLY_SURE = 9.0


def episodes(
    device: str,
) -> tuple[str, Policy, list[Trajectory], dict[str, Callable[[int], Made]]]:
    """Runs of a bundled policy, and the two sides."""
    policy = load_policy(checkpoint_path("bundled:open-base"), device=device, dtype="float32")
    world = MiniRepo(world="open")
    runs = list(policy.play(world, world.tasks("held-out", EPISODES, 0), 1, TURNS, 0))
    return (
        f"{N} continuations at every token of {EPISODES} episodes",
        policy,
        runs,
        {
            "tree": lambda seed: text(policy, world, runs, 1, TURNS, seed),
            "generate": lambda seed: turn_by_turn(policy, world, runs, seed),
        },
    )


def long_texts(
    device: str, sureness: float
) -> tuple[str, Policy, list[Trajectory], dict[str, Callable[[int], Made]]]:
    """Texts of a random policy, and the two sides."""
    size = CPU if device == "cpu" else CUDA
    policy, world = policy_of(size, sureness, device), Writing()
    settings = SamplingSettings(max_turn_tokens=size.tokens, max_tokens=4096)
    runs = list(policy.play(world, world.tasks("train", size.texts, 0), 1, settings, 1))
    name = f"{N} continuations at every {size.every}th token of {size.texts} texts of {size.tokens}"
    return (
        name,
        policy,
        runs,
        {
            "tree": lambda seed: text(policy, world, runs, size.every, settings, seed),
            "generate": lambda seed: generate(policy, runs, size, settings, seed),
        },
    )


def compared(
    device: str,
    repeats: int,
    name: str,
    policy: Policy,
    runs: Sequence[Trajectory],
    sides: dict[str, Callable[[int], Made]],
) -> dict[str, Any]:
    """Both sides in turn; rollouts and tokens a second, and the ratio of
    rollouts a second, pair by pair.
    """
    import numpy as np

    seconds: dict[str, list[float]] = {side: [] for side in sides}
    made: dict[str, Made] = {}
    for repeat in range(repeats + 1):
        for side, play in sides.items():
            start = time.perf_counter()
            made[side] = play(repeat)
            if repeat:  # the first pair warms up
                seconds[side].append(time.perf_counter() - start)
    sure = np.exp([value for one in runs for step in one.steps for value in step.logprobs or ()])
    return {
        "benchmark": name,
        "device": device,
        "parameters": policy.model.num_parameters(),
        "ratio": spread(
            [
                theirs / ours
                for ours, theirs in zip(seconds["tree"], seconds["generate"], strict=True)
            ]
        ),
        "tokens_per_second": {
            side: spread([made[side].tokens / t for t in times]) for side, times in seconds.items()
        },
        "positions_saved": round(1 - made["tree"].forwarded / made["generate"].forwarded, 3),
        "tokens_below_0.9": round(float((sure < 0.9).mean()), 2),
        "work": {side: vars(value) for side, value in made.items()},
    }
