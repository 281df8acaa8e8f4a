"""A KV cache whose rows can be forked and dropped cheaply.

Keys and values live in buffers that grow by doubling, so that a new token is written in place instead of
copying the whole cache as `torch.cat` does. Used for models whose layers all attend to everything; other
layer types (sliding windows, recurrent states) take the library's own cache.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache


class GrowingLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer: buffers `[rows, heads, capacity, head_dim]`, the first `length` positions in use."""

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = _buffer(key_states, 64), _buffer(value_states, 64)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            self._grow(end)
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def _grow(self, needed: int) -> None:
        capacity = max(needed, 2 * self.keys.shape[-2])
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = _buffer(old, capacity)
            new[:, :, : self.length] = old[:, :, : self.length]
            setattr(self, name, new)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the rows `indices`, in that order; a repeated index forks a row."""
        for name in ("keys", "values") if self.is_initialized else ():
            old = getattr(self, name)
            new = _buffer(old[:1].expand(len(indices), -1, -1, -1), old.shape[-2])
            new[:, :, : self.length] = old[indices, :, : self.length]
            setattr(self, name, new)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1


def _buffer(like: torch.Tensor, capacity: int) -> torch.Tensor:
    capacity = max(capacity, like.shape[-2])
    return like.new_empty((*like.shape[:-2], capacity, like.shape[-1]))


def new_cache(config: Any) -> Cache:
    """A cache for a model: ours where every layer attends to everything, else the library's."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    windowed = getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True)
    recurrent = any(hasattr(text, name) for name in ("mamba_d_state", "ssm_state_size", "linear_num_key_heads"))
    if kinds == {"full_attention"} and not windowed and not recurrent:
        return Cache(layers=[GrowingLayer() for _ in range(text.num_hidden_layers)])
    return DynamicCache(config=text)


def select_rows(cache: Cache, indices: torch.Tensor) -> None:
    """Keep the rows `indices` of every layer."""
    for layer in cache.layers:
        if hasattr(layer, "batch_select_indices"):
            layer.batch_select_indices(indices)
        else:
            layer.reorder_cache(indices)
