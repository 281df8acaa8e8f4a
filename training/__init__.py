"""The GRPO core, rewards and recipes, the embedded worlds, and policies with planted causes.

`grpo(policy, environment, recipe, seed, folder)` trains a policy in place; `read_recipe(path)` reads a recipe.
Names are loaded when they are asked for: importing this room loads no torch.
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "grpo": "training.trainer",
    "StepReport": "training.trainer",
    "group_advantages": "training.advantages",
    "Objective": "training.objective",
    "policy_loss": "training.losses",
    "dpo": "training.preference_trainer",
    "dpo_loss": "training.preference",
    "parse_preference_recipe": "training.preference_recipe",
    "Recipe": "training.recipe",
    "read_recipe": "training.recipe",
    "Recorder": "training.recording",
    "ForensicsCallback": "training.live",
    "build_organism": "training.organisms.building",
    "MiniRepo": "training.environments.mini_repo",
    "Prompts": "training.environments.prompts",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'training' has no attribute '{name}'")
    return getattr(import_module(_WHERE[name]), name)
