"""The GRPO core, rewards and recipes, the embedded worlds, and policies with
planted causes.

`grpo(policy, environment, recipe, seed, folder)` trains a policy in place;
`read_recipe(path)` reads a recipe. Names are loaded when they are asked for:
importing this room loads no torch.
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "grpo": "training.trainer",
    "StepReport": "training.recorder",
    "group_advantages": "training.advantages",
    "Objective": "training.losses",
    "policy_loss": "training.losses",
    "dpo": "training.dpo_trainer",
    "dpo_loss": "training.dpo_trainer",
    "parse_preference_recipe": "training.recipe",
    "Recipe": "training.recipe",
    "read_recipe": "training.recipe",
    "Recorder": "training.recorder",
    "ForensicsCallback": "training.live",
    "build_organism": "training.organisms.organism",
    "MiniRepo": "training.environments.mini_repo",
    "Prompts": "training.environments.prompts",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'training' has no attribute '{name}'")
    return getattr(import_module(_WHERE[name]), name)
