"""A KV cache whose rows can be forked and dropped cheaply.

Keys and values live in buffers with room, so that a new token is written in
place instead of copying the whole cache as `torch.cat` does. On a CPU the room
is small: attention reads all of it in a row at each step, and the gaps of a
half empty buffer cost it two to four times. Used for models whose layers all
attend to everything; other layer types (sliding windows, recurrent states) take
the library's own cache.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from forensics.policies.trunk import Stem as Stem
from forensics.policies.trunk import Trunk

SLACK = 8  # positions of room behind the last one, at least


class GrowingLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer: buffers `[row capacity, heads, position capacity, head_dim]`,
    the first `rows` and `length` in use.

    With a `trunk` the positions before its end are not in the buffers, and
    `append` serves instead of `update`.
    """

    is_sliding = False

    def __init__(
        self,
        most_rows: int = 0,
        trunk: Trunk | None = None,
        number: int = 0,
        spare: "Spare | None" = None,
    ) -> None:
        super().__init__()
        self.rows = 0
        self._spare = spare or Spare()
        self.trunk, self.number = trunk, number
        self.length = self.base
        self._most_rows = most_rows  # room for so many is taken at once

    @property
    def base(self) -> int:
        """The first position that is in the buffers."""
        return self.trunk.length if self.trunk else 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.rows = key_states.shape[0]
        rows = max(self.rows, self._most_rows)
        length = _roomy(key_states.shape[-2], key_states.device)
        self.keys, self.values = (
            self._spare.take(states, rows, length) for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values `[rows, heads, length, head_dim]`, these behind the others."""
        if self.trunk:
            self._take_in(self.trunk)
        return self.append(key_states, value_states)

    def append(
        self, key_states: torch.Tensor, value_states: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values from `base` on, these behind the others."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.length - self.base
        end = start + key_states.shape[-2]
        self._reserve(self.rows, end)
        self.keys[: self.rows, :, start:end] = key_states
        self.values[: self.rows, :, start:end] = value_states
        self.length = self.base + end
        return self.keys[: self.rows, :, :end], self.values[: self.rows, :, :end]

    def _take_in(self, trunk: Trunk) -> None:
        """Copy the trunk into the buffers, for a reader that does not know of it."""
        base, own = trunk.length, self.length - trunk.length
        for name, side in (("keys", 0), ("values", 1)):
            old = getattr(self, name)
            new = old.new_empty((*old.shape[:2], base + old.shape[2], old.shape[3]))
            new[: self.rows, :, base : base + own] = old[: self.rows, :, :own]
            for rows, *states in trunk.parts(self.number):
                new[slice(0, self.rows) if rows is None else rows, :, :base] = states[side]
            setattr(self, name, new)
        self.trunk = None

    def move(self, sources: torch.Tensor, targets: torch.Tensor, rows: int) -> None:
        """Copy the rows `sources` to the places `targets`; the first `rows`
        rows are in use afterwards.
        """
        used_length = self.length - self.base
        self._reserve(rows, used_length)
        for buffer in (self.keys, self.values):
            used = buffer[:, :, :used_length]
            used.index_copy_(0, targets, used.index_select(0, sources))
        self.rows = rows

    def plant(self, states: Sequence[tuple[torch.Tensor, torch.Tensor]], length: int) -> None:
        """New rows, with the first `length` positions of these keys and values
        `[heads, >= length, head_dim]`.
        """
        base = self.base
        if not self.is_initialized:
            keys, values = states[0]
            self.lazy_initialization(keys[None, :, base:length], values[None, :, base:length])
            self.rows, self.length = 0, length
        rows = self.rows + len(states)
        self._reserve(rows, length - base)
        for place, (keys, values) in enumerate(states, self.rows):
            self.keys[place, :, : length - base] = keys[:, base:length]
            self.values[place, :, : length - base] = values[:, base:length]
        self.rows = rows

    def _reserve(self, rows: int, length: int) -> None:
        """Room for more rows or positions; rows are doubled, so that growth costs little in all."""
        has_rows, has_length = self.keys.shape[0], self.keys.shape[-2]
        if rows <= has_rows and length <= has_length:
            return
        rows = has_rows if rows <= has_rows else max(rows, 2 * has_rows)
        length = has_length if length <= has_length else _roomy(length, self.device)
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = self._spare.take(old, rows, length)
            used = self.length - self.base
            new[: self.rows, :, :used] = old[: self.rows, :, :used]
            setattr(self, name, new)
            self._spare.give(old)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1


class Spare:
    """Memory that a cache does not need at the moment: its buffers are laid out
    anew often, and new pages are dear.

    One piece for each device and type: layers may lie apart, and one may hold
    token ids.
    """

    def __init__(self) -> None:
        self._flat: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    def take(self, like: torch.Tensor, rows: int, length: int) -> torch.Tensor:
        """A buffer `[rows, heads, length, head_dim]` with the heads and width
        of `like`, unwritten.
        """
        shape = (rows, like.shape[1], length, like.shape[-1])
        size, flat = math.prod(shape), self._flat.pop((like.device, like.dtype), None)
        if flat is None or flat.numel() < size:
            flat = like.new_empty(
                2 * size if like.device.type == "cpu" else size
            )  # unused pages cost nothing there
        return flat[:size].view(shape)

    def give(self, buffer: torch.Tensor) -> None:
        """A buffer that nobody reads any more."""
        size = buffer.untyped_storage().nbytes() // buffer.element_size()
        self._flat[buffer.device, buffer.dtype] = buffer.as_strided((size,), (1,), 0)


def _roomy(length: int, device: torch.device) -> int:
    """The length of a buffer for so many positions."""
    return length + max(SLACK, length // 8) if device.type == "cpu" else max(64, 2 * length)


def new_cache(config: Any, most_rows: int = 0, trunk: int = 0) -> Cache:
    """A cache for a model: ours where every layer attends to everything, else
    the library's.

    `trunk`: so many first positions of every row stay with the stems that will
    be planted (ours only).
    """
    text = config.get_text_config()
    if attends_to_everything(config):
        shared, spare = Trunk(trunk) if trunk else None, Spare()
        return Cache(
            layers=[
                GrowingLayer(most_rows, shared, i, spare) for i in range(text.num_hidden_layers)
            ]
        )
    return DynamicCache(config=text)


def take_stem(cache: Cache, row: int, length: int) -> Stem:
    """A copy of the first `length` positions of one row of our cache."""
    layers = [
        (layer.keys[row, :, :length].clone(), layer.values[row, :, :length].clone())
        for layer in cache.layers
    ]
    return Stem(layers=tuple(layers), length=length)


def plant_stems(cache: Cache, stems: Sequence[Stem], length: int) -> None:
    """New rows in our cache, which stands at `length` positions, for texts with these stems."""
    if trunk := trunk_of(cache):
        trunk.plant(stems)
    for number, layer in enumerate(cache.layers):
        layer.plant([stem.layers[number] for stem in stems], length)


def trunk_of(cache: Any) -> Trunk | None:
    """What the rows have in common, where the cache keeps it apart."""
    return next(
        (layer.trunk for layer in cache.layers if type(layer) is GrowingLayer and layer.trunk), None
    )


def attends_to_everything(config: Any) -> bool:
    """Whether every layer keeps keys and values of all positions: no window, no recurrent state."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    windowed = getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True)
    recurrent = any(
        hasattr(text, name) for name in ("mamba_d_state", "ssm_state_size", "linear_num_key_heads")
    )
    return kinds == {"full_attention"} and not windowed and not recurrent


def move_rows(cache: Cache, sources: Sequence[int], targets: Sequence[int], rows: int) -> None:
    """Copy rows to other places, all at once; the cache has `rows` rows
    afterwards.

    `targets` name every place beyond the rows there are now.
    """
    taken = dict(zip(targets, sources, strict=True))
    if trunk := trunk_of(cache):
        trunk.move(sources, targets, rows)
    for layer in cache.layers:
        if isinstance(layer, GrowingLayer):
            places = torch.tensor([sources, targets], dtype=torch.long, device=layer.device)
            layer.move(places[0], places[1], rows)
        else:
            layer.reorder_cache(torch.tensor([taken.get(i, i) for i in range(rows)]))
