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

Layers before the first place where a hybrid differs from its receiver give what they gave
when the receiver read the same texts, and need not run again (`replayed`): on average this
halves a pass, and what comes out is the same to the bit.

Outliers of the norm (attention sinks) stay as they are (`outlying`): a sink that is carried
over moves nothing that a text says, and its difference, nearly all of that of the models,
would be told as where the change lives. Both models read the decisions once more, and
the norms of the residual stream are held against their medians over all decisions; what a
layer's attention or MLP adds is left out where the residual behind that layer is an outlier.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from crosscoders.activations.outlier_positions import limits_of, norms_of
from crosscoders.patching.decisions import Decision
from crosscoders.patching.results import Positions
from forensics.errors import UserError
from forensics.phrases import plural
from forensics.policies import attach, decoder_layers, read_sites, require
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


@contextmanager
def outputs_kept(layers: Sequence[nn.Module]) -> Iterator[list[Any]]:
    """What each layer gives while this is open, as the layer gives it."""
    kept: list[Any] = [None] * len(layers)

    def keep(number: int) -> Any:
        def hook(_module: nn.Module, _args: Any, output: Any) -> None:
            kept[number] = output

        return hook

    with ExitStack() as stack:
        for number, layer in enumerate(layers):
            stack.callback(layer.register_forward_hook(keep(number)).remove)
        yield kept


@contextmanager
def replayed(layers: Sequence[nn.Module], kept: Sequence[Any], number: int) -> Iterator[None]:
    """The first layers give copies of what was kept, without computing; hooks
    on them are called as ever.
    """

    def giving(output: Any) -> Any:  # a model may add in place
        if isinstance(output, Tensor):
            return lambda *_args, **_kwargs: output.clone()
        return lambda *_args, **_kwargs: (output[0].clone(), *output[1:])

    own = [layer.__dict__.get("forward") for layer in layers[:number]]  # somebody else's wrapper
    try:
        for layer, output in zip(layers[:number], kept, strict=False):
            layer.__dict__["forward"] = giving(output)
        yield
    finally:
        for layer, mine in zip(layers, own, strict=False):
            layer.__dict__.pop("forward", None)
            if mine is not None:
                layer.__dict__["forward"] = mine


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


def judged_at(site: str) -> str:
    """The site whose norms decide for a site."""
    return re.sub(r"hook_(attn|mlp)_out$", "hook_resid_post", site)


@dataclass(frozen=True)
class Outlying:
    """`masks[site][decision] [positions]`: outliers in either model, for sites that have
    any.
    """

    masks: dict[str, list[Tensor]] = field(default_factory=dict)

    def kept(self, site: str, members: Sequence[int], positions: int) -> Tensor | None:
        """What may be patched of some decisions of one length, `[rows, positions]`;
        `None`: everything.
        """
        masks = self.masks.get(judged_at(site))
        if masks is None:
            return None
        outlying = torch.stack([masks[i] for i in members])
        kept = torch.ones((len(members), positions), dtype=torch.bool)
        kept[:, : outlying.shape[1]] = ~outlying
        return kept

    def sentence(self) -> str | None:
        """What a reader is told; `None` where there are none."""
        if not self.masks:
            return None
        most = max(self.masks.values(), key=lambda masks: sum(int(one.sum()) for one in masks))
        places = sorted({int(at) for one in most for at in one.nonzero()[:, 0]})
        named = ", ".join(map(str, places[:3])) + (", ..." if len(places) > 3 else "")
        return (
            f"Patches left attention sinks as they are: at {plural(len(self.masks), 'site')}"
            f" position {named} had more than 10 times the median norm."
        )


@torch.inference_mode()
def outlying(
    models: tuple[Any, Any],
    decisions: Sequence[Decision],
    sites: Iterable[str],
    batches: Iterable[Sequence[int]],
) -> Outlying:
    """The outliers at the sites that judge these. `batches`: of decisions of one length."""
    judging = sorted({judged_at(site) for site in sites})
    if not judging:
        return Outlying()
    norms: dict[str, list[Tensor]] = {
        site: [torch.empty(0)] * len(decisions) for site in judging
    }  # [positions, models] a decision
    places = [next(model.parameters()).device for model in models]
    for members in batches:
        ids = torch.tensor([decisions[i].token_ids for i in members])
        read = [
            [norms_of(one).cpu() for one in read_sites(model, ids.to(place), judging)]
            for model, place in zip(models, places, strict=True)
        ]
        for site, first, second in zip(judging, *read, strict=True):
            for row, i in enumerate(members):
                norms[site][i] = torch.stack([first[row], second[row]], dim=-1)
    found = {}
    for site, sizes in norms.items():
        limits = torch.tensor(limits_of(torch.cat(sizes)))
        masks = [(one > limits).any(-1) for one in sizes]
        if any(bool(mask.any()) for mask in masks):
            found[site] = masks
    return Outlying(found)
