"""A KV cache whose rows can be branched and dropped cheaply, and how far a
model's cache can be trusted to carry texts that branch.

Keys and values live in buffers with room, so that a new token is written in
place instead of copying the whole cache as `torch.cat` does. On a CPU the room
is small: attention reads all of it in a row at each step, and the gaps of a
half empty buffer cost it two to four times.

Batch decoding copies rows of the cache where texts part; it never crops one, so
that the two meanings that a negative count to `crop` has had (transformers 4
and 5) cannot matter here. What does matter is the *kind*:

1. `own`: every layer attends to all positions; our own cache serves.
2. `library`: some layers look back over a window only; the library's cache
   serves, several tokens at a time.
3. `one-token`: some layers carry a state. Some of these models start it anew
   where several tokens follow a state, without a word (Jamba in transformers
   5.23), so after the first pass they are fed one token at a time.
4. `none`: the cache does not carry the text (Mamba takes it under another name
   and ignores ours, Recurrent Gemma keeps its state in its modules, where no
   row can be copied). The whole text is read again for each token.

Whether 2 and 3 hold is not guessed from a model's name: a short text is
branched and held against a plain pass.

How many rows a batch of a model may have (`Room`) is a budget of memory over what the KV cache
of a row takes. On a GPU the budget is a share of the memory that is free when the policy is
made, and a row is reckoned with every token that its text may have. What rows a run was played
with is written down with it (`Room.stated`), so that a resumed one does not depend on what
else the card holds by then. On a CPU the budget is fixed, and so are the rows: pages of a
buffer that are never written cost nothing there, so a row is reckoned with `CACHED_TOKENS`.

Where memory does not suffice after all, batches are halved (`Room.halve`).
"""

import gc
import inspect
import logging
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from forensics.policies.distribution import on_device

MOST_ROWS: Final = 1024
CACHE_BYTES: Final = 2**31  # on a CPU
GPU_SHARE: Final = 0.4  # of what is free
CACHED_TOKENS: Final = 512  # of a row on a CPU
logger = logging.getLogger("forensics")


def cached_numbers(config: Any) -> int:
    """Numbers that the cache of a model keeps of one token, keys and values of all layers."""
    text = config.get_text_config()
    queries = getattr(text, "num_attention_heads", None) or 1
    heads = getattr(text, "num_key_value_heads", None) or queries
    width = getattr(text, "head_dim", None) or text.hidden_size // queries
    return int(2 * text.num_hidden_layers * heads * width)


@dataclass
class Room:
    """The room of one model, on whatever policies share it. `budget` in bytes; `most`:
    rows that turned out to be too many, less one half.
    """

    numbers: int
    itemsize: int
    budget: int
    device: str
    most: int = MOST_ROWS

    @classmethod
    def of(cls, model: Any) -> "Room":
        budget, device = CACHE_BYTES, model.device.type
        if device == "cuda":
            budget = int(free_memory(model.device) * GPU_SHARE)
        return cls(cached_numbers(model.config), model.dtype.itemsize, budget, device)

    def rows(self, length: int) -> int:
        """How many rows of at most `length` tokens go through together."""
        itemsize = self.itemsize
        if self.device == "cpu":
            length = CACHED_TOKENS
        elif torch.is_autocast_enabled(self.device):
            itemsize = min(itemsize, torch.get_autocast_dtype(self.device).itemsize)
        fitting = self.budget // (self.numbers * itemsize * length)
        return min(self.most, max(1, min(MOST_ROWS, fitting)))

    def halve(self, rows: int) -> None:
        """Memory did not suffice for so many rows."""
        self.most = max(1, rows // 2)
        logger.warning(
            "memory does not suffice for %d rows at once; from here on %d go through together",
            rows,
            self.most,
        )

    @property
    def stated(self) -> dict[str, int]:
        """What decides about rows, to be written down; nothing where it is always the same."""
        return {} if self.device == "cpu" else {"cache_bytes": self.budget, "rows": self.most}

    def restore(self, stated: dict[str, int]) -> None:
        """Go on with the rows of an earlier run."""
        self.budget = stated.get("cache_bytes", self.budget)
        self.most = stated.get("rows", self.most)


def free_memory(device: torch.device) -> int:
    """Bytes of a GPU that this process may still take: what is free, within its share of the
    card (`torch.cuda.set_per_process_memory_fraction`).
    """
    share = torch.cuda.get_per_process_memory_fraction(device)
    whole = torch.cuda.get_device_properties(device).total_memory
    left = int(share * whole) - torch.cuda.memory_reserved(device)
    return int(max(0, min(torch.cuda.mem_get_info(device)[0], left)))


def release_memory(device: torch.device) -> None:
    """Give back what no tensor holds any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


SLACK = 8  # positions of room behind the last one, at least
READ_AT_ONCE = 16384  # tokens of prefix caches
READ_POSITIONS = 512  # of each text at a time
FRESH_BYTES = 2**23  # a buffer from here on has pages of its own


@dataclass(frozen=True, kw_only=True)
class PrefixCache:
    """Keys and values of one text, `[heads, length, head_dim]` in each layer:
    any prefix of it can be continued.
    """

    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    length: int


@dataclass(frozen=True, kw_only=True)
class Spots:
    """Where new keys and values go while rows stand at different positions: into `rows
    [n]`, in ascending order, at the positions `at [n, new]`, all of them below `end`.
    """

    rows: torch.Tensor
    at: torch.Tensor
    end: int


class GrowingLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer: buffers `[row capacity, heads, position capacity, head_dim]`,
    the first `rows` and `length` in use. Keys and values are of one precision, the
    narrower of the two: under autocast keys come out of the rotation in float32, and
    attention would narrow all of them again at each step.

    `most_rows`: room for so many is taken at once. On a GPU the buffers never have
    more than `most_rows` and `most_length` (0: no bound), unless more is in use.
    """

    is_sliding = False

    def __init__(
        self, most_rows: int = 0, spare: "Spare | None" = None, most_length: int = 0
    ) -> None:
        super().__init__()
        self.rows = self.length = 0
        self.spots: Spots | None = None
        self._spare = spare or Spare()
        self._most_rows, self._most_length = most_rows, most_length

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.device = key_states.device
        self.dtype = min(key_states.dtype, value_states.dtype, key=lambda kind: kind.itemsize)
        self.rows = key_states.shape[0]
        rows = max(self.rows, self._most_rows)
        length = _roomy(key_states.shape[-2], self.device, self._most_length)
        numbers = key_states.is_floating_point() and value_states.is_floating_point()
        self.keys, self.values = (
            self._spare.take(states, rows, length, self.dtype if numbers else None)
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values `[rows, heads, length, head_dim]`, these behind the others."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.spots is not None:
            return self._put(key_states, value_states, self.spots)
        start, end = self.length, self.length + key_states.shape[-2]
        self._reserve(self.rows, end)
        self.keys[: self.rows, :, start:end] = key_states
        self.values[: self.rows, :, start:end] = value_states
        self.length = end
        return self.keys[: self.rows, :, :end], self.values[: self.rows, :, :end]

    def _put(
        self, key_states: torch.Tensor, value_states: torch.Tensor, spots: Spots
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values of some rows, up to the last position in use."""
        self._reserve(self.rows, spots.end)
        for buffer, states in ((self.keys, key_states), (self.values, value_states)):
            buffer[: self.rows, :, self.length : spots.end] = (
                0  # 0 times what lies there may be NaN
            )
            buffer[spots.rows[:, None], :, spots.at] = states.transpose(1, 2).to(buffer.dtype)
        self.length = max(self.length, spots.end)
        if len(spots.rows) == self.rows:
            return self.keys[: self.rows, :, : self.length], self.values[
                : self.rows, :, : self.length
            ]
        return self.keys[spots.rows, :, : self.length], self.values[spots.rows, :, : self.length]

    def move(self, sources: torch.Tensor, targets: torch.Tensor, rows: int) -> None:
        """Copy the rows `sources` to the places `targets`; the first `rows`
        rows are in use afterwards.
        """
        self._reserve(rows, self.length)
        for buffer in (self.keys, self.values):
            used = buffer[:, :, : self.length]
            used.index_copy_(0, targets, used.index_select(0, sources))
        self.rows = rows

    def enter(self, states: Sequence[tuple[torch.Tensor, torch.Tensor]], length: int) -> None:
        """New rows, with the first `length` positions of these keys and values
        `[heads, >= length, head_dim]`.
        """
        if not self.is_initialized:
            keys, values = states[0]
            self.lazy_initialization(keys[None, :, :length], values[None, :, :length])
            self.rows, self.length = 0, length
        rows = self.rows + len(states)
        self._reserve(rows, length)
        for place, (keys, values) in enumerate(states, self.rows):
            self.keys[place, :, :length] = keys[:, :length]
            self.values[place, :, :length] = values[:, :length]
        self.rows = rows

    def _reserve(self, rows: int, length: int) -> None:
        """Room for more rows or positions; rows are doubled, so that growth costs little in
        all. Where half of the rows or more have left, longer buffers are without them.
        """
        has_rows, has_length = self.keys.shape[0], self.keys.shape[-2]
        if rows <= has_rows and length <= has_length:
            return
        if rows > has_rows:
            rows = max(rows, min(2 * has_rows, self._most_rows or 2 * has_rows))
        elif 2 * max(rows, self.rows) > has_rows:
            rows = has_rows
        if length <= has_length:
            length = has_length
        else:
            length = _roomy(length, self.device, self._most_length)
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = self._spare.take(old, rows, length)
            new[: self.rows, :, : self.length] = old[: self.rows, :, : self.length]
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

    def take(
        self, like: torch.Tensor, rows: int, length: int, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """A buffer `[rows, heads, length, head_dim]` with the heads and width
        of `like`, unwritten.
        """
        shape = (rows, like.shape[1], length, like.shape[-1])
        dtype = dtype or like.dtype
        size, flat = math.prod(shape), self._flat.pop((like.device, dtype), None)
        if flat is None or flat.numel() < size:
            del flat  # before there is another one
            like = like.new_empty(0, dtype=dtype)
            flat = _untouched(like, 2 * size) if like.device.type == "cpu" else like.new_empty(size)
        return flat[:size].view(shape)

    def give(self, buffer: torch.Tensor) -> None:
        """A buffer that nobody reads any more."""
        size = buffer.untyped_storage().nbytes() // buffer.element_size()
        self._flat[buffer.device, buffer.dtype] = buffer.as_strided((size,), (1,), 0)


def _untouched(like: torch.Tensor, size: int) -> torch.Tensor:
    """So many numbers on a CPU; pages of them that are never written cost nothing.

    A large piece is asked of the system itself: the allocator would take pages that
    others have written, which stay in memory to the last one.
    """
    wanted = size * like.element_size()
    if wanted < FRESH_BYTES:
        return like.new_empty(size)
    pages = mmap.mmap(-1, wanted, access=mmap.ACCESS_COPY)  # nobody else's
    return torch.frombuffer(pages, dtype=like.dtype, count=size)


def _roomy(length: int, device: torch.device, most: int = 0) -> int:
    """The length of a buffer for so many positions."""
    if device.type == "cpu":
        return length + max(SLACK, length // 8)
    return max(length, min(max(64, 2 * length), most or 2 * length))


def new_cache(config: Any, most_rows: int = 0, most_length: int = 0) -> Cache:
    """A cache for a model: ours where every layer attends to everything, else
    the library's. It is meant for so many rows and positions at most (0: not known).
    """
    text = config.get_text_config()
    if not attends_to_everything(config):
        return DynamicCache(config=text)
    spare = Spare()
    layers = range(text.num_hidden_layers)
    return Cache(layers=[GrowingLayer(most_rows, spare, most_length) for _ in layers])


def read_prefix_caches(model: Any, texts: Sequence[Sequence[int]]) -> list[PrefixCache]:
    """Keys and values of each text, read once, some texts at a time; for models
    whose cache is ours.
    """
    found: list[PrefixCache] = []
    rows = max(1, READ_AT_ONCE // max(map(len, texts), default=1))
    for first in range(0, len(texts), rows):
        found += _read(model, [list(text) for text in texts[first : first + rows]])
    return found


def _read(model: Any, batch: list[list[int]]) -> list[PrefixCache]:
    """Texts filled up on the right, where no position before looks."""
    length = max(map(len, batch))
    ids = torch.tensor([text + [0] * (length - len(text)) for text in batch], device=model.device)
    cache = new_cache(model.config, len(batch))
    for part in ids.split(READ_POSITIONS, dim=1):
        model(part, past_key_values=cache, use_cache=True, logits_to_keep=1)
    found = []
    for row, text in enumerate(batch):
        whole = ((layer.keys[row], layer.values[row]) for layer in cache.layers)
        layers = (
            (keys[:, : len(text)].clone(), values[:, : len(text)].clone()) for keys, values in whole
        )
        found.append(PrefixCache(layers=tuple(layers), length=len(text)))
    return found


def enter_prefixes(cache: Cache, prefix_caches: Sequence[PrefixCache], length: int) -> None:
    """New rows in our cache, which stands at `length` positions, for texts with these caches."""
    for number, layer in enumerate(cache.layers):
        layer.enter([prefix_cache.layers[number] for prefix_cache in prefix_caches], length)


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
    sent: dict[torch.device, torch.Tensor] = {}  # once, not for each layer
    for layer in cache.layers:
        if isinstance(layer, GrowingLayer):
            if layer.device not in sent:
                both = on_device([*sources, *targets], torch.long, layer.device)
                sent[layer.device] = both.view(2, len(sources))
            layer.move(sent[layer.device][0], sent[layer.device][1], rows)
        else:
            layer.reorder_cache(torch.tensor([taken.get(i, i) for i in range(rows)]))


CacheKind = Literal["own", "library", "one-token", "none"]

KNOWN, DRAWN = 6, 6  # tokens of the trial before and behind the branch
TOLERANCE = {
    torch.float32: 1e-3,
    torch.float64: 1e-3,
}  # of the logits' spread; below, for rounder numbers
ROUNDER = 0.1
# what a model raises that cannot be run as the trial runs it
TRIAL_ERRORS = (
    ValueError,
    RuntimeError,
    TypeError,
    AttributeError,
    NotImplementedError,
    IndexError,
)


def find_cache_kind(model: Any) -> CacheKind:
    """What the model's cache can be used for."""
    takes_cache = "past_key_values" in inspect.signature(model.forward).parameters
    if (
        takes_cache
        and attends_to_everything(model.config)
        and not getattr(model, "_is_stateful", False)
    ):
        return "own"
    if not takes_cache or not carries_branches(model):
        return "none"
    cache = new_cache(model.config)
    return (
        "library"
        if all(hasattr(layer, "get_seq_length") for layer in cache.layers)
        else "one-token"
    )


@torch.inference_mode()
def carries_branches(model: Any) -> bool:
    """Whether rows copied in the cache go on as the texts that they stand for."""
    device, size = model.device, model.config.get_text_config().vocab_size
    known = torch.arange(KNOWN, device=device).remainder(size).expand(3, -1)
    drawn = torch.arange(3 * DRAWN, device=device).remainder(size).view(3, -1)
    text = torch.cat([known, drawn], 1)
    try:
        wanted = model(text, use_cache=False).logits[:, KNOWN:]
        cache = new_cache(model.config)
        model(known[:1], past_key_values=cache, use_cache=True)
        move_rows(cache, [0, 0], [1, 2], 3)
        steps = [
            model(drawn[:, i : i + 1], past_key_values=cache, use_cache=True).logits
            for i in range(DRAWN)
        ]
    except TRIAL_ERRORS:
        return False
    return agree(torch.cat(steps, 1), wanted, model.dtype)


def agree(found: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether two readings of one text are one, up to what a precision rounds."""
    found, wanted = found.float(), wanted.float()
    return bool((found - wanted).abs().max() <= TOLERANCE.get(dtype, ROUNDER) * wanted.std())
