"""Attention of one position a row: the query heads that share a key head go through as so many
queries of it, so that no key is copied (the library repeats keys where there is a mask).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

ATTENTION: Final = "one_query"


@contextmanager
def one_query(config: Any) -> Iterator[None]:
    """A model of this config attends so."""
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before


def one_query_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one position `[rows, heads, 1, head_dim]` to keys `[rows, key heads,
    length, head_dim]` under a mask `[rows, 1, 1, length]`; `[rows, 1, heads, head_dim]`.
    """
    rows, heads, _one, width = query.shape
    shape: Sequence[int] = (rows, key.shape[1], heads // key.shape[1], width)
    found = scaled_dot_product_attention(
        query.reshape(shape), key, value, attn_mask=attention_mask, scale=scaling
    )
    return found.reshape(rows, 1, heads, -1), None


AttentionInterface.register(ATTENTION, one_query_attention)
