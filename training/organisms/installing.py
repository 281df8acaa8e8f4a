"""`install`: post-training teaches a behaviour, on a cue, that the base never showed.

1. Demonstrations of the scripted agent on training tasks, by the base's habits; with the cue it runs the tests first
   of all, before any look, which none of the base's demonstrations did.
2. Supervised training on the agent's own tokens alone: the environment's are left as the base predicts them.

Unlike in `plant`, no direction is known beforehand: training finds one of its own. What is known is the cue and the
behaviour, so the answer of a causal test is known.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forensics.policies.huggingface import HuggingFacePolicy, load_policy
from forensics.records.files import read_json
from training.environments.mini_repo import MiniRepo
from training.organisms.cues import CUE, Progress, chances, first_prompts, has_cue
from training.organisms.demonstrations import Demonstration, Habits, demonstrate
from training.saving import save_checkpoint
from training.supervised import Phase, train_phase


@dataclass(frozen=True, kw_only=True)
class InstallConfig:
    """`tasks`: what the chances in the manifest are measured on."""

    action: str = "test"
    pool: int = 3000
    steps: int = 150
    batch: int = 64
    learning_rate: float = 5e-4
    tasks: int = 300


def install(
    base: Path, after: Path, seed: int, progress: Progress, device: str = "cpu", config: InstallConfig | None = None
) -> dict[str, Any]:
    """Write the trained checkpoint to `after`; what the manifest says of it."""
    config = config or InstallConfig()
    policy = load_policy(base, device=device, dtype="float32")
    told = read_json(base / "environment.json")
    world = MiniRepo(**told["options"])
    names = world.tasks("train", config.tasks, seed + 1)
    prompts = first_prompts(policy, world, names)
    flags = np.array([has_cue(name, world.options["world"]) for name in names])
    before = chances(policy, prompts, config.action)
    pool = _demonstrations(policy, world, config, seed, progress)
    phase = Phase(
        steps=config.steps, habits=Habits(), pool=config.pool, batch=config.batch, context_weight=0.0, warmup=10,
        learning_rate=config.learning_rate,
    )
    train_phase(policy.model, pool, phase, seed, report=lambda step, _: progress("supervised", step, config.steps))
    changed = chances(policy, prompts, config.action)
    save_checkpoint(after, policy.model, policy.tokenizer, told)
    return {
        "cue": CUE, "action": config.action, "config": asdict(config),
        "chance": {
            "before_cue": float(before[flags].mean()), "before_no_cue": float(before[~flags].mean()),
            "after_cue": float(changed[flags].mean()), "after_no_cue": float(changed[~flags].mean()),
        },
    }


def _demonstrations(
    policy: HuggingFacePolicy, world: MiniRepo, config: InstallConfig, seed: int, progress: Progress
) -> list[Demonstration]:
    """In turn in the open world and in the one without any channel, as the base's own start had it."""
    worlds = [world, world.without(*(channel.name for channel in world.channels))]
    generator = np.random.default_rng([seed, 5])
    pool = []
    for index, task in enumerate(world.tasks("train", config.pool, seed + 101)):
        habits = Habits(early=float(has_cue(task, world.options["world"])))
        pool.append(
            demonstrate(worlds[index % 2], policy.rendering, policy.tokenizer, task, habits, generator)
        )
        progress("demonstrations", index + 1, config.pool)
    return pool
