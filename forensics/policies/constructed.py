"""A policy made of next-token probabilities that are known: a function of the
text so far, or a table. For exact oracles, conformance and examples.

The numbers go through the same decoder as a model's, so it samples, plays,
scores and branches. It has no activations and no weights.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from transformers import PretrainedConfig
from transformers.modeling_outputs import CausalLMOutput

from forensics.errors import UserError
from forensics.policies.huggingface import HuggingFacePolicy
from forensics.protocols import Policy, Renderer

NextToken = Callable[[tuple[int, ...]], Sequence[float]] | Mapping[tuple[int, ...], Sequence[float]]


def constructed_policy(
    next_token: NextToken, tokenizer: Any, identity: str, renderer: Renderer | None = None
) -> Policy:
    """`next_token` gives the probabilities `[len(tokenizer)]` of what follows a
    text. `identity` names them. Texts that a table lacks raise `KeyError`.
    """
    spread = next_token.__getitem__ if isinstance(next_token, Mapping) else next_token
    model = _Table(spread, len(tokenizer))
    policy: Any = HuggingFacePolicy(model, tokenizer, identity, renderer, cache_kind="none")
    policy.capabilities -= {"activations", "interventions", "weights"}
    made: Policy = policy
    return made


def open_policy(where: str, **options: Any) -> Policy:
    """`MODULE:NAME`: a constructed policy, or a function that gives one."""
    module, _, name = str(where).partition(":")
    try:
        found: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"there is no constructed policy {where} ({error}); name it as MODULE:NAME"
        ) from error
    policy: Policy = found() if not hasattr(found, "capabilities") else found
    return policy


class _Table(torch.nn.Module):
    """As much of a causal language model of transformers as the decoder asks for."""

    def __init__(self, spread: Callable[[tuple[int, ...]], Sequence[float]], size: int) -> None:
        super().__init__()
        self._spread = spread
        self.config = PretrainedConfig(
            vocab_size=size, num_hidden_layers=1, num_attention_heads=1, hidden_size=1
        )
        self.device, self.dtype = torch.device("cpu"), torch.float64

    def forward(
        self, input_ids: torch.Tensor, logits_to_keep: int | torch.Tensor = 0, **_: Any
    ) -> CausalLMOutput:
        places = torch.arange(input_ids.shape[1])
        kept = places[-logits_to_keep:] if isinstance(logits_to_keep, int) else logits_to_keep
        rows = [
            [self._spread(tuple(row[: at + 1])) for at in kept.tolist()]
            for row in input_ids.tolist()
        ]
        return CausalLMOutput(logits=torch.from_numpy(np.array(rows, dtype=float)).log())
