"""Pairs of checkpoints in which it is known where the change lives."""

import copy
from collections.abc import Callable
from typing import Any

import torch

from crosscoders.patching.decisions import Behaviour, Decision, decisions_of, starting_with
from forensics import load_policy, policy_from
from forensics.protocols import Policy, SamplingSettings
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

LAYERS = 3


def bundled(name: str) -> Policy:
    return load_policy(checkpoint_path(f"bundled:{name}"), device="cpu")


def tiny(seed: int) -> Policy:
    """Two layers at random, spread out so that it prefers some tokens."""
    model = tiny_qwen3(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    return policy_from(model, tiny_tokenizer(), f"tiny-{seed}")


def changed(policy: Policy, change: Callable[[Any], None]) -> Policy:
    """A copy of which `change(model)` has changed some weights."""
    model = copy.deepcopy(policy.model)
    with torch.no_grad():
        change(model)
    return policy_from(model, policy.tokenizer, "changed")


def shaken(module: torch.nn.Module, amount: float = 0.3) -> None:
    """Every weight of a module moved at random."""
    noise = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        spread = (
            parameter.std() if parameter.dim() > 1 else 1.0
        )  # the weights of a norm are all one
        parameter.add_(amount * spread * torch.randn(parameter.shape, generator=noise))


def first_decisions(policy: Policy, tasks: int) -> tuple[tuple[Decision, ...], Behaviour]:
    """The first decision of each task, and starting to read the history there."""
    world = MiniRepo(world="capped")
    runs = list(
        policy.play(world, world.tasks("held-out", tasks, 0), 1, SamplingSettings(), seed=1)
    )
    return decisions_of(runs), starting_with("history", runs)


def random_decisions(
    number: int, tasks: int, lengths: tuple[int, ...] = (5, 9), size: int = 300
) -> list[Decision]:
    draw = torch.Generator().manual_seed(7)
    return [
        Decision(
            task=f"task {i % tasks}",
            token_ids=tuple(
                torch.randint(3, size, (lengths[i % len(lengths)],), generator=draw).tolist()
            ),
        )
        for i in range(number)
    ]
