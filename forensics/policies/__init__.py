"""Policies: models that score, sample, play and show activations, whatever runs
them.

One file a backend, each behind an entry point of the group `forensics.policies`:
a function `(where, *, device, dtype, identity, **options) -> Policy`. What a
policy can do stands in its `capabilities`; who needs one asks `require`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forensics.errors import UserError
from forensics.lazy import lazy_names
from forensics.plugins import load_plugin
from forensics.protocols import Capability, Policy, Renderer

if TYPE_CHECKING:
    from forensics.policies.adapters import (
        SAVED_ADAPTER as SAVED_ADAPTER,
        load_adapter as load_adapter,
        new_adapter as new_adapter,
    )
    from forensics.policies.checkpoints import (
        inspect_checkpoint as inspect_checkpoint,
        model_checkpoint as model_checkpoint,
        read_environment_hint as read_environment_hint,
        read_object as read_object,
        require_directory as require_directory,
        tokenizer_identity as tokenizer_identity,
    )
    from forensics.policies.compatibility import (
        context_length as context_length,
        load_tokenizer as load_tokenizer,
        require_loadable as require_loadable,
        resolve_device as resolve_device,
        stop_tokens as stop_tokens,
    )
    from forensics.policies.completions import (
        Client as Client,
        Declined as Declined,
        ServerConfig as ServerConfig,
        Unanswered as Unanswered,
        drawn_ids as drawn_ids,
        ids_body as ids_body,
    )
    from forensics.policies.constructed import constructed_policy as constructed_policy
    from forensics.policies.distribution import (
        Refusals as Refusals,
        row_stream as row_stream,
        uniforms as uniforms,
    )
    from forensics.policies.episodes import how_it_ended as how_it_ended
    from forensics.policies.kv_cache import (
        CACHED_TOKENS as CACHED_TOKENS,
        CacheKind,
        PrefixCache as PrefixCache,
        attends_to_everything as attends_to_everything,
        free_memory as free_memory,
        new_cache as new_cache,
        release_memory as release_memory,
    )
    from forensics.policies.nnsight import from_nnsight as from_nnsight
    from forensics.policies.output_head import widen_head as widen_head
    from forensics.policies.renderers import (
        bare_prompt as bare_prompt,
        renderer_for as renderer_for,
        style_of as style_of,
        tools_of as tools_of,
        warn_of_chat as warn_of_chat,
    )
    from forensics.policies.sampled_tokens import (
        Agreement as Agreement,
        TokenScores as TokenScores,
        drawn_tokens as drawn_tokens,
        lacks_token_ids as lacks_token_ids,
        layout_of as layout_of,
        with_token_ids as with_token_ids,
    )
    from forensics.policies.score_columns import (
        Readout as Readout,
        TokenPositions as TokenPositions,
        TopTokens as TopTokens,
        last_logprobs as last_logprobs,
        top_tokens as top_tokens,
    )
    from forensics.policies.score_store import (
        PolicyRef as PolicyRef,
        policy_ref as policy_ref,
        stored_scores as stored_scores,
    )
    from forensics.policies.scored_log import (
        LEAST as LEAST,
        gap_by_depth as gap_by_depth,
        score_log as score_log,
    )
    from forensics.policies.scorer import (
        kl_divergence as kl_divergence,
        token_logprobs_and_entropies as token_logprobs_and_entropies,
    )
    from forensics.policies.scripted import (
        Agent as Agent,
        View as View,
        scripted_policy as scripted_policy,
    )
    from forensics.policies.sequences import Branch as Branch, BranchedText as BranchedText
    from forensics.policies.server import ServerPolicy as ServerPolicy
    from forensics.policies.server_abilities import (
        SAMPLES as SAMPLES,
        Abilities as Abilities,
        echoed_logprobs as echoed_logprobs,
        probe as probe,
        require_sendable as require_sendable,
    )
    from forensics.policies.server_engine import (
        ServedRun as ServedRun,
        ServerEngine as ServerEngine,
    )
    from forensics.policies.shared_prefixes import (
        computed_tokens as computed_tokens,
        held_tokens as held_tokens,
    )
    from forensics.policies.sites import (
        attach as attach,
        decoder_layers as decoder_layers,
        locate as locate,
        read_sites as read_sites,
        recorded as recorded,
    )
    from forensics.policies.transformer_lens import from_transformer_lens as from_transformer_lens
    from forensics.policies.weights import (
        SHARDS as SHARDS,
        TensorPlace as TensorPlace,
        identify_folder as identify_folder,
        identify_model as identify_model,
        own_tensors as own_tensors,
        pieces as pieces,
        plain_model as plain_model,
        saved_weights as saved_weights,
        sharded_tensors as sharded_tensors,
        trained_tensors as trained_tensors,
    )

__getattr__, _ = lazy_names(__name__)

Given = str | PathLike[str] | Policy  # a checkpoint directory, or a model in memory
MEANING: Final[dict[Capability, str]] = {
    "tokens": "its tokenizer",
    "logprobs": "log-probabilities of given tokens",
    "distributions": "whole next-token distributions",
    "sample": "samples",
    "activations": "activations",
    "play": "whole episodes",
    "constraint": "refused actions drawn again",
    "interventions": "changed activations",
    "branches": "many runs that go on inside a known text",
    "weights": "weights in this process",
}


def load_policy(
    where: str | Path,
    *,
    backend: str = "huggingface",
    device: str = "auto",
    dtype: str | None = None,
    identity: str | None = None,
    **options: Any,
) -> Policy:
    """The policy at a place: a checkpoint directory, or what else the backend
    opens (a server's address).

    `dtype`: the backend's own choice unless given. `identity`: its content hash
    where that is known already. `options`: the backend's own. Raises
    `UserError` for an unknown backend, and for what the backend refuses.
    """
    open_policy = load_plugin("forensics.policies", backend)
    policy: Policy = open_policy(where, device=device, dtype=dtype, identity=identity, **options)
    return policy


def policy_from(
    model: Any,
    tokenizer: Any,
    identity: str | None = None,
    renderer: Renderer | None = None,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
    cache_kind: "CacheKind | None" = None,
) -> Policy:
    """A model in memory as a policy with every capability: a causal language
    model of Hugging Face transformers, put in evaluation mode.

    `identity` names its weights: as that of its checkpoint directory unless
    given. `renderer`: the tokenizer's own unless given; where it is given, no
    environment changes it. `within`: entered around every pass (an adapter
    switched off). `cache_kind`: found by a trial unless given (`forensics.policies.kv_cache`).
    """
    from forensics.policies.huggingface import HuggingFacePolicy
    from forensics.policies.weights import identify_model

    identity = identity or identify_model(model).sha256[:16]
    return HuggingFacePolicy(model, tokenizer, identity, renderer, within, cache_kind)


def stated_backend(backend: str) -> dict[str, str]:
    """What a folder states of the backend: nothing of the usual one, as folders
    of before do.
    """
    return {} if backend == "huggingface" else {"backend": backend}


def require(policy: Policy, *needed: Capability, task: str) -> None:
    """Refuse a policy that lacks a capability. `task` begins the sentence:
    "patching". Raises `UserError`.
    """
    for one in needed:
        if one not in policy.capabilities:
            has = ", ".join(sorted(policy.capabilities)) or "nothing"
            raise UserError(
                f"{task} needs {MEANING[one]} ({one}), and the policy {policy.identity} has {has};"
                " give a checkpoint directory, or a backend that has it"
            )
