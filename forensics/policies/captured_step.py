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
   under a mask. (Attention: `single_query`.)
3. *Trust*: a graph is held against a plain pass before it is used. Where they disagree, or
   the model cannot be captured (a hook, shards, a step that asks the host), the model
   itself goes on, and a warning says so once.
4. Graphs read the live parameters, so they follow training; another storage of a
   parameter, or another adapter, starts them anew.

Attention of one position a row: the query heads that share a key head go through as so many
queries of it, so that no key is copied (the library repeats keys where there is a mask).
"""

import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
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
    free_memory,
)

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


LEAST_ROWS: Final = 8
LEAST_ROOM: Final = 128
NOWHERE: Final[Mapping[str, Any]] = MappingProxyType({})
SHARE: Final = 0.25  # of the free memory that the buffers take at once; they grow where needed


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
    """One layer in buffers that outlive it. While `at` `[rows]` is there, each row's token is
    written at its position, and the first `span` rows and positions are read.
    """

    def __init__(self, owner: "CapturedSteps", number: int) -> None:
        super().__init__()
        self.owner, self.number = owner, number
        self.at: torch.Tensor | None = None
        self.span = (0, 0)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = value_states.dtype, value_states.device
        self.rows = key_states.shape[0]
        self.keys, self.values = self.owner.buffers(self.number, key_states, value_states)
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
        """Larger buffers where these are too small; graphs of the old ones are gone."""
        has_rows, _, has_length, _ = self.keys.shape
        if rows <= has_rows and length <= has_length:
            return
        room = max(has_rows, power_of_two(rows)), max(has_length, power_of_two(length))
        self.keys, self.values = self.owner.grown(self.number, room, (self.rows, self.length))


@dataclass(frozen=True, kw_only=True)
class _Step:
    """A graph (`None`: the step is run as it stands) with its input and output."""

    graph: Any
    tokens: torch.Tensor
    position: torch.Tensor
    logits: torch.Tensor


class CapturedSteps:
    """The steps of one model. `capture`: as graphs; else the same steps run plainly."""

    def __init__(self, model: Any, capture: bool = True) -> None:
        self._model, self._capture = weakref.ref(model), capture
        self._buffers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._steps: dict[tuple[Any, ...], _Step] = {}
        self._given: weakref.ref[Cache] | None = None
        self._wanted = (LEAST_ROWS, LEAST_ROOM)
        self._state: Any = None
        self._pool: Any = None
        self.refused: str | None = None  # why no step serves

    # -- buffers -----------------------------------------------------------------------

    def new_cache(self, rows: int, length: int) -> Cache | None:
        """A cache for so many rows and positions at most, in the standing buffers; `None`
        while another one stands there, or where no step serves.
        """
        model = self._model()
        if self.refused or model is None or (self._given and self._given() is not None):
            return None
        state = _state_of(model)
        if state != self._state:
            self._forget()
            self._state = state
        self._wanted = power_of_two(rows, LEAST_ROWS), power_of_two(length, LEAST_ROOM)
        number = model.config.get_text_config().num_hidden_layers
        cache = Cache(layers=[StandingLayer(self, layer) for layer in range(number)])
        self._given = weakref.ref(cache)
        return cache

    def buffers(
        self, number: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The buffers of a layer for such keys and values `[rows, heads, length, head_dim]`,
        both in the precision of the values.
        """
        known = self._buffers.get(number)
        rows, room = self._wanted
        rows = max(rows, power_of_two(len(keys)))
        if (
            known is None
            or known[0].dtype != values.dtype
            or known[0].shape[0] < rows
            or known[0].shape[2] < keys.shape[2]
        ):
            self._buffers.pop(number, None)
            self._forget()
            room = max(power_of_two(keys.shape[2], LEAST_ROOM), min(room, self._room(values, rows)))
            new = [values.new_zeros(rows, x.shape[1], room, x.shape[-1]) for x in (keys, values)]
            self._buffers[number] = (new[0], new[1])
        return self._buffers[number]

    def _forget(self) -> None:
        """No graph is left, and so their memory is gone."""
        self._steps.clear()
        self._pool = None

    def _room(self, values: torch.Tensor, rows: int) -> int:
        """How many positions the share of the free memory holds, as a power of two."""
        model = self._model()
        if values.device.type != "cuda" or model is None:
            return self._wanted[1]
        layers = model.config.get_text_config().num_hidden_layers - len(self._buffers)
        one = 2 * layers * rows * values.shape[1] * values.shape[-1] * values.element_size()
        return power_of_two(int(free_memory(values.device) * SHARE / one) + 1) // 2

    def grown(
        self, number: int, room: tuple[int, int], used: tuple[int, int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Buffers of a layer for `room` rows and positions, with what the old ones hold."""
        self._forget()
        rows, length = used
        new = []
        for old in self._buffers[number]:
            one = old.new_zeros(room[0], old.shape[1], room[1], old.shape[-1])
            one[:rows, :, :length] = old[:rows, :, :length]
            new.append(one)
        self._buffers[number] = (new[0], new[1])
        return self._buffers[number]

    # -- the step ----------------------------------------------------------------------

    def serves(self, cache: Any) -> bool:
        """Whether the cache stands in these buffers, and steps hold."""
        return not self.refused and self._given is not None and cache is self._given()

    @torch.inference_mode()
    def __call__(
        self,
        tokens: torch.Tensor,
        cache: Any,
        at: torch.Tensor | None = None,
        where: Mapping[str, torch.Tensor] = NOWHERE,
    ) -> torch.Tensor | None:
        """Logits `[rows, vocabulary]` behind one more token a row `[rows, 1]`, valid until the
        next step; `None`, with the cache as it was, where it turns out that no step holds.
        `at` `[rows]`: the position of each token, below the cache's length, where they are
        not all the next one. `where`: what else a plain pass is told then.
        """
        held, rows = cache.get_seq_length(), len(tokens)
        end = held + (at is None)
        for layer in cache.layers:
            layer._reserve(rows, end)
        capacity, _, length, _ = cache.layers[0].keys.shape
        room = min(power_of_two(end, LEAST_ROOM), length)
        span = min(power_of_two(rows, LEAST_ROWS), capacity), room
        key = (*span, *_autocast(tokens.device))
        step = self._steps.get(key)
        if step is None:
            step = self._made(tokens, held if at is None else at, cache, span, where)
            if step is None:
                return None
            self._steps[key] = step
        step.tokens[:rows].copy_(tokens)
        step.position[:rows] = held if at is None else at
        if step.graph is None:
            step.logits.copy_(self._run(step.tokens, step.position, cache, span))
        else:
            step.graph.replay()
        for layer in cache.layers:
            layer.length = end
        return step.logits[:rows]

    def apart(
        self,
        tokens: torch.Tensor,
        cache: Any,
        *,
        position_ids: torch.Tensor,
        attention_mask: torch.Tensor,
    ) -> torch.Tensor | None:
        """The same where rows stand at different positions; `None` also where it is no step
        of all rows.
        """
        held = cache.get_seq_length()
        if tokens.shape[1] > 1 or len(tokens) < cache.layers[0].rows:
            return None
        for layer in cache.layers:
            layer.length = attention_mask.shape[-1]
        where = {"position_ids": position_ids, "attention_mask": attention_mask}
        found = self(tokens, cache, position_ids[:, 0], where)
        if found is None:
            for layer in cache.layers:
                layer.length = held
        return found

    def drop(self) -> None:
        """Let the buffers go."""
        self._buffers.clear()
        self._forget()

    def _made(
        self,
        tokens: torch.Tensor,
        at: torch.Tensor | int,
        cache: Any,
        span: tuple[int, int],
        where: Mapping[str, torch.Tensor],
    ) -> _Step | None:
        """A step for so many rows and positions; the first is checked against a plain pass."""
        model: Any = self._model()
        held = cache.get_seq_length()
        try:
            step = self._captured(tokens, at, cache, span)
            if not self._steps:
                found = step.logits[: len(tokens)].clone()
                memory = {"past_key_values": cache, "use_cache": True}
                wanted = model(tokens, logits_to_keep=1, **memory, **where)
                if not _is_one(found, wanted.logits[:, -1]):
                    self.refused = "its numbers are not those of a plain pass"
        except Exception as error:  # whatever a capture meets, the model itself goes on
            self.refused = f"{type(error).__name__}: {error}"
        for layer in cache.layers:
            layer.length = held
        if self.refused is None:
            return step
        self.drop()
        warnings.warn(
            f"a decoding step of this model is not captured as a CUDA graph ({self.refused[:200]}),"
            " so sampling is slower",
            stacklevel=2,
        )
        return None

    def _captured(
        self, tokens: torch.Tensor, at: torch.Tensor | int, cache: Any, span: tuple[int, int]
    ) -> _Step:
        device, rows = tokens.device, span[0]
        ids = torch.zeros((rows, 1), dtype=torch.long, device=device)
        ids[: len(tokens)] = tokens
        position = torch.zeros(rows, dtype=torch.long, device=device)
        position[: len(tokens)] = at
        if not (self._capture and device.type == "cuda"):
            logits = self._run(ids, position, cache, span)
            return _Step(graph=None, tokens=ids, position=position, logits=logits)
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            self._run(ids, position, cache, span)  # what is made on first use is made now
        torch.cuda.current_stream(device).wait_stream(aside)
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            logits = self._run(ids, position, cache, span)
        graph.replay()
        return _Step(graph=graph, tokens=ids, position=position, logits=logits)

    def _run(
        self, tokens: torch.Tensor, position: torch.Tensor, cache: Any, span: tuple[int, int]
    ) -> torch.Tensor:
        """The step as it stands, by the model's own modules."""
        model: Any = self._model()
        seen = torch.arange(span[1], device=tokens.device) <= position[:, None]
        with _standing(cache, position, span), one_query(model.config), _uncached(tokens.device):
            logits: torch.Tensor = model(
                tokens,
                attention_mask=seen[:, None, None],
                position_ids=position[:, None],
                past_key_values=cache,
                use_cache=True,
            ).logits[:, -1]
        return logits


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


@contextmanager
def _standing(cache: Any, position: torch.Tensor, span: tuple[int, int]) -> Iterator[None]:
    for layer in cache.layers:
        layer.at, layer.span = position, span
    try:
        yield
    finally:
        for layer in cache.layers:
            layer.at = None


def _autocast(device: torch.device) -> tuple[Any, ...]:
    on = torch.is_autocast_enabled(device.type)
    return (on, torch.get_autocast_dtype(device.type) if on else None)


def _uncached(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast as it is, without its memory of cast weights: a graph would outlive that."""
    on, dtype = _autocast(device)
    return torch.autocast(device.type, dtype, cache_enabled=False) if on else nullcontext()
