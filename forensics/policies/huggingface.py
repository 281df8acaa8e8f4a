"""The Hugging Face backend: a local causal language model as a `Policy`.

Local directories and safetensors only; remote code never runs. Attention is the
library's own; sampling, turn-taking and the KV cache are ours (see `decoder`).

On a CPU, plain Llama-like models have a forward pass of our own for one new token a row
(`one_token_forward`). Lockstep decoding calls the model some hundred times with one token a
row, and for a small model the library's modules then cost more than their arithmetic. This
pass does the same arithmetic on the model's live parameters (no copy, so it follows training)
with a third of the operations. It is used only where it is sure to be the same function:
float32 without autocast, every module one of the library's own or plain, no hooks, our KV
cache. Anything else (LoRA, shards, interventions, other architectures) goes through the model
itself.
"""

import copy
import inspect
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import torch
import torch.nn.functional as functional

from forensics.errors import UserError
from forensics.policies.captured_step import CapturedSteps, captured_steps
from forensics.policies.compatibility import context_length
from forensics.policies.decoder import Apart, BatchDecoder
from forensics.policies.episodes import (
    EpisodeContext,
    in_batches,
    play_out,
    start_actions,
    start_episodes,
    step_threads,
)
from forensics.policies.hidden_states import HiddenStates
from forensics.policies.kv_cache import (
    CACHED_TOKENS,
    CacheKind,
    GrowingLayer,
    PrefixCache,
    Room,
    find_cache_kind,
    read_prefix_caches,
)
from forensics.policies.renderers import renderer_for, style_of, tools_of
from forensics.policies.score_columns import distributions
from forensics.policies.scored_log import text_logprobs
from forensics.policies.sequences import BranchedText
from forensics.policies.sites import attach, read_sites
from forensics.protocols import (
    ActivationContext,
    Capability,
    Constraint,
    Continuation,
    Environment,
    Intervention,
    Renderer,
    SamplingSettings,
)
from forensics.records import Trajectory

ARCHITECTURES = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
PLAIN = (torch.nn.Linear, torch.nn.Embedding, torch.nn.ModuleList)

OneToken = Callable[[torch.Tensor, Any], torch.Tensor]


def one_token_forward(model: Any) -> OneToken | None:
    """`forward(input_ids [rows, 1], cache) -> logits [rows, vocabulary]`, or
    `None` where the model must do it.
    """
    return _Pass(model) if _is_plain(model) else None


def serves(cache: Any) -> bool:
    """Whether the pass can run now: the cache is ours in every layer, and no
    autocast rounds the residual stream.
    """
    return not torch.is_autocast_enabled("cpu") and all(
        type(layer) is GrowingLayer for layer in cache.layers
    )


def _is_plain(model: Any) -> bool:
    config = getattr(model, "config", None)
    home = type(model).__module__
    return (
        type(model).__name__ in ARCHITECTURES
        and home.startswith("transformers.models.")
        and model.device.type == "cpu"
        and model.dtype == torch.float32
        and getattr(config, "_attn_implementation", None) == "sdpa"
        and getattr(config, "hidden_act", None) == "silu"
        and all(_is_own(module, home) for module in model.modules())
    )


def _is_own(module: torch.nn.Module, home: str) -> bool:
    """A class of the library's file for this architecture, or a plain one, and no
    hook on it; SwiGLU's activation is in `hidden_act`.
    """
    kind = type(module)
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        return False
    return kind in PLAIN or kind.__module__ == home or "silu" in kind.__name__.lower()


class _Pass:
    def __init__(self, model: Any) -> None:
        self._body, self._head = model.model, model.lm_head

    def __call__(self, input_ids: torch.Tensor, cache: Any) -> torch.Tensor:
        x = functional.embedding(input_ids[:, 0], self._body.embed_tokens.weight)
        turn = self._rotation(x, cache.get_seq_length())
        for layer, kept in zip(self._body.layers, cache.layers, strict=True):
            x = self._attention(layer.self_attn, _norm(x, layer.input_layernorm), x, turn, kept)
            mlp, y = layer.mlp, _norm(x, layer.post_attention_layernorm)
            gate = functional.silu(_linear(y, mlp.gate_proj), inplace=True)
            x = _add_linear(x, gate.mul_(_linear(y, mlp.up_proj)), mlp.down_proj)
        return _linear(_norm(x, self._body.norm), self._head)

    def _rotation(self, x: torch.Tensor, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines `[head_dim]`: every row stands at the same position."""
        cosines, sines = self._body.rotary_emb(x[None, :1], torch.tensor([[position]]))
        half = sines.shape[-1] // 2
        return cosines[0, 0], torch.cat([-sines[0, 0, :half], sines[0, 0, half:]])

    def _attention(
        self,
        attention: Any,
        y: torch.Tensor,
        x: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        kept: Any,
    ) -> torch.Tensor:
        shape = (y.shape[0], -1, attention.head_dim)
        query = _linear(y, attention.q_proj).view(shape)
        key = _linear(y, attention.k_proj).view(shape)
        value = _linear(y, attention.v_proj).view(shape)
        if hasattr(attention, "q_norm"):
            query, key = _norm(query, attention.q_norm), _norm(key, attention.k_norm)
        keys, values = kept.update(_turned(key, *turn)[:, :, None], value[:, :, None])
        # two products: the library's kernel is made for many queries and takes longer for one
        query = (_turned(query, *turn) * attention.scaling).view(
            y.shape[0], keys.shape[1], -1, shape[-1]
        )
        mixed = (query @ keys.transpose(-1, -2)).softmax(-1) @ values
        return _add_linear(x, mixed.reshape(y.shape[0], -1), attention.o_proj)


def _norm(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """RMSNorm over the last dimension."""
    mean_square = torch.linalg.vecdot(x, x).div_(x.shape[-1])
    scale: torch.Tensor = mean_square.add_(norm.variance_epsilon).rsqrt_().unsqueeze_(-1)
    return (x * scale).mul_(norm.weight)


def _linear(x: torch.Tensor, linear: Any) -> torch.Tensor:
    return functional.linear(x, linear.weight, linear.bias)


def _add_linear(x: torch.Tensor, y: torch.Tensor, linear: Any) -> torch.Tensor:
    """`x + linear(y)` in one operation."""
    added = torch.addmm(x, y, linear.weight.t())
    return added if linear.bias is None else added.add_(linear.bias)


def _turned(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of `[rows, heads, head_dim]`, halves rotated into each
    other (2104.09864).
    """
    rows, heads, width = x.shape
    other = x.view(rows, heads, 2, width // 2).flip(-2).view(rows, heads, width)
    return (x * cosines).addcmul_(other, sines)


logger = logging.getLogger("forensics")
READ_AHEAD: Final = 128  # tokens of an observation for which rows part, on a GPU


def load_policy(
    path: Path | str, *, device: str = "auto", dtype: str | None = None, identity: str | None = None
) -> "HuggingFacePolicy":
    """Load a checkpoint directory. `dtype` defaults to float32 on the CPU and bfloat16 on CUDA."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from forensics.policies.checkpoints import inspect_checkpoint
    from forensics.policies.compatibility import load_tokenizer, load_whole, resolve_device

    identity = identity or inspect_checkpoint(Path(path)).identity
    place = resolve_device(device)
    logging.disable_progress_bar()  # progress is the caller's to show
    kind = getattr(torch, dtype or ("float32" if place == "cpu" else "bfloat16"))
    model = load_whole(
        path,
        lambda: AutoModelForCausalLM.from_pretrained(
            str(path),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=kind,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # `load_whole` names and refuses them
        ),
    )
    return HuggingFacePolicy(model.to(place), load_tokenizer(path), identity)


class HuggingFacePolicy:
    """A model and its tokenizer as a `Policy`. The model is put in evaluation
    mode. `renderer`: the tokenizer's own unless given; where it is given, no
    environment changes it.
    """

    capabilities: frozenset[Capability] = frozenset(get_args(Capability))

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        identity: str,
        renderer: Renderer | None = None,
        within: Callable[[], AbstractContextManager[Any]] = nullcontext,
        cache_kind: CacheKind | None = None,
    ) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.within = within
        self.identity = identity
        self.renderer = renderer or renderer_for(tokenizer, _model_stops(model))
        self._renderers: dict[str, Renderer] | None = None if renderer else {"auto": self.renderer}
        self.cache_kind = cache_kind or find_cache_kind(model)
        self.room = Room.of(model)
        self.read_ahead: float = math.inf if model.device.type == "cpu" else READ_AHEAD

    @property
    def batch_rows(self) -> int:
        """Rows of `CACHED_TOKENS` that go through together; fewer where texts may be
        longer (`cache_room`).
        """
        return self.room.rows(CACHED_TOKENS)

    @batch_rows.setter
    def batch_rows(self, rows: int) -> None:
        self.room.most = rows

    def _rows(self, settings: SamplingSettings) -> int:
        return self.room.rows(self._fitting(settings).max_tokens)

    def _fitting(self, settings: SamplingSettings) -> SamplingSettings:
        """A text ends where the model's positions do."""
        most = self.context_length
        if most is None or settings.max_tokens <= most:
            return settings
        return replace(settings, max_tokens=most)

    @property
    def context_length(self) -> int | None:
        return context_length(self.model.config.to_dict())

    def rendered_for(self, environment: Environment) -> "HuggingFacePolicy":
        """This policy with the rendering that `environment` asks for, and its
        stops; the model is shared.
        """
        if self._renderers is None:
            return self
        style, tools = style_of(environment), tools_of(environment)
        key = f"{style} {tools}" if tools else style
        if key not in self._renderers:
            stops = _model_stops(self.model)
            self._renderers[key] = renderer_for(self.tokenizer, stops, style, tools)
        if self._renderers[key] is self.renderer:
            return self
        other = copy.copy(self)
        other.renderer = self._renderers[key]
        return other

    @torch.inference_mode()
    def logprobs(
        self,
        token_ids: Sequence[Sequence[int]],
        settings: SamplingSettings,
        starts: Sequence[Sequence[int]] | None = None,
    ) -> list[np.ndarray]:
        """Log-probability of every token but the first under the settings,
        float32 nats `[length - 1]`.

        `starts`: where the actions of each sequence start; `UserError` where
        penalties on the output need them and they are missing.
        """
        if settings.penalises_output and starts is None:
            raise UserError(
                "presence and frequency penalties need to know where each action starts; give"
                " starts"
            )
        return text_logprobs(HiddenStates(self.model, self.within), token_ids, settings, starts)

    @torch.inference_mode()  # but not while the caller has control
    def branch(self, texts: Sequence[BranchedText], settings: SamplingSettings) -> Iterator[None]:
        """Drive every branch of every text to its end; gives control back after
        each step of the batch.
        """
        with ExitStack() as stack:
            yield from self._decoder(settings, (), stack).branch(texts, self._rows(settings))

    @torch.inference_mode()
    def prefix_caches(self, texts: Sequence[Sequence[int]]) -> list[PrefixCache] | None:
        """Keys and values of each text, read once; `None` where the model's
        cache is not ours, so that none serves.
        """
        if self.cache_kind != "own":
            return None
        with self.within():
            return read_prefix_caches(self.model, texts)

    def distributions(
        self,
        token_ids: Sequence[Sequence[int]],
        settings: SamplingSettings,
        starts: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[tuple[int, int, torch.Tensor]]:
        """What can follow the positions `start` to `end - 1` of texts of equal
        length: `(start, end, log-probabilities [texts, end - start, vocabulary])`,
        a window of positions at a time.
        """
        reader = HiddenStates(self.model, self.within)  # now: hooks may be put on the model later
        return distributions(reader, token_ids, settings, starts or [()] * len(token_ids))

    @torch.inference_mode()
    def sample(
        self,
        prefixes: Sequence[Sequence[int]],
        n: int,
        settings: SamplingSettings,
        seed: int,
        constraint: Constraint | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> list[list[Continuation]]:
        """`n` continuations of each prefix, one action long, ended by a stop
        token or `max_turn_tokens`.
        """
        drivers = start_actions(prefixes, n, self.renderer, seed, constraint)
        with ExitStack() as stack:
            decoder = self._decoder(settings, interventions, stack)
            for batch in in_batches(drivers, lambda: self._rows(settings)):
                play_out(batch, decoder)
        results = iter(drivers)
        return [[next(results).result for _ in range(n)] for _ in prefixes]

    @torch.inference_mode()
    def activations(
        self, token_ids: Sequence[Sequence[int]], sites: Sequence[str]
    ) -> list[dict[str, np.ndarray]]:
        """Activations `[length, features]` (float32) at each site, one sequence at a time."""
        found = []
        for ids in token_ids:
            tokens = torch.tensor([list(ids)], device=self.model.device)
            with self.within():
                seen = read_sites(self.model, tokens, sites)
            found.append(
                {site: x[0].float().cpu().numpy() for site, x in zip(sites, seen, strict=True)}
            )
        return found

    def play(
        self,
        environment: Environment,
        tasks: Sequence[str],
        samples: int,
        settings: SamplingSettings,
        seed: int,
        constraint: Constraint | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> Iterator[Trajectory]:
        """Multi-turn episodes in the order of `tasks`."""
        rendered = self.rendered_for(environment)
        context = EpisodeContext(
            renderer=rendered.renderer,
            policy=self.identity,
            environment=environment,
            seed=seed,
            constraint=constraint,
        )
        with ExitStack() as stack, torch.inference_mode():
            threads = stack.enter_context(step_threads(environment))
            episodes = start_episodes(context, tasks, samples, threads)
            decoder = rendered._decoder(settings, interventions, stack, threads)
            for batch in in_batches(episodes, lambda: self._rows(settings)):
                play_out(batch, decoder)
                yield from (episode.trajectory() for episode in batch)

    def _decoder(
        self,
        settings: SamplingSettings,
        interventions: Sequence[Intervention],
        stack: ExitStack,
        threads: Executor | None = None,
    ) -> BatchDecoder:
        settings = self._fitting(settings)
        passes = _Passes(self.model, self.within, interventions)
        for change in interventions:
            stack.callback(attach(self.model, change.site, passes.edit(change)).remove)
        passes.one_token = one_token_forward(self.model)  # None where a hook stands on the model
        changed = interventions or self.within is not nullcontext or self.cache_kind != "own"
        passes.steps = steps = None if changed else captured_steps(self.model)

        def halved(rows: int) -> None:
            self.room.halve(rows)
            if steps is not None:
                steps.drop()

        apart = Apart(forward=passes.apart, read_ahead=self.read_ahead, threads=threads)
        serves_apart = self._stands_apart and not interventions
        if threads is not None and not serves_apart:
            logger.warning(
                "the world's steps run one after the other: a model with another cache or attention"
                " than full attention by sdpa, or with changed activations, plays in lockstep"
            )
        return BatchDecoder(
            self.model,
            self.renderer.stops,
            settings,
            passes.in_lockstep,
            self.cache_kind,
            None if steps is None else steps.new_cache,
            apart if serves_apart else None,
            halved,
        )

    @property
    def _stands_apart(self) -> bool:
        """Whether rows may stand at different positions: our cache, and attention that takes
        a mask of truth values.
        """
        sdpa = getattr(self.model.config, "_attn_implementation", None) == "sdpa"
        taken = inspect.signature(self.model.forward).parameters
        placed = "position_ids" in taken or any(
            one.kind is one.VAR_KEYWORD for one in taken.values()
        )
        return sdpa and placed and self.cache_kind == "own"


class _Passes:
    """A model's passes while a batch is decoded, by the fastest way that serves: graphs, our
    own pass for one token, or the model itself.
    """

    one_token: OneToken | None = None
    steps: CapturedSteps | None = None

    def __init__(
        self, model: Any, within: Callable[[], Any], interventions: Sequence[Intervention]
    ) -> None:
        self._model, self._within, self._changed = model, within, bool(interventions)
        self._now: ActivationContext | None = None

    def edit(self, change: Intervention) -> Callable[[torch.Tensor], torch.Tensor]:
        """What a hook does to a site's activations."""

        def edited(activation: torch.Tensor) -> torch.Tensor:
            changed: torch.Tensor = change.apply(activation, self._now)  # type: ignore[arg-type]
            return changed

        return edited

    def in_lockstep(
        self, tokens: torch.Tensor, cache: Any, start: int, deciding: list[int]
    ) -> torch.Tensor:
        """Logits `[rows, vocabulary]` where all rows stand at one position."""
        single = tokens.shape[1] == 1 and start > 0
        if single and self.one_token is not None and serves(cache):
            return self.one_token(tokens, cache)
        if single and self.steps is not None and self.steps.serves(cache):
            found = self.steps(tokens, cache)
            if found is not None:
                return found
        if self._changed:
            flags = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
            flags[deciding] = True
            positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
            self._now = ActivationContext(positions=positions, deciding=flags)
        if cache is None:
            return self._plain(tokens, use_cache=False)
        return self._plain(tokens, past_key_values=cache, use_cache=True)

    def apart(self, tokens: torch.Tensor, cache: Any, **where: torch.Tensor) -> torch.Tensor:
        """The same where rows stand at positions of their own."""
        if self.steps is not None and self.steps.serves(cache):
            found = self.steps.apart(tokens, cache, **where)
            if found is not None:
                return found
        return self._plain(tokens, past_key_values=cache, use_cache=True, **where)

    def _plain(self, tokens: torch.Tensor, **how: Any) -> torch.Tensor:
        with self._within():
            logits: torch.Tensor = self._model(tokens, logits_to_keep=1, **how).logits[:, -1]
        return logits


def _model_stops(model: Any) -> list[int]:
    """End-of-text tokens that the model's own generation settings name."""
    eos = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
