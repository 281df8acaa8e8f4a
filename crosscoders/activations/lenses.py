"""TransformerLens and nnsight as readers: the same values as the raw hooks, for
those who work with these libraries.

1. TransformerLens: `TransformerBridge` over a checkpoint directory, with the
   library's raw weights. Its compatibility mode folds weights and centres them,
   which gives other activations, and is never switched on. Its attention is the
   plain one, so values agree to rounding only.
2. nnsight: a trace over the policy's own model, stopped behind the last site.
   Values are equal.
"""

import re
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crosscoders.activations.model_readers import Reader, reader_on
from forensics.errors import UserError
from forensics.policies.compatibility import context_length
from forensics.policies.sites import locate

ORDER = ("resid_pre", "attn_out", "mlp_out", "resid_post")  # as a layer computes them


def bridge_reader(
    path: Path | str, *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Reader:
    """A checkpoint directory through TransformerLens' bridge. Any hook of the bridge is a site."""
    from transformer_lens.model_bridge import TransformerBridge

    from forensics.policies.checkpoints import inspect_checkpoint
    from forensics.policies.compatibility import load_tokenizer

    tokenizer = load_tokenizer(path)
    bridge: Any = TransformerBridge.boot_transformers(
        str(path), device=device, dtype=dtype, tokenizer=tokenizer
    )
    return Reader(
        identity=inspect_checkpoint(Path(path)).identity,
        read=lambda ids, sites: _read_bridge(bridge, ids, sites),
        vocabulary=tokenizer.get_vocab(),
        tokens=bridge.cfg.d_vocab,
        positions=context_length(bridge.original_model.config.to_dict()),
        device=torch.device(device),
        dtype=dtype,
    )


def nnsight_reader(policy: Any) -> Reader:
    """A Hugging Face policy's own model through nnsight."""
    from nnsight import NNsight

    wrapped = NNsight(policy.model)
    return reader_on(policy, lambda ids, sites: _read_nnsight(wrapped, policy.model, ids, sites))


@torch.no_grad()
def _read_bridge(bridge: Any, ids: Tensor, sites: Sequence[str]) -> list[Tensor]:
    unknown = [site for site in sites if site not in bridge.hook_dict]
    if unknown:
        raise UserError(
            f"unknown site '{unknown[0]}'; TransformerBridge names this model's hooks in its"
            " hook_dict"
        )
    stop = max(_layer(site) for site in sites) + 1
    _, found = bridge.run_with_cache(
        ids,
        names_filter=list(sites),
        stop_at_layer=stop if stop < len(bridge.blocks) else None,
    )
    return [found[site] for site in sites]


@torch.no_grad()
def _read_nnsight(wrapped: Any, model: Any, ids: Tensor, sites: Sequence[str]) -> list[Tensor]:
    from nnsight import save

    names = {module: name for name, module in model.named_modules()}
    ordered = sorted(
        dict.fromkeys(sites), key=_computed
    )  # a trace must ask in the order of the forward pass
    places = []
    for site in ordered:
        module, output = locate(model, site)
        places.append((_envoy(wrapped, names[module]), output))
    with wrapped.trace(ids, use_cache=False) as tracer:
        seen = save([envoy.output if output else envoy.input for envoy, output in places])
        tracer.stop()
    found = {
        site: value[0] if isinstance(value, tuple) else value
        for site, value in zip(ordered, seen, strict=True)
    }
    return [found[site] for site in sites]


def _envoy(wrapped: Any, name: str) -> Any:
    """The part of nnsight's tree that stands for a module of this name."""
    return reduce(
        lambda at, part: at[int(part)] if part.isdigit() else getattr(at, part),
        name.split("."),
        wrapped,
    )


def _layer(site: str) -> int:
    match = re.match(r"blocks\.(\d+)\.", site)
    return int(match[1]) if match else -1


def _computed(site: str) -> tuple[int, int]:
    kind = site.rpartition("hook_")[2]
    return _layer(site), ORDER.index(kind) if kind in ORDER else 0
