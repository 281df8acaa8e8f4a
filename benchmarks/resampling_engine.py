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
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.apart import in_turn, random_qwen3, spread
from benchmarks.resampling_peers import TURNS, Made, N, Size, generate, prefixes, turn_by_turn
from forensics import load_policy, policy_from
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
    model = random_qwen3(
        "float32" if device == "cpu" else "bfloat16",
        0,
        device,
        vocab_size=size.vocabulary,
        hidden_size=size.width,
        intermediate_size=4 * size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=max(1, size.heads // 7),
        head_dim=size.width // size.heads,
        max_position_embeddings=4096,
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
    rollouts = list(sampler.draw(requests))
    return Made(
        rollouts=len(rollouts),
        tokens=sum(len(rollout.tokens) for rollout in rollouts),
        success=statistics.mean(rollout.outcome or 0 for rollout in rollouts),
    )


MOSTLY_SURE = 9.0


def run(device: str = "cpu", repeats: int = 3) -> dict[str, Any]:
    """All kinds; the limit applies to episodes on the CPU, on CUDA to long
    texts of a policy that is mostly sure.
    """
    found = {
        "episodes": episodes(device, repeats),
        "long texts, mostly sure": long_texts(device, repeats, MOSTLY_SURE),
        "long texts, sure of nothing": long_texts(device, repeats, 1.0),
    }
    judged = found.pop("episodes" if device == "cpu" else "long texts, mostly sure")
    return judged | {"limit": LIMIT, "device": device, "others": found}


def episodes(device: str, repeats: int) -> dict[str, Any]:
    """Runs of a bundled policy."""
    policy = load_policy(checkpoint_path("bundled:open-base"), device=device, dtype="float32")
    world = MiniRepo(world="open")
    runs = list(policy.play(world, world.tasks("held-out", EPISODES, 0), 1, TURNS, 0))
    sides: dict[str, Callable[[int], Made]] = {
        "tree": lambda seed: text(policy, world, runs, 1, TURNS, seed),
        "generate": lambda seed: turn_by_turn(policy, world, runs, seed),
    }
    return compared(f"{N} continuations at every token of {EPISODES} episodes", sides, repeats)


def long_texts(device: str, repeats: int, sureness: float) -> dict[str, Any]:
    """Texts of a random policy."""
    size = CPU if device == "cpu" else CUDA
    policy, world = policy_of(size, sureness, device), Writing()
    settings = SamplingSettings(max_turn_tokens=size.tokens, max_tokens=4096)
    runs = list(policy.play(world, world.tasks("train", size.texts, 0), 1, settings, 1))
    name = f"{N} continuations at every {size.every}th token of {size.texts} texts of {size.tokens}"
    sides: dict[str, Callable[[int], Made]] = {
        "tree": lambda seed: text(policy, world, runs, size.every, settings, seed),
        "generate": lambda seed: generate(policy, runs, size, settings, seed),
    }
    return compared(name, sides, repeats)


def compared(name: str, sides: dict[str, Callable[[int], Made]], repeats: int) -> dict[str, Any]:
    """Tokens a second, and the ratio of rollouts a second, pair by pair."""
    seconds, made = in_turn(sides, repeats)
    return {
        "benchmark": name,
        "ratio": spread([b / a for a, b in zip(seconds["tree"], seconds["generate"], strict=True)]),
        "tokens_per_second": {
            side: spread([made[side].tokens / t for t in times]) for side, times in seconds.items()
        },
        "work": {side: vars(value) for side, value in made.items()},
    }
