"""One checkpoint with a piece of the other: activations at a site, or the weights
of a module.

*Patching* replaces activations: while the receiving model reads a text, what
the other model has at a site takes the place of its own, at all positions, from
the deciding token on, or before it. *Grafting* replaces weights: one module's
parameters are exchanged as objects, nothing is copied, so that what comes back
afterwards is what was there.

The model is split into modules by its structure: input embedding, output
projection (two pieces even where they are tied), each layer's attention, MLP
and every other module of a layer, and what the decoder has beside its layers.
Every parameter belongs to one piece.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from crosscoders.patching.results import Positions
from forensics.errors import UserError
from forensics.policies import require
from forensics.policies.sites import attach, decoder_layers
from forensics.protocols import Policy

EMBED, UNEMBED, FINAL_NORM = "embed", "unembed", "final_norm"
NORMS = ("norm", "ln_f", "final_layer_norm", "final_layernorm")  # a decoder's child
PLAIN = {
    "self_attn": "attn",
    "attention": "attn",
    "feed_forward": "mlp",
    "block_sparse_moe": "mlp",
}  # a layer's child
Weight = tuple[nn.Module, str]  # a module and the name of one of its own parameters or buffers


def all_sites(model: Any) -> tuple[str, ...]:
    """Every site of a model, in the order in which a text passes them.

    `hook_resid_pre` is there for the first layer only: in the others it is the
    layer before's `hook_resid_post`.
    """
    parts = ("attn_out", "mlp_out", "resid_post")
    layers = range(len(decoder_layers(model)))
    inside = [f"blocks.{layer}.hook_{part}" for layer in layers for part in parts]
    return "hook_embed", "blocks.0.hook_resid_pre", *inside


def part_of(positions: Positions, deciding: int) -> slice:
    """The positions of a text whose deciding token stands at `deciding`.
    `deciding` takes the action's own tokens along where whole actions are read.
    """
    return {"all": slice(None), "earlier": slice(0, deciding), "deciding": slice(deciding, None)}[
        positions
    ]


@contextmanager
def recorded(model: Any, sites: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """What passes the sites while this is open: `[rows, positions, width]` each."""
    seen: dict[str, Tensor] = {}

    def keep(site: str) -> Any:
        def read(activation: Tensor) -> None:
            seen[site] = activation.detach().clone()

        return read

    with ExitStack() as stack:
        for site in sites:
            stack.callback(attach(model, site, keep(site)).remove)
        yield seen


@contextmanager
def patched(
    model: Any,
    site: str,
    values: Mapping[str, Tensor],
    where: slice,
    kept: Tensor | None = None,
) -> Iterator[None]:
    """The model with `values[site]` `[rows, positions, width]` in place of its own at
    `where`, as far as `kept [rows, positions]` says so.
    """

    def replace(activation: Tensor) -> Tensor:
        changed = activation.clone()
        theirs = values[site].to(activation)
        if kept is not None:
            theirs = torch.where(kept[..., None].to(activation.device), theirs, activation)
        changed[:, where] = theirs[:, where]
        return changed

    handle = attach(model, site, replace)
    try:
        yield
    finally:
        handle.remove()


@dataclass(frozen=True)
class Pieces:
    """A model's weights by module: `weights[name]` are that piece's parameters
    and saved buffers.
    """

    weights: Mapping[str, tuple[Weight, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.weights)

    def of(self, name: str) -> tuple[Weight, ...]:
        """The weights of a piece, or of several joined by `+`."""
        parts = name.split("+")
        if unknown := [part for part in parts if part not in self.weights]:
            raise UserError(
                f"no module '{unknown[0]}' in this model; it has: {', '.join(self.weights)}"
            )
        return tuple(weight for part in parts for weight in self.weights[part])


def pieces_of(model: Any) -> Pieces:
    """Split a model into its modules. Raises `UserError` where it has no list of layers."""
    layers = decoder_layers(model)
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    parts: list[tuple[str, nn.Module | None]] = [
        (EMBED, model.get_input_embeddings()),
        (UNEMBED, model.get_output_embeddings()),
    ]
    for number, layer in enumerate(layers):
        parts += [
            (f"blocks.{number}.{PLAIN.get(name, name)}", child)
            for name, child in layer.named_children()
        ]
        parts.append((f"blocks.{number}.own", layer))
    parts += [
        (FINAL_NORM if name in NORMS else name, child)
        for name, child in decoder.named_children()
        if child is not layers
    ]
    found: dict[str, tuple[Weight, ...]] = {}
    taken: set[Weight] = set()
    for name, module in [*parts, ("rest", model)]:  # the first to name a weight has it
        weights = tuple(
            (part, key)
            for part in (module.modules() if module is not None else ())
            for key, value in (*part._parameters.items(), *part._buffers.items())
            if value is not None
            and key not in part._non_persistent_buffers_set
            and (part, key) not in taken
        )
        taken.update(weights)
        if weights:
            found[name] = weights
    if UNEMBED in found:  # it is passed last
        found[UNEMBED] = found.pop(UNEMBED)
    return Pieces(found)


@contextmanager
def grafted(receiver: Sequence[Weight], donor: Sequence[Weight]) -> Iterator[None]:
    """The receiver with the donor's weights; its own objects come back afterwards."""
    homes: list[tuple[dict[str, Any], str]] = [
        (module._parameters if name in module._parameters else module._buffers, name)
        for module, name in receiver
    ]
    own = [home[name] for home, name in homes]
    try:
        for (home, name), mine, (module, key) in zip(homes, own, donor, strict=True):
            other = getattr(module, key)
            if (other.device, other.dtype) != (mine.device, mine.dtype):
                other = other.detach().to(mine)
                if isinstance(mine, nn.Parameter):
                    other = nn.Parameter(other, requires_grad=False)
            home[name] = other
        yield
    finally:
        for (home, name), mine in zip(homes, own, strict=True):
            home[name] = mine


def relative_change(receiver: Sequence[Weight], donor: Sequence[Weight]) -> float | None:
    """Norm of the difference over the receiver's norm; `None` where that is zero."""
    pairs = [
        (getattr(*mine).detach().double(), getattr(*other).detach().double())
        for mine, other in zip(receiver, donor, strict=True)
    ]
    change = sum(float((other.to(mine.device) - mine).square().sum()) for mine, other in pairs)
    size = sum(float(mine.square().sum()) for mine, _ in pairs)
    return (change / size) ** 0.5 if size > 0 else None


def require_same_shape(before: Policy, after: Policy) -> None:
    """Raise `UserError` unless the two are checkpoints of one architecture, with weights here."""
    shapes = []
    for side, policy in (("before", before), ("after", after)):
        require(policy, "weights", task=f"patching ({side})")
        shapes.append({name: value.shape for name, value in policy.model.state_dict().items()})
    if shapes[0] == shapes[1]:
        return
    name = next(
        name for side in shapes for name in side if shapes[0].get(name) != shapes[1].get(name)
    )
    first, second = (tuple(side[name]) if name in side else "missing" for side in shapes)
    raise UserError(
        f"'{name}' is {first} before and {second}"
        " after; patching and grafting need two checkpoints of one architecture (merge an adapter"
        " first)"
    )
