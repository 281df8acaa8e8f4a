"""GRPO, recipes and rewards, the embedded worlds, and policies with
planted causes.

`grpo(policy, environment, recipe, seed, folder)` trains a policy in place;
`train_recipe(read_recipe(path), ...)` does it from files. Names are loaded when
they are first used: importing this room loads no torch. Audits of a running
training stand in `training.live`.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from training.environments.mini_repo import MiniRepo as MiniRepo
    from training.environments.prompts import Prompts as Prompts
    from training.groups import (
        Estimator as Estimator,
        Group as Group,
        GroupAdvantages as GroupAdvantages,
    )
    from training.live.audit_report import AuditSection as AuditSection
    from training.loss_section import (
        LossSection as LossSection,
        Objective as Objective,
        PolicyLoss as PolicyLoss,
        Tokens as Tokens,
    )
    from training.organisms.base_model import checkpoint_path as checkpoint_path
    from training.recipe import (
        GrpoSection as GrpoSection,
        Recipe as Recipe,
        parse_recipe as parse_recipe,
        read_recipe as read_recipe,
    )
    from training.recorder import StepReport as StepReport
    from training.replayed_steps import replay as replay
    from training.trainer import grpo as grpo, train_recipe as train_recipe
    from training.trl_dpo import trl_trainer as trl_trainer

__getattr__, __dir__ = lazy_names(__name__)
