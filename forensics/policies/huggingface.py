"""The Hugging Face backend: a local causal language model as a `Policy`.

Local directories and safetensors only; remote code never runs. Attention is the
library's own; sampling, turn-taking and the KV cache are ours (see `decoder`).
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

from forensics.errors import UserError
from forensics.policies.cache_room import CACHED_TOKENS, Room
from forensics.policies.captured_step import CapturedSteps, captured_steps
from forensics.policies.compatibility import context_length
from forensics.policies.continuations import start_actions
from forensics.policies.decoder import BatchDecoder
from forensics.policies.episodes import (
    EpisodeContext,
    in_batches,
    play_out,
    start_episodes,
    step_threads,
)
from forensics.policies.hidden_states import HiddenStates
from forensics.policies.kv_cache import (
    CacheKind,
    PrefixCache,
    find_cache_kind,
    read_prefix_caches,
)
from forensics.policies.one_token import OneToken, one_token_forward, serves
from forensics.policies.ragged_rows import Apart
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
        passes.steps = steps = self._captured_steps(interventions)

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

    def _captured_steps(self, interventions: Sequence[Intervention]) -> CapturedSteps | None:
        """Graphs of single steps, where nothing changes what the model does."""
        if interventions or self.within is not nullcontext or self.cache_kind != "own":
            return None
        return captured_steps(self.model)


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
