"""One token a row on a GPU, as a CUDA graph that is captured once and replayed.

Decoding feeds each row one token at a time, and the library's modules issue some
hundred small kernels for it: for a model of half a billion parameters the host takes
ten times as long to issue them as the GPU takes to run them. A graph issues them at
once.

1. *Standing buffers*: a graph holds addresses, so keys and values lie in buffers that
   outlive the batch (`StandingLayer`), as do its input and its logits. Rows and room are
   rounded up to powers of two, so that few graphs serve every batch; what the rounding
   adds is computed and thrown away.
2. *The step*: each row stands at a position of its own (at one and the same in lockstep),
   which is a number on the device. Each layer writes there, and attends to the whole room
   under a mask. The query heads that share a key head go through as so many queries of it,
   so that no key is copied (the library repeats keys where there is a mask).
3. *Trust*: a graph is held against a plain pass before it is used. Where they disagree, or
   the model cannot be captured (a hook, shards, a step that asks the host), the model
   itself goes on, and a warning says so once.
4. Graphs read the live parameters, so they follow training; another storage of a
   parameter, or another adapter, starts them anew.
"""

import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from forensics.policies.kv_cache import (
    ROUNDER,
    TOLERANCE,
    GrowingLayer,
    agree,
    attends_to_everything,
)

LEAST_ROWS: Final = 8
LEAST_ROOM: Final = 128
ATTENTION: Final = "one_query"


def captured_steps(model: Any) -> "CapturedSteps | None":
    """The graphs of a model on a GPU, kept as long as it lives; `None` where none can serve."""
    if model.device.type != "cuda" or not _can_be_captured(model):
        return None
    if model not in _KNOWN:
        _KNOWN[model] = CapturedSteps(model)
    return _KNOWN[model]


_KNOWN: "weakref.WeakKeyDictionary[Any, CapturedSteps]" = weakref.WeakKeyDictionary()


def _can_be_captured(model: Any) -> bool:
    """Whether the model is whole on one device, has no hooks, and takes the library's attention."""
    hooked = any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    plain = all(
        type(one) in (torch.nn.Parameter, torch.Tensor) and one.device == model.device
        for one in model.parameters()
    )
    sdpa = getattr(model.config, "_attn_implementation", None) == "sdpa"
    return sdpa and plain and not hooked and attends_to_everything(model.config)


class StandingLayer(GrowingLayer):
    """One layer in buffers that outlive a batch. While `at` `[rows]` is there, each row's
    token is written at its position, and the first `span` rows and positions are read.
    """

    at: torch.Tensor | None = None
    span = (0, 0)
    keys: Any
    values: Any

    def __init__(self, owner: "CapturedSteps") -> None:
        super().__init__()
        self._owner = owner
        self.keys = self.values = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Both buffers in the precision of the values; the old ones where they are as large."""
        self.dtype, self.device = value_states.dtype, value_states.device
        self.rows, length = len(key_states), key_states.shape[2]
        rows = power_of_two(self.rows, self._owner.most_rows)
        old = self.keys
        if old is None or old.dtype != self.dtype or len(old) < rows or old.shape[2] < length:
            self.keys = self.values = None
            self._take(rows, power_of_two(length, LEAST_ROOM), key_states, value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.at is None:
            return super().update(key_states, value_states, *args, **kwargs)
        rows, room = self.span
        keys, values = self.keys[:rows, :, :room], self.values[:rows, :, :room]
        every = torch.arange(rows, device=keys.device)
        keys[every, :, self.at] = key_states[:, :, 0].to(keys.dtype)
        values[every, :, self.at] = value_states[:, :, 0].to(values.dtype)
        return keys, values

    def _reserve(self, rows: int, length: int) -> None:
        """Larger buffers where these are too small, with what they hold."""
        keys, values = self.keys, self.values
        if rows > len(keys) or length > keys.shape[2]:
            most = max(len(keys), power_of_two(rows)), max(keys.shape[2], power_of_two(length))
            self._take(*most, keys, values)
            for new, old in ((self.keys, keys), (self.values, values)):
                new[: self.rows, :, : self.length] = old[: self.rows, :, : self.length]

    def _take(self, rows: int, room: int, *like: torch.Tensor) -> None:
        self._owner.forget()
        self.keys, self.values = (
            one.new_zeros((rows, one.shape[1], room, one.shape[3]), dtype=self.dtype)
            for one in like
        )


class CapturedSteps:
    """The steps of one model. `capture`: as graphs; else the same steps run plainly."""

    def __init__(self, model: Any, capture: bool = True) -> None:
        self._model, self._capture = weakref.ref(model), capture
        self._layers: list[StandingLayer] = []
        self._steps: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # graph, input, place, logits
        self._given: weakref.ref[Cache] | None = None
        self._state: Any = None
        self._pool: Any = None
        self.most_rows = LEAST_ROWS
        self.refused: str | None = None  # why no step serves

    def new_cache(self, rows: int, length: int) -> Cache | None:
        """A cache for so many rows at most, in the standing buffers, which grow with its
        `length`; `None` while another one stands there, or where no step serves.
        """
        model = self._model()
        if self.refused or model is None or (self._given and self._given() is not None):
            return None
        if (state := _state_of(model)) != self._state:
            self.forget()
            self._state = state
        self.most_rows = power_of_two(rows, LEAST_ROWS)
        number = model.config.get_text_config().num_hidden_layers
        self._layers = self._layers or [StandingLayer(self) for _ in range(number)]
        for layer in self._layers:
            layer.rows = layer.length = 0
            layer.spots, layer.is_initialized = None, False
        cache = Cache(layers=self._layers)
        self._given = weakref.ref(cache)
        return cache

    def forget(self) -> None:
        """No graph is left, and so their memory is gone."""
        self._steps.clear()
        self._pool = None

    def drop(self) -> None:
        """Let the buffers go."""
        self._layers = []
        self.forget()

    def serves(self, cache: Any) -> bool:
        """Whether the cache stands in these buffers, and steps hold."""
        return not self.refused and self._given is not None and cache is self._given()

    @torch.inference_mode()
    def __call__(self, tokens: torch.Tensor, cache: Any, **where: Any) -> torch.Tensor | None:
        """Logits `[rows, vocabulary]` behind one more token a row `[rows, 1]`, valid until the
        next step; `None`, with the cache as it was, where it turns out that no step holds.
        `where` rows stand apart: what a plain pass is told then, `position_ids` `[rows, 1]`
        and an `attention_mask` over all positions `[..., length]`; `None` also where it is no
        step of all rows.
        """
        held, rows, layers = cache.get_seq_length(), len(tokens), cache.layers
        at, end = held, held + 1
        if where:
            if tokens.shape[1] > 1 or rows < layers[0].rows:
                return None
            at, end = where["position_ids"][:, 0], where["attention_mask"].shape[-1]
        for layer in layers:
            layer._reserve(rows, end)
            layer.length = end if where else held
        capacity, _, length, _ = layers[0].keys.shape
        room = min(power_of_two(end, LEAST_ROOM), length)
        span = min(power_of_two(rows, LEAST_ROWS), capacity), room
        key = (*span, *_autocast(tokens.device))
        if key not in self._steps and not self._make(key, tokens, at, cache, span, where):
            for layer in layers:
                layer.length = held
            return None
        graph, ids, position, logits = self._steps[key]
        ids[:rows], position[:rows] = tokens, at
        if graph is None:
            logits.copy_(self._run(ids, position, cache, span))
        else:
            graph.replay()
        for layer in layers:
            layer.length = end
        found: torch.Tensor = logits[:rows]
        return found

    def _make(
        self, key: Any, tokens: torch.Tensor, at: Any, cache: Any, span: Any, where: Any
    ) -> bool:
        """A step for so many rows and positions; the first is checked against a plain pass."""
        model: Any = self._model()
        held, first = cache.get_seq_length(), not self._steps
        ids = torch.zeros((span[0], 1), dtype=torch.long, device=tokens.device)
        position = torch.zeros(span[0], dtype=torch.long, device=tokens.device)
        ids[: len(tokens)], position[: len(tokens)] = tokens, at
        try:
            graph, logits = self._captured(ids, position, cache, span)
            if first:
                found = logits[: len(tokens)].clone()
                memory = {"past_key_values": cache, "use_cache": True}
                wanted = model(tokens, logits_to_keep=1, **memory, **where)
                if not _is_one(found, wanted.logits[:, -1]):
                    self.refused = "its numbers are not those of a plain pass"
        except Exception as error:  # whatever a capture meets, the model itself goes on
            self.refused = f"{type(error).__name__}: {error}"
        for layer in cache.layers:
            layer.length = held
        if self.refused is None:
            self._steps[key] = (graph, ids, position, logits)
            return True
        self.drop()
        warnings.warn(
            f"a decoding step of this model is not captured as a CUDA graph ({self.refused[:200]}),"
            " so sampling is slower",
            stacklevel=2,
        )
        return False

    def _captured(
        self, ids: torch.Tensor, position: torch.Tensor, cache: Any, span: Any
    ) -> tuple[Any, torch.Tensor]:
        """A graph (`None`: the step is run as it stands) and its logits, of now."""
        if not (self._capture and ids.is_cuda):
            return None, self._run(ids, position, cache, span)
        aside, now = torch.cuda.Stream(ids.device), torch.cuda.current_stream(ids.device)
        aside.wait_stream(now)
        with torch.cuda.stream(aside):
            self._run(ids, position, cache, span)  # what is made on first use is made now
        now.wait_stream(aside)
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            logits = self._run(ids, position, cache, span)
        graph.replay()
        return graph, logits

    def _run(
        self, tokens: torch.Tensor, position: torch.Tensor, cache: Any, span: Any
    ) -> torch.Tensor:
        """The step as it stands, by the model's own modules."""
        model: Any = self._model()
        seen = torch.arange(span[1], device=tokens.device) <= position[:, None]
        with _as_step(model.config, cache, position, span):
            logits: torch.Tensor = model(
                tokens,
                attention_mask=seen[:, None, None],
                position_ids=position[:, None],
                past_key_values=cache,
                use_cache=True,
            ).logits[:, -1]
        return logits


@contextmanager
def _as_step(config: Any, cache: Any, position: torch.Tensor, span: Any) -> Iterator[None]:
    """Layers write at their positions, a model of this config attends by `one_query`, and
    autocast keeps no cast weights, which a graph would outlive.
    """
    on, dtype = _autocast(position.device)
    before, config._attn_implementation = config._attn_implementation, ATTENTION
    for layer in cache.layers:
        layer.at, layer.span = position, span
    try:
        with torch.autocast(position.device.type, dtype, enabled=on, cache_enabled=False):
            yield
    finally:
        config._attn_implementation = before
        for layer in cache.layers:
            layer.at = None


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
    found = scaled_dot_product_attention(
        query.reshape(rows, key.shape[1], heads // key.shape[1], width),
        key,
        value,
        attn_mask=attention_mask,
        scale=scaling,
    )
    return found.reshape(rows, 1, heads, -1), None


AttentionInterface.register(ATTENTION, one_query_attention)


def _is_one(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether two logits `[rows, vocabulary]` are one. Where the precision rounds, by what it
    rounds on average: the largest of a million errors says little.
    """
    exact = not (wanted.is_cuda and torch.backends.cuda.matmul.allow_tf32)
    if exact and wanted.dtype in TOLERANCE:
        return agree(found, wanted, wanted.dtype)
    error, spread = (found.float() - wanted.float()).square().mean().sqrt(), wanted.float().std()
    return bool(error <= ROUNDER * spread)


def power_of_two(number: int, least: int = 1) -> int:
    """The smallest power of two that is not below either."""
    return int(1 << (max(number, least) - 1).bit_length())


def _state_of(model: Any) -> tuple[Any, ...]:
    """Where the parameters lie, and which adapters act."""
    adapters = tuple(
        (str(one.active_adapters), one.disable_adapters, str(one.merged_adapters))
        for one in model.modules()
        if hasattr(one, "merged_adapters")
    )
    return (tuple(one.data_ptr() for one in model.parameters()), adapters)


def _autocast(device: torch.device) -> tuple[Any, ...]:
    on = torch.is_autocast_enabled(device.type)
    return (on, torch.get_autocast_dtype(device.type) if on else None)
