"""What a run accepts from its caller beside the recipe: a policy that can be trained
and is what it says, and rewards with weights.
"""

from collections.abc import Sequence
from numbers import Real
from weakref import WeakSet

import numpy as np

from forensics.errors import UserError
from forensics.protocols import Policy
from training.recipe import Recipe
from training.rewards import Rewards

_changed: WeakSet[Policy] = WeakSet()


def mark_changed(policy: Policy) -> None:
    """Its weights are no longer those that its identity names."""
    _changed.add(policy)


def check_policy(policy: Policy, recipe: Recipe) -> None:
    """Refuse weights that cannot be trained, or that are not those which the
    policy's identity names.
    """
    if policy in _changed:
        raise UserError(
            "an earlier grpo() has changed the weights of this policy; load it again with"
            " load_policy(), or give the weights as they are now a new identity with"
            " policy_from(model, tokenizer, identity)"
        )
    kinds = {str(p.dtype).removeprefix("torch.") for p in policy.model.parameters()} - {"float32"}
    if recipe.lora is None and kinds:
        raise UserError(
            f"the policy's weights are in {', '.join(sorted(kinds))}, in which small updates"
            ' vanish; load it with load_policy(..., dtype="float32") and set the precision of'
            " the forward pass with dtype under [compute]"
        )


def check_rewards(rewards: Rewards) -> None:
    """Refuse what is not a function with a finite weight."""
    for name, given in rewards.items():
        pair = isinstance(given, Sequence) and len(given) == 2
        if not (pair and callable(given[0]) and isinstance(given[1], Real)):
            raise UserError(
                f"the reward '{name}' is {given!r}; give each name a pair (function, weight)"
            )
        if not np.isfinite(given[1]):
            raise UserError(f"the reward '{name}' has weight {given[1]}; give a finite number")
