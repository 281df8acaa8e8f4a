"""Episodes per second: our lockstep decoder against the same episodes driven turn by turn through `generate`.

The peer is what a TRL user would write: all running episodes are padded on the left, `model.generate` draws
one action for each, the environment answers, and the whole text goes in again. Both play the same tasks with
the same policy, settings and batch; their mean turns and success are printed so that the work can be compared.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forensics.policies.huggingface import HuggingFacePolicy, load_policy
from forensics.protocols import Environment, SamplingSettings
from training.environments.mini_repo import MiniRepo
from training.organisms.building import checkpoint_path

LIMIT = 5.0


@dataclass(frozen=True, kw_only=True)
class Played:
    """What was played, for comparing the work of both sides."""

    episodes: int
    turns: float
    success: float


def lockstep(policy: HuggingFacePolicy, world: Environment, tasks: Sequence[str], samples: int,
             settings: SamplingSettings, seed: int) -> Played:
    """Ours."""
    runs = list(policy.play(world, tasks, samples, settings, seed))
    return Played(
        episodes=len(runs), turns=statistics.mean(run.turns for run in runs),
        success=statistics.mean(run.outcome or 0 for run in runs),
    )


def turn_by_turn(policy: HuggingFacePolicy, world: Environment, tasks: Sequence[str], samples: int,
                 settings: SamplingSettings, seed: int) -> Played:
    """The peer: `generate` with left padding, once a turn, on all running episodes."""
    import torch

    torch.manual_seed(seed)
    rendering = policy.rendering
    rows: list[dict[str, Any]] = []
    for task in tasks:
        for _ in range(samples):
            scene = world.spawn()
            start = scene.reset(task, 0)
            rows.append({"scene": scene, "ids": rendering.prompt(start.text, start.system), "turns": 0, "outcome": 0.0})
    running = rows
    while running:
        for row, action in zip(running, _generate(policy, [row["ids"] for row in running], settings), strict=True):
            row["turns"] += 1
            result = row["scene"].step(rendering.action_text(action))
            row["over"] = result.terminated or result.truncated
            row["outcome"] = result.outcome or 0.0
            row["ids"] = [*row["ids"], *action, *rendering.reply(result.observation, action)]
        running = [row for row in running if not row["over"]]
    return Played(
        episodes=len(rows), turns=statistics.mean(row["turns"] for row in rows),
        success=statistics.mean(row["outcome"] for row in rows),
    )


def _generate(policy: HuggingFacePolicy, prompts: Sequence[list[int]], settings: SamplingSettings) -> list[list[int]]:
    import torch

    width = max(len(ids) for ids in prompts)
    device = policy.model.device
    ids = torch.tensor([[0] * (width - len(row)) + row for row in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts], device=device)
    with torch.inference_mode():
        output = policy.model.generate(
            ids, attention_mask=mask, do_sample=True, temperature=settings.temperature, top_k=0, top_p=1.0,
            max_new_tokens=settings.max_turn_tokens, eos_token_id=sorted(policy.rendering.stops), pad_token_id=0,
        )
    return [_until_stop(row, policy.rendering.stops) for row in output[:, width:].tolist()]


def _until_stop(row: list[int], stops: frozenset[int]) -> list[int]:
    for index, token in enumerate(row):
        if token in stops:
            return row[: index + 1]
    return row


def run(device: str = "cpu", repeats: int = 5, tasks: int = 64, samples: int = 4) -> dict[str, Any]:
    """Both sides in turn, `repeats` times; episodes a second and their ratio, pair by pair."""
    policy = load_policy(checkpoint_path("bundled:open-base"), device=device, dtype="float32")
    world = MiniRepo(world="open")
    names = world.tasks("held-out", tasks, 0)
    settings = SamplingSettings(max_turn_tokens=16, max_tokens=256)
    sides: dict[str, Callable[..., Played]] = {"lockstep": lockstep, "turn by turn": turn_by_turn}
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    played: dict[str, Played] = {}
    for repeat in range(repeats + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            played[name] = side(policy, world, names, samples, settings, repeat)
            if repeat:  # the first pair warms up
                speeds[name].append(played[name].episodes / (time.perf_counter() - start))
    ratios = [ours / theirs for ours, theirs in zip(speeds["lockstep"], speeds["turn by turn"], strict=True)]
    return {
        "benchmark": "episodes per second", "limit": LIMIT, "ratio": _spread(ratios),
        "episodes_per_second": {name: _spread(values) for name, values in speeds.items()},
        "work": {name: vars(value) for name, value in played.items()}, "device": device,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"min": round(min(values), 2), "median": round(statistics.median(values), 2), "max": round(max(values), 2)}
