"""One forward pass through a dictionary as it is trained: the active pairs, the
reconstructions and the penalty.

1. One product gives all pre-activations, and the activation function names the
   pairs that the step has to do with. Where these are few, nothing else is
   dense. With L1 a value costs `f_l sum_m |d_lm|`.
2. Dense path: the formulas as they are written, for functions that do not
   choose by rank while many latents are active, and for tests.
3. In bfloat16 every large product has that precision: encoder, decoder and the
   gradients of both. Weights, moments and what is summed over the batch do not.
4. Dead latents reconstruct what is left over (2406.04093), each model's
   remainder only from latents that see it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from crosscoders.activation_functions import TrainingStep, at_latents
from crosscoders.dictionaries import sparse
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.settings import TrainerSettings

Path = Literal["auto", "sparse", "dense"]
SPARSE_BELOW = 0.05  # share of active pairs below which the sparse path is the faster one


@dataclass(frozen=True)
class ForwardResult:
    """`errors [rows, models, width]` (reconstruction minus activation), the
    `penalty` of one row on average, `active` pairs in all, and which latents
    `fired` at all `[latents]`. `value` of the pairs and their `latent`, of one
    shape and without gradient.
    """

    errors: Tensor
    penalty: Tensor
    active: Tensor
    fired: Tensor
    value: Tensor
    latent: Tensor


def training_step(
    dictionary: Dictionary,
    settings: TrainerSettings | None = None,
    *,
    own: int = 0,
    parameters: Mapping[str, Tensor] | None = None,
) -> TrainingStep:
    """What a step of a dictionary is; `parameters` are the first ones where none are given."""
    config, settings = dictionary.config, settings or TrainerSettings()
    latents = config.partition.latents
    return TrainingStep(
        partition=config.partition,
        settings=settings,
        k=config.k,
        own=None if config.own_k is None else own,
        parameters=dictionary.function.parameters(latents, settings)
        if parameters is None
        else parameters,
    )


def forward(
    dictionary: Dictionary,
    scaled: Float[Tensor, "rows models width"],
    step: TrainingStep,
    *,
    path: Path = "auto",
    scratch: Float[Tensor, "rows latents"] | None = None,
) -> ForwardResult:
    """Differentiable in all of the dictionary's weights and `step.parameters`.

    `scaled [rows, models, width]`: activations in the dictionary's units.
    `scratch [rows, latents]` of the product's dtype is overwritten with the
    pre-activations: on a CPU fresh memory for them costs a fifth of the step.
    """
    dtype = torch.bfloat16 if step.settings.precision == "bfloat16" else dictionary.bias.dtype
    encoders = [encoder.to(dtype) for encoder in dictionary.encoders]
    with torch.no_grad():
        if scratch is None:
            scratch = dictionary.bias.new_empty((len(scaled), len(dictionary.bias)), dtype=dtype)
        pre = dictionary.pre_activations(scaled, out=scratch, encoders=encoders)
        chosen = dictionary.function.candidates(pre, step)
    few = dictionary.function.by_rank != "never" or len(chosen) < SPARSE_BELOW * pre.numel()
    if path == "sparse" or (path == "auto" and few):
        return _sparse(dictionary, encoders, scaled, pre, chosen, step)
    return _dense(dictionary, encoders, scaled, chosen, step)


def _sparse(
    dictionary: Dictionary,
    encoders: list[Tensor],
    scaled: Tensor,
    pre: Tensor,
    chosen: Tensor,
    step: TrainingStep,
) -> ForwardResult:
    rows, latents = pre.shape
    latent = chosen % latents
    pattern = sparse.Pattern.of(chosen // latents, latent, rows, latents)
    value: Tensor = sparse.Encode.apply(  # type: ignore[no-untyped-call]
        pre.reshape(-1)[chosen].to(scaled.dtype),
        pattern,
        dictionary.read,
        (scaled - dictionary.centres).detach().to(pre.dtype),
        dictionary.bias,
        dictionary.centres,
        *encoders,
    )
    value, own_penalty = dictionary.function.value(value, latent, step)
    errors = []
    for m, seen in enumerate(dictionary.ranges):
        part, own = pattern.within(seen)
        here = value if own is None else value[own]
        table = dictionary.decoder(m).to(pre.dtype)
        said = sparse.Decode.apply(here, table, part)  # type: ignore[no-untyped-call]
        errors.append(said + dictionary.centres[m] - scaled[:, m])
    return joined_result(dictionary, torch.stack(errors, 1), value, own_penalty, latent)


def _dense(
    dictionary: Dictionary,
    encoders: list[Tensor],
    scaled: Tensor,
    chosen: Tensor,
    step: TrainingStep,
) -> ForwardResult:
    dtype = encoders[0].dtype
    pre = dictionary.pre_activations(scaled, encoders=encoders).to(scaled.dtype)
    if dictionary.function.by_rank != "never":
        kept = torch.zeros(pre.numel(), dtype=torch.bool, device=pre.device)
        kept[chosen] = True
        pre = torch.where(kept.view_as(pre), pre, 0.0)
    latent = torch.arange(pre.shape[1], device=pre.device).expand_as(pre)
    value, own_penalty = dictionary.function.value(pre, latent, step)
    errors = [
        value[:, seen].to(dtype) @ dictionary.decoder(m).to(dtype)
        + dictionary.centres[m]
        - scaled[:, m]
        for m, seen in enumerate(dictionary.ranges)
    ]
    return joined_result(dictionary, torch.stack(errors, 1), value, own_penalty, latent)


def joined_result(
    dictionary: Dictionary, errors: Tensor, value: Tensor, own: Tensor | None, latent: Tensor
) -> ForwardResult:
    """`errors [rows, models, width]`; `own`: the penalty that the function itself asks of each
    pair.
    """
    penalty = value.new_zeros(1) if own is None else own
    if dictionary.function.l1:
        weighed = value * at_latents(dictionary.decoder_norms(), latent)
        penalty = weighed if own is None else weighed + own
    held = value.detach()
    fired = torch.zeros(len(dictionary.bias), dtype=torch.bool, device=value.device)
    return ForwardResult(
        errors=errors,
        penalty=penalty.sum() / len(errors),
        active=(held > 0).sum(),
        fired=fired.index_fill(0, latent[held > 0], True),
        value=held,
        latent=latent,
    )


def aux_loss(
    dictionary: Dictionary,
    scaled: Float[Tensor, "rows models width"],
    errors: Float[Tensor, "rows models width"],
    dead: Int[Tensor, " dead"],
) -> Float[Tensor, ""]:
    """How badly the `dead` latents (rising indices), as many a row as half the width,
    reconstruct what is left over, 1 for not at all.
    """
    k = max(1, dictionary.config.width // 2)
    pre = dictionary.pre_activations_of(dead, scaled - dictionary.centres.detach())
    kept = pre.relu().topk(min(k, len(dead)), dim=-1, sorted=False)
    value = torch.zeros_like(pre).scatter(1, kept.indices, kept.values)
    given = []
    for m, seen in enumerate(dictionary.ranges):
        place = ((dead >= seen.start) & (dead < seen.stop)).nonzero().squeeze(-1)
        given.append(value[:, place] @ dictionary.decoder(m)[dead[place] - seen.start])
    left = -errors.detach()
    whole = left.square().sum().clamp(min=1e-12)
    return (left - torch.stack(given, 1)).square().sum() / whole
