"""GRPO and DPO, recipes and rewards, the embedded worlds, and policies with
planted causes.

`grpo(policy, environment, recipe, seed, folder)` trains a policy in place;
`train_recipe(read_recipe(path), ...)` does it from files. Names are loaded when
they are first used: importing this room loads no torch. Audits of a running
training stand in `training.live`.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from training.advantages import Group as Group
    from training.advantages import GroupAdvantages as GroupAdvantages
    from training.dpo_trainer import PreferenceStep as PreferenceStep
    from training.dpo_trainer import dpo as dpo
    from training.environments.mini_repo import MiniRepo as MiniRepo
    from training.environments.prompts import Prompts as Prompts
    from training.live.audit_report import AuditSection as AuditSection
    from training.losses import LossSection as LossSection
    from training.losses import Objective as Objective
    from training.losses import PolicyLoss as PolicyLoss
    from training.organisms.base_model import RECIPES as RECIPES
    from training.organisms.base_model import build_base as build_base
    from training.organisms.base_model import checkpoint_path as checkpoint_path
    from training.organisms.organism import Organism as Organism
    from training.organisms.organism import build_organism as build_organism
    from training.recipe import PreferenceRecipe as PreferenceRecipe
    from training.recipe import Recipe as Recipe
    from training.recipe import parse_preference_recipe as parse_preference_recipe
    from training.recipe import parse_recipe as parse_recipe
    from training.recipe import read_recipe as read_recipe
    from training.recipe_run import train_recipe as train_recipe
    from training.recorder import StepReport as StepReport
    from training.replayed_steps import replay as replay
    from training.trainer import grpo as grpo
    from training.trl_dpo import trl_trainer as trl_trainer
    from training.validation import confusion_text as confusion_text
    from training.validation import validate as validate

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AuditSection": "live.audit_report",
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
        "trl_trainer": "trl_dpo",
        "validate": "validation",
    },
)
