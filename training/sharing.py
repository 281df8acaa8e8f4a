"""Hidden states of rows that begin alike: what they share is computed once.

The rows of a group have their prompt in common. Its keys and values are formed once for each different beginning,
with gradient, and handed to every row that begins so; the gradients of all rows add up there. The numbers are those
of whole rows up to rounding.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import torch

from forensics.policies.cache import attends_to_everything

WORTH = 0.9  # a plan that leaves more than this share of the tokens to compute is not worth two passes


@dataclass(frozen=True, kw_only=True)
class Beginnings:
    """The first `length` tokens of each row: which different ones there are `[different, length]`, and whose they are.

    `owners` `[rows]` names each row's beginning.
    """

    length: int
    token_ids: torch.Tensor
    owners: torch.Tensor


def beginnings(token_ids: torch.Tensor, wanted: torch.Tensor) -> Beginnings | None:
    """What rows `[rows, length]` share before the first prediction that is wanted `[rows, length - 1]`, where it pays.

    All rows are cut at one place, so that what is left is a rectangle again.
    """
    length = int(wanted.any(0).to(torch.uint8).argmax()) if wanted.any() else 0
    if length == 0:
        return None
    different, owners = torch.unique(token_ids[:, :length], dim=0, return_inverse=True)
    shared = Beginnings(length=length, token_ids=different, owners=owners)
    return shared if _tokens(token_ids, shared) < WORTH * _tokens(token_ids, None) else None


def computed_tokens(token_ids: torch.Tensor, wanted: torch.Tensor) -> int:
    """Tokens that go through the decoder for these rows."""
    return _tokens(token_ids, beginnings(token_ids, wanted))


def _tokens(token_ids: torch.Tensor, shared: Beginnings | None) -> int:
    rows, length = token_ids.shape[0], token_ids.shape[1] - 1
    return rows * length if shared is None else shared.token_ids.numel() + rows * (length - shared.length)


def can_share(model: Any, decoder: Any) -> bool:
    """Whether keys and values of a beginning say all there is to know of it, and a cache keeps their gradient."""
    checkpointed = any(module.training and getattr(module, "gradient_checkpointing", False)
                       for module in model.modules())
    keeps = "past_key_values" in inspect.signature(decoder.forward).parameters
    return keeps and not checkpointed and attends_to_everything(model.config)


def hidden_behind(decoder: Any, token_ids: torch.Tensor, shared: Beginnings) -> torch.Tensor:
    """Last hidden states `[rows, length - shared.length, width]` of the tokens behind the beginnings."""
    from transformers import DynamicCache

    cache = DynamicCache()
    decoder(shared.token_ids, past_key_values=cache, use_cache=True)
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[shared.owners], layer.values[shared.owners]
    hidden: torch.Tensor = decoder(
        token_ids[:, shared.length :], past_key_values=cache, use_cache=True
    ).last_hidden_state
    return hidden
