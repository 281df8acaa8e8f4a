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
    from forensics.policies.completions import ServerConfig as ServerConfig
    from forensics.policies.constructed import constructed_policy as constructed_policy
    from forensics.policies.kv_cache import CacheKind
    from forensics.policies.nnsight import from_nnsight as from_nnsight
    from forensics.policies.scripted import (
        Agent as Agent,
        View as View,
        scripted_policy as scripted_policy,
    )
    from forensics.policies.transformer_lens import from_transformer_lens as from_transformer_lens

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
