"""The places where one checkpoint can be put into the other: sites of the
residual stream, and weights.

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

from torch import Tensor, nn

from crosscoders.patching.results import Positions
from forensics.errors import UserError
from forensics.policies.sites import attach, decoder_layers

EMBED, UNEMBED, FINAL_NORM = "embed", "unembed", "final_norm"
Weight = tuple[nn.Module, str]  # a module and the name of one of its own parameters or buffers


def all_sites(model: Any) -> tuple[str, ...]:
    """Every site of a model, in the order in which a text passes them.

    `hook_resid_pre` is there for the first layer only: in the others it is the
    layer before's `hook_resid_post`.
    """
    parts = ("attn_out", "mlp_out", "resid_post")
    layers = (
        f"blocks.{layer}.hook_{part}"
        for layer in range(len(decoder_layers(model)))
        for part in parts
    )
    return "hook_embed", "blocks.0.hook_resid_pre", *layers


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
def patched(model: Any, site: str, values: Mapping[str, Tensor], where: slice) -> Iterator[None]:
    """The model with `values[site]` `[rows, positions, width]` in place of its own at `where`."""

    def replace(activation: Tensor) -> Tensor:
        changed = activation.clone()
        changed[:, where] = values[site][:, where].to(activation)
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
    tied: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.weights)

    def of(self, name: str) -> tuple[Weight, ...]:
        """The weights of a piece, or of several joined by `+`."""
        unknown = [part for part in name.split("+") if part not in self.weights]
        if unknown:
            raise UserError(
                f"no module '{unknown[0]}' in this model; it has: {', '.join(self.weights)}"
            )
        return tuple(weight for part in name.split("+") for weight in self.weights[part])


def pieces_of(model: Any) -> Pieces:
    """Split a model into its modules. Raises `UserError` where it has no list of layers."""
    taken: set[Weight] = set()
    found: dict[str, tuple[Weight, ...]] = {}

    def claim(name: str, module: nn.Module | None) -> None:
        weights = (
            [weight for weight in _weights(module) if weight not in taken]
            if module is not None
            else []
        )
        taken.update(weights)
        if weights:
            found[name] = tuple(weights)

    source, output = model.get_input_embeddings(), model.get_output_embeddings()
    claim(EMBED, source)
    claim(UNEMBED, output)
    for number, layer in enumerate(decoder_layers(model)):
        for name, child in layer.named_children():
            claim(f"blocks.{number}.{_plain(name)}", child)
        claim(f"blocks.{number}.own", layer)
    _claim_rest(claim, model)
    ends = {UNEMBED: found.pop(UNEMBED)} if UNEMBED in found else {}
    return Pieces(found | ends, _tied(source, output))


def _claim_rest(claim: Any, model: Any) -> None:
    """What stands beside the layers, by the names of the decoder's children,
    then whatever is left.
    """
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    for name, child in decoder.named_children():
        if child is not decoder_layers(model):
            claim(
                (
                    FINAL_NORM
                    if name in ("norm", "ln_f", "final_layer_norm", "final_layernorm")
                    else name
                ),
                child,
            )
    claim("rest", model)


def _plain(child: str) -> str:
    names = {
        "self_attn": "attn",
        "attention": "attn",
        "feed_forward": "mlp",
        "block_sparse_moe": "mlp",
    }
    return names.get(child, child)


def _weights(module: nn.Module) -> list[Weight]:
    return [
        (part, name)
        for part in module.modules()
        for name, value in (*part._parameters.items(), *part._buffers.items())
        if value is not None and name not in part._non_persistent_buffers_set
    ]


def _tied(source: nn.Module, output: nn.Module | None) -> bool:
    return output is not None and getattr(source, "weight", None) is getattr(output, "weight", 0)


@contextmanager
def grafted(receiver: Sequence[Weight], donor: Sequence[Weight]) -> Iterator[None]:
    """The receiver with the donor's weights; its own objects come back afterwards."""
    own = [_get(weight) for weight in receiver]
    try:
        for weight, mine, other in zip(receiver, own, donor, strict=True):
            _put(weight, _like(_get(other), mine))
        yield
    finally:
        for weight, mine in zip(receiver, own, strict=True):
            _put(weight, mine)


def relative_change(receiver: Sequence[Weight], donor: Sequence[Weight]) -> float | None:
    """Norm of the difference over the receiver's norm; `None` where that is zero."""
    pairs = [
        (_get(mine).detach().double(), _get(other).detach().double())
        for mine, other in zip(receiver, donor, strict=True)
    ]
    change = sum(float((other.to(mine.device) - mine).square().sum()) for mine, other in pairs)
    size = sum(float(mine.square().sum()) for mine, _ in pairs)
    return (change / size) ** 0.5 if size > 0 else None


def require_same_shape(before: Any, after: Any) -> None:
    """Raise `UserError` unless the two are checkpoints of one architecture."""
    shapes = [
        {name: tuple(value.shape) for name, value in model.state_dict().items()}
        for model in (before, after)
    ]
    if shapes[0] == shapes[1]:
        return
    name = next(
        name for name in (*shapes[0], *shapes[1]) if shapes[0].get(name) != shapes[1].get(name)
    )
    raise UserError(
        f"'{name}' is {shapes[0].get(name, 'missing')} before and {shapes[1].get(name, 'missing')}"
        " after; patching and grafting need two checkpoints of one architecture (merge an adapter"
        " first)"
    )


def _get(weight: Weight) -> Tensor:
    module, name = weight
    value = module._parameters.get(name)
    found = module._buffers[name] if value is None else value
    assert found is not None
    return found


def _put(weight: Weight, value: Tensor) -> None:
    module, name = weight
    home: dict[str, Any] = module._parameters if name in module._parameters else module._buffers
    home[name] = value


def _like(value: Tensor, own: Tensor) -> Tensor:
    if (value.device, value.dtype) == (own.device, own.dtype):
        return value
    moved = value.detach().to(own)
    return nn.Parameter(moved, requires_grad=False) if isinstance(own, nn.Parameter) else moved
