"""TransformerLens site names on a Hugging Face decoder, found from the model's
structure.

`blocks.L.hook_resid_pre`, `hook_resid_post`, `hook_attn_out`, `hook_mlp_out`,
and `hook_embed`. Nothing is guessed from a model's name: the decoder is the
module that holds the list of layers.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import nn

from forensics.errors import UserError

_SITE = re.compile(r"blocks\.(\d+)\.hook_(resid_pre|resid_post|attn_out|mlp_out)")
Edit = Callable[[torch.Tensor], torch.Tensor | None]


def decoder_layers(model: Any) -> nn.ModuleList:
    """The list of decoder layers. Raises `UserError` where the model has no such list."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    layers = getattr(decoder, "layers", None) or getattr(decoder, "h", None)
    if not isinstance(layers, nn.ModuleList):
        raise UserError(
            f"{type(model).__name__} has no list of decoder layers, so it has no named sites"
        )
    return layers


def locate(model: Any, site: str) -> tuple[nn.Module, bool]:
    """The module whose output a site is, or (`False`) whose input. Raises
    `UserError` for an unknown site.

    A model may name sites of its own: `named_sites`, a mapping to such pairs.
    """
    if found := getattr(model, "named_sites", {}).get(site):
        own: tuple[nn.Module, bool] = found
        return own
    if site == "hook_embed":
        embedding: nn.Module = model.get_input_embeddings()
        return embedding, True
    match = _SITE.fullmatch(site)
    layers = decoder_layers(model)
    if not match or int(match[1]) >= len(layers):
        raise UserError(
            f"unknown site '{site}'; this model has hook_embed and blocks.0 to"
            f" blocks.{len(layers) - 1} with hook_resid_pre, hook_attn_out, hook_mlp_out,"
            " hook_resid_post"
        )
    layer = layers[int(match[1])]
    if match[2] in ("resid_pre", "resid_post"):
        return layer, match[2] == "resid_post"
    return _part(layer, match[2]), True


def attach(model: Any, site: str, edit: Edit) -> Any:
    """Hook a site. `edit` gets activations `[rows, positions, features]`; what
    it returns (if anything) takes their place. Returns the handle to remove.
    """
    module, output = locate(model, site)
    if output:
        return module.register_forward_hook(_after(edit))
    return module.register_forward_pre_hook(_before(edit), with_kwargs=True)


def _part(layer: nn.Module, kind: str) -> nn.Module:
    names = (
        ("self_attn", "attn", "attention")
        if kind == "attn_out"
        else ("mlp", "feed_forward", "block_sparse_moe")
    )
    for name in names:
        if isinstance(part := getattr(layer, name, None), nn.Module):
            return part
    raise UserError(f"{type(layer).__name__} has no {kind}; use hook_resid_pre or hook_resid_post")


def _before(edit: Edit) -> Any:
    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            changed = edit(args[0])
            return None if changed is None else ((changed, *args[1:]), kwargs)
        changed = edit(kwargs["hidden_states"])
        return None if changed is None else (args, kwargs | {"hidden_states": changed})

    return hook


def _after(edit: Edit) -> Any:
    def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
        changed = edit(output[0] if isinstance(output, tuple) else output)
        if changed is None:
            return None
        return (changed, *output[1:]) if isinstance(output, tuple) else changed

    return hook


class _AllSeen(Exception):
    """Every site was passed; what lies behind them need not run."""


@contextmanager
def recorded(
    model: Any, sites: Iterable[str], *, stop: bool = False
) -> Iterator[dict[str, torch.Tensor]]:
    """What passes the sites while this is open: `[rows, positions, width]` each. `stop`: a
    pass ends behind the last of them, and with it the block.
    """
    wanted, seen = set(sites), dict[str, torch.Tensor]()

    def keep(site: str) -> Edit:
        def look(activation: torch.Tensor) -> None:
            alone = stop and len(wanted) == 1
            seen[site] = activation if alone else activation.clone()  # layers may add in place
            if stop and len(seen) == len(wanted):
                raise _AllSeen

        return look

    with ExitStack() as stack, suppress(_AllSeen):
        for site in sorted(wanted):
            stack.callback(attach(model, site, keep(site)).remove)
        yield seen


@torch.no_grad()
def read_sites(
    model: Any, ids: torch.Tensor, sites: Sequence[str], **given: Any
) -> list[torch.Tensor]:
    """Activations `[texts, positions, width]` at each site; the forward pass
    ends behind the last of them. `given` goes to the model.

    Raises `UserError` for a site that the model does not have.
    """
    with recorded(model, sites, stop=True) as seen:
        (model.get_decoder() if hasattr(model, "get_decoder") else model)(
            input_ids=ids, **{"use_cache": False, **given}
        )
    return [seen[site] for site in sites]
