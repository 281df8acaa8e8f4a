"""Attention of a single new token on a CPU: two batched products instead of the
blocked kernel.

The library's CPU kernel is made for many queries; with one query a row, plain
products take 60 % of its time. Anything else (several queries, a mask, a
window, a GPU) goes to the library's own function, so the numbers are those of
`sdpa` up to rounding.
"""

from typing import Any

import torch

NAME = "sdpa_one_query"


def one_query_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """`query [rows, heads, 1, d]`, `key`/`value [rows, kv_heads, length, d]`;
    gives `[rows, 1, heads, d]`.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    plain = query.shape[2] == 1 and attention_mask is None and not kwargs.get("sliding_window")
    if (
        not plain
        or query.device.type != "cpu"
        or torch.is_grad_enabled()
        or "position_bias" in kwargs
    ):
        result: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return result
    rows, heads, _, width = query.shape
    mixed = attend(query[:, :, 0], key, value, width**-0.5 if scaling is None else scaling)
    return mixed.view(rows, heads, 1, width).transpose(1, 2), None


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
) -> torch.Tensor:
    """One query a row: `query [rows, heads, d]`, `key`/`value [rows, kv_heads,
    length, d]`.

    Gives `[rows, kv_heads, heads / kv_heads, d]`.
    """
    rows, heads, width = query.shape
    grouped = (query * scaling).view(rows, key.shape[1], heads // key.shape[1], width)
    return torch.matmul(torch.matmul(grouped, key.transpose(-1, -2)).softmax(-1), value)


def use_one_query_attention(model: Any) -> None:
    """Switch a model from `sdpa` to this function; any other attention is left as it is."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    if getattr(model.config, "_attn_implementation", None) != "sdpa" or model.device.type != "cpu":
        return
    AttentionInterface.register(NAME, one_query_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
