"""The same change through three ways of running a model: our hooks, nnsight,
and TransformerLens' bridge.

Each function runs one model once over token ids `[rows, length]` and gives its
logits `[rows, length, vocabulary]` with a change at a site, under a mask
`[rows, length]`. `other [rows, length, width]`: the second model's activations
there (`read_site`), for changes that need them. nnsight takes any model; what
is changed and how is the same code for all.
"""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from crosscoders.steering.edits import Change
from crosscoders.steering.interventions import changed
from forensics.errors import UserError
from forensics.policies.sites import attach, decoder_layers

PARTS = {
    "attn_out": ("self_attn", "attn", "attention"),
    "mlp_out": ("mlp", "feed_forward", "block_sparse_moe"),
}


@torch.no_grad()
def hooked_logits(
    model: Any,
    ids: Tensor,
    change: Change,
    site: str,
    mask: Tensor,
    other: Tensor | None = None,
) -> Tensor:
    """Through our own hooks."""
    with ExitStack() as stack:
        handle = attach(model, site, lambda activations: changed(change, activations, other, mask))
        stack.callback(handle.remove)
        logits: Tensor = model(ids, use_cache=False).logits
    return logits


@torch.no_grad()
def nnsight_logits(
    model: Any,
    ids: Tensor,
    change: Change,
    site: str,
    mask: Tensor,
    other: Tensor | None = None,
) -> Tensor:
    """Through an nnsight trace."""
    from nnsight import NNsight

    wrapped = NNsight(model)
    module, is_input = _module(model, site)
    path = next(name for name, one in model.named_modules() if one is module)
    envoy = wrapped.get(path)
    with wrapped.trace(ids, use_cache=False):
        if is_input:
            envoy.input = changed(change, envoy.input, other, mask)
        else:
            shown = envoy.output
            first = shown[0] if isinstance(shown, tuple) else shown
            new = changed(change, first, other, mask)
            envoy.output = (new, *shown[1:]) if isinstance(shown, tuple) else new
        found = wrapped.output.save()
    logits: Tensor = found.logits
    return logits


@torch.no_grad()
def bridge_logits(
    bridge: Any,
    ids: Tensor,
    change: Change,
    site: str,
    mask: Tensor,
    other: Tensor | None = None,
) -> Tensor:
    """Through TransformerLens: `bridge` is a `TransformerBridge` of the model."""
    hooks = [(site, lambda activations, hook: changed(change, activations, other, mask))]
    logits: Tensor = bridge.run_with_hooks(ids, fwd_hooks=hooks)
    return logits


def _module(model: Any, site: str) -> tuple[Any, bool]:
    """The module of a site, and whether the site is what goes into it."""
    if site == "hook_embed":
        return model.get_input_embeddings(), False
    _, number, kind = site.split(".")
    layer = decoder_layers(model)[int(number)]
    kind = kind.removeprefix("hook_")
    if kind in ("resid_pre", "resid_post"):
        return layer, kind == "resid_pre"
    found = next(
        (part for name in PARTS[kind] if (part := getattr(layer, name, None)) is not None), None
    )
    if found is None:
        raise UserError(
            f"{type(layer).__name__} has no {kind}; use hook_resid_pre or hook_resid_post"
        )
    return found, False
