"""GRPO and DPO, recipes and rewards, the embedded worlds, and policies with
planted causes.

`grpo(policy, environment, recipe, seed, folder)` trains a policy in place;
`train_recipe(read_recipe(path), ...)` does it from files. Names are loaded when
they are first used: importing this room loads no torch. Audits of a running
training stand in `training.live`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training.advantages import Group, GroupAdvantages
    from training.dpo_trainer import PreferenceStep, dpo
    from training.environments.mini_repo import MiniRepo
    from training.environments.prompts import Prompts
    from training.losses import LossSection, Objective, PolicyLoss
    from training.organisms.base_model import RECIPES, build_base, checkpoint_path
    from training.organisms.organism import Organism, build_organism
    from training.recipe import (
        AuditSection,
        PreferenceRecipe,
        Recipe,
        parse_preference_recipe,
        parse_recipe,
        read_recipe,
    )
    from training.recipe_run import train_recipe
    from training.recorder import StepReport
    from training.replayed_steps import replay
    from training.trainer import grpo
    from training.validation import confusion_text, validate

_HOME = {
    "AuditSection": "recipe",
    "Group": "advantages",
    "GroupAdvantages": "advantages",
    "LossSection": "losses",
    "MiniRepo": "environments.mini_repo",
    "Objective": "losses",
    "Organism": "organisms.organism",
    "PolicyLoss": "losses",
    "PreferenceRecipe": "recipe",
    "PreferenceStep": "dpo_trainer",
    "Prompts": "environments.prompts",
    "RECIPES": "organisms.base_model",
    "Recipe": "recipe",
    "StepReport": "recorder",
    "build_base": "organisms.base_model",
    "build_organism": "organisms.organism",
    "checkpoint_path": "organisms.base_model",
    "confusion_text": "validation",
    "dpo": "dpo_trainer",
    "grpo": "trainer",
    "parse_preference_recipe": "recipe",
    "parse_recipe": "recipe",
    "read_recipe": "recipe",
    "replay": "replayed_steps",
    "train_recipe": "recipe_run",
    "validate": "validation",
}
__all__ = [
    "RECIPES",
    "AuditSection",
    "Group",
    "GroupAdvantages",
    "LossSection",
    "MiniRepo",
    "Objective",
    "Organism",
    "PolicyLoss",
    "PreferenceRecipe",
    "PreferenceStep",
    "Prompts",
    "Recipe",
    "StepReport",
    "build_base",
    "build_organism",
    "checkpoint_path",
    "confusion_text",
    "dpo",
    "grpo",
    "parse_preference_recipe",
    "parse_recipe",
    "read_recipe",
    "replay",
    "train_recipe",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'training' has no attribute '{name}'")
    return getattr(import_module(f"training.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
