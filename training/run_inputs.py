"""What a run accepts from its caller beside the recipe: a policy that can be trained
and is what it says, rewards with weights, and preference pairs of that policy.
"""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any
from weakref import WeakSet

import numpy as np

from forensics.errors import UserError
from forensics.policies import context_length
from forensics.protocols import Policy
from forensics.records import PreferencePair
from training.recipe import PreferenceRecipe, Recipe
from training.rewards import Rewards

_changed: WeakSet[Policy] = WeakSet()


def mark_changed(policy: Policy) -> None:
    """Its weights are no longer those that its identity names."""
    _changed.add(policy)


def check_policy(policy: Policy, recipe: Recipe | PreferenceRecipe) -> None:
    """Refuse weights that cannot be trained, or that are not those which the
    policy's identity names.
    """
    if policy in _changed:
        raise UserError(
            "an earlier grpo() or dpo() has changed the weights of this policy; load it again with"
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


def check_pairs(
    pairs: Sequence[PreferencePair],
    identity: str,
    config: Mapping[str, Any],
    any_policy: bool = False,
) -> None:
    """Refuse pairs of another policy (unless `any_policy`), and tokens that a
    model of this `config` cannot take.
    """
    if not pairs:
        raise UserError("there are no preference pairs to train on; give at least one")
    vocabulary = int(config.get("vocab_size") or config["text_config"]["vocab_size"])
    room = context_length(config)
    for pair in pairs:
        if pair.policy != identity and not any_policy:
            raise UserError(
                f"pair '{pair.id}' is of policy {pair.policy}, not of {identity}, which is to be"
                " trained; train that policy, or set any_policy = true under [preference]"
            )
        for answer in (pair.chosen, pair.rejected):
            ids = (*pair.prefix, *answer)
            if not 0 <= min(ids) <= max(ids) < vocabulary:
                wrong = max(ids) if max(ids) >= vocabulary else min(ids)
                raise UserError(
                    f"pair '{pair.id}' holds token {wrong} and the policy knows {vocabulary}; the"
                    " pair was made with another tokenizer"
                )
            if room is not None and len(ids) > room:
                raise UserError(
                    f"pair '{pair.id}' has {len(ids)} tokens and the policy was made for {room}"
                    " positions; leave it out"
                )
