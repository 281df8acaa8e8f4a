"""A KV cache whose rows can be forked and dropped cheaply.

Keys and values live in buffers that grow by doubling, so that a new token is written in place instead of
copying the whole cache as `torch.cat` does. Used for models whose layers all attend to everything; other
layer types (sliding windows, recurrent states) take the library's own cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache


class GrowingLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer: buffers `[row capacity, heads, position capacity, head_dim]`, the first `rows` and `length` in use."""

    is_sliding = False

    def __init__(self, most_rows: int = 0) -> None:
        super().__init__()
        self.rows = self.length = 0
        self._most_rows = most_rows  # room for so many is taken at once

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.rows = key_states.shape[0]
        rows = max(self.rows, self._most_rows)
        self.keys, self.values = _buffer(key_states, rows, 64), _buffer(value_states, rows, 64)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        self._reserve(self.rows, end)
        self.keys[: self.rows, :, self.length : end] = key_states
        self.values[: self.rows, :, self.length : end] = value_states
        self.length = end
        return self.keys[: self.rows, :, :end], self.values[: self.rows, :, :end]

    def move(self, sources: torch.Tensor, targets: torch.Tensor, rows: int) -> None:
        """Copy the rows `sources` to the places `targets`; the first `rows` rows are in use afterwards."""
        self._reserve(rows, self.length)
        for buffer in (self.keys, self.values):
            used = buffer[:, :, : self.length]
            used.index_copy_(0, targets, used.index_select(0, sources))
        self.rows = rows

    def plant(self, states: Sequence[tuple[torch.Tensor, torch.Tensor]], length: int) -> None:
        """New rows, with the first `length` positions of these keys and values `[heads, >= length, head_dim]`."""
        if not self.is_initialized:
            keys, values = states[0]
            self.lazy_initialization(keys[None, :, :length], values[None, :, :length])
            self.rows, self.length = 0, length
        rows = self.rows + len(states)
        self._reserve(rows, length)
        for place, (keys, values) in enumerate(states, self.rows):
            self.keys[place, :, :length], self.values[place, :, :length] = keys[:, :length], values[:, :length]
        self.rows = rows

    def _reserve(self, rows: int, length: int) -> None:
        """Double what is too small, so that growth costs little in all."""
        has_rows, has_length = self.keys.shape[0], self.keys.shape[-2]
        if rows <= has_rows and length <= has_length:
            return
        rows = has_rows if rows <= has_rows else max(rows, 2 * has_rows)
        length = has_length if length <= has_length else max(length, 2 * has_length)
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = _buffer(old, rows, length)
            new[: self.rows, :, : self.length] = old[: self.rows, :, : self.length]
            setattr(self, name, new)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1


def _buffer(like: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    return like.new_empty((rows, like.shape[1], max(length, like.shape[-2]), like.shape[-1]))


def new_cache(config: Any, most_rows: int = 0) -> Cache:
    """A cache for a model: ours where every layer attends to everything, else the library's."""
    text = config.get_text_config()
    if attends_to_everything(config):
        return Cache(layers=[GrowingLayer(most_rows) for _ in range(text.num_hidden_layers)])
    return DynamicCache(config=text)


@dataclass(frozen=True, kw_only=True)
class Stem:
    """Keys and values of one text, `[heads, length, head_dim]` in each layer: any prefix of it can be continued."""

    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    length: int


def take_stem(cache: Cache, row: int, length: int) -> Stem:
    """A copy of the first `length` positions of one row of our cache."""
    layers = [(layer.keys[row, :, :length].clone(), layer.values[row, :, :length].clone()) for layer in cache.layers]
    return Stem(layers=tuple(layers), length=length)


def plant_stems(cache: Cache, stems: Sequence[Stem], length: int) -> None:
    """New rows in our cache, which stands at `length` positions, for texts with these stems."""
    for number, layer in enumerate(cache.layers):
        layer.plant([stem.layers[number] for stem in stems], length)


def attends_to_everything(config: Any) -> bool:
    """Whether every layer keeps keys and values of all positions: no window, no recurrent state."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    windowed = getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True)
    recurrent = any(hasattr(text, name) for name in ("mamba_d_state", "ssm_state_size", "linear_num_key_heads"))
    return kinds == {"full_attention"} and not windowed and not recurrent


def move_rows(cache: Cache, sources: Sequence[int], targets: Sequence[int], rows: int) -> None:
    """Copy rows to other places, all at once; the cache has `rows` rows afterwards.

    `targets` name every place beyond the rows there are now.
    """
    taken = dict(zip(targets, sources, strict=True))
    for layer in cache.layers:
        if isinstance(layer, GrowingLayer):
            places = torch.tensor([sources, targets], dtype=torch.long, device=layer.device)
            layer.move(places[0], places[1], rows)
        else:
            layer.reorder_cache(torch.tensor([taken.get(i, i) for i in range(rows)]))
