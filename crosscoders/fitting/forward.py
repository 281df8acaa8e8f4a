"""One pass through a dictionary as it is trained: the active pairs, the reconstructions and the penalty.

1. One product gives all pre-activations; with TopK, BatchTopK, or few active pairs, nothing else is dense.
2. Dense path: the formulas as they are written, for ReLU and JumpReLU while many latents are active, and for tests.
3. Penalty. ReLU: `sum_l f_l sum_m |d_lm|` (transformer-circuits 2024). JumpReLU: the number of active latents, whose
   gradient reaches the thresholds through a rectangular kernel (2407.14435).
4. Dead latents reconstruct what is left over (2406.04093), each model's remainder only from latents that see it.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from crosscoders.dictionary import Dictionary
from crosscoders.fitting import selecting, sparse

Path = Literal["auto", "sparse", "dense"]
SPARSE_BELOW = 0.05  # share of active pairs below which the sparse path is the faster one


@dataclass(frozen=True)
class Passed:
    """`errors [rows, models, width]` (reconstruction minus activation), the `penalty` of one row on average, and what
    was active: pairs in all, which latents at all `[latents]`, and the smallest value kept (of each latent's block)."""

    errors: torch.Tensor
    penalty: torch.Tensor
    active: torch.Tensor
    fired: torch.Tensor
    smallest: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Pass:
    """How: `k` of this step, the `path`, the dtype of the large product, and JumpReLU's thresholds and kernel.

    `scratch [rows, latents]` of that dtype is overwritten with the pre-activations: on a CPU fresh memory for them
    costs a fifth of the step. `own`: active one-model latents of the batch, where these are chosen apart. `number`: of
    active latents of the batch, instead of `k` a row (BatchTopK).
    """

    k: int
    path: Path = "auto"
    product: torch.dtype | None = None
    log_threshold: torch.Tensor | None = None
    bandwidth: float = 0.1
    scratch: torch.Tensor | None = None
    own: int = 0
    number: int | None = None


def run(dictionary: Dictionary, scaled: torch.Tensor, how: Pass) -> Passed:
    """Differentiable in all of the dictionary's weights (and `how.log_threshold`)."""
    with torch.no_grad():
        pre = _product(dictionary, scaled, how)
        chosen = _choose(dictionary, pre, how)
    few = dictionary.config.activation in ("topk", "batchtopk") or len(chosen) < SPARSE_BELOW * pre.numel()
    if how.path == "sparse" or (how.path == "auto" and few):
        return _sparse(dictionary, scaled, pre, chosen, how)
    return _dense(dictionary, scaled, chosen, how)


def _product(dictionary: Dictionary, scaled: torch.Tensor, how: Pass) -> torch.Tensor:
    """Pre-activations, `[rows, latents]`, in the wanted dtype."""
    dtype, bias = how.product or dictionary.bias.dtype, dictionary.bias
    found = how.scratch if how.scratch is not None else bias.new_empty((len(scaled), len(bias)), dtype=dtype)
    found.copy_(bias)
    centred = (scaled - dictionary.centres).to(dtype)
    for m, read in enumerate(dictionary.read):
        found[:, read].addmm_(centred[:, m], dictionary.encoders[m].to(dtype).T)
    return found


def _choose(dictionary: Dictionary, pre: torch.Tensor, how: Pass) -> torch.Tensor:
    """Flat indices, rising, of the pairs that the pass has to do with."""
    activation = dictionary.config.activation
    if activation == "batchtopk" and dictionary.config.own_k is not None:
        shared = dictionary.config.partition.shared
        return selecting.batch_topk_apart(pre, shared, how.k * len(pre), how.own)
    if activation == "batchtopk":
        return selecting.batch_topk(pre, how.k * len(pre) if how.number is None else how.number)
    if activation == "topk":
        return selecting.topk(pre, how.k)
    if how.log_threshold is None:
        return selecting.above(pre.reshape(-1), 0.0)
    lowest = how.log_threshold.exp() - how.bandwidth / 2
    return selecting.above((pre - lowest).reshape(-1), 0.0)


def _sparse(dictionary: Dictionary, scaled: torch.Tensor, pre: torch.Tensor, chosen: torch.Tensor, how: Pass) -> Passed:
    rows, latents = pre.shape
    row, latent = chosen // latents, chosen % latents
    pattern = sparse.Pattern.of(row, latent, rows, latents)
    known = pre.reshape(-1)[chosen] if pre.dtype == dictionary.bias.dtype else _exact(dictionary, scaled, pattern)
    value = sparse.encode(
        known, pattern, dictionary.read, scaled, dictionary.bias, dictionary.centres, list(dictionary.encoders)
    )
    value, counted = _activated(value, latent, how)
    penalty = _penalty(dictionary, value, counted, latent)
    return Passed(
        errors=_errors(dictionary, scaled, value, pattern), penalty=penalty.sum() / rows,
        active=(value > 0).sum(), fired=_fired(value, latent, latents),
        smallest=_smallest_of_blocks(dictionary, value, latent),
    )


def _exact(dictionary: Dictionary, scaled: torch.Tensor, pattern: sparse.Pattern) -> torch.Tensor:
    """The pre-activations at the pattern in full precision, where the large product had less."""
    known = dictionary.bias.detach()[pattern.latent].clone()
    for m, read in enumerate(dictionary.read):
        part, chosen = pattern.within(read)
        found = sparse.products_at(part, scaled[:, m] - dictionary.centres[m].detach(), dictionary.encoders[m].detach())
        known = known + found if chosen is None else known.index_add(0, chosen, found)
    return known


def _errors(dictionary: Dictionary, scaled: torch.Tensor, value: torch.Tensor, pattern: sparse.Pattern) -> torch.Tensor:
    found = []
    for m, seen in enumerate(dictionary.ranges):
        part, chosen = pattern.within(seen)
        own = value if chosen is None else value[chosen]
        found.append(sparse.decode(own, dictionary.decoder(m), part) + dictionary.centres[m] - scaled[:, m])
    return torch.stack(found, 1)


def _dense(dictionary: Dictionary, scaled: torch.Tensor, chosen: torch.Tensor, how: Pass) -> Passed:
    pre = dictionary.pre_activations(scaled)
    rows, latents = pre.shape
    if dictionary.config.activation in ("topk", "batchtopk"):
        kept = torch.zeros(pre.numel(), dtype=torch.bool, device=pre.device)
        kept[chosen] = True
        pre = torch.where(kept.view_as(pre), pre, 0.0)
    value, counted = _activated(pre, torch.arange(latents, device=pre.device).expand_as(pre), how)
    errors = torch.stack([
        value[:, seen] @ dictionary.decoder(m) + dictionary.centres[m] - scaled[:, m]
        for m, seen in enumerate(dictionary.ranges)
    ], 1)
    penalty = _penalty(dictionary, value, counted, torch.arange(latents, device=pre.device).expand_as(value))
    return Passed(
        errors=errors, penalty=penalty.sum() / rows, active=(value > 0).sum(),
        fired=(value > 0).any(0),
        smallest=_smallest_of_blocks(dictionary, value, torch.arange(latents, device=pre.device).expand_as(value)),
    )


def _activated(pre: torch.Tensor, latent: torch.Tensor, how: Pass) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Values, and for JumpReLU whether each is active (with the kernel's gradient)."""
    if how.log_threshold is None:
        return pre.relu(), None
    threshold = _of_each(how.log_threshold.exp(), latent)
    value: torch.Tensor = _JumpReLU.apply(pre, threshold, how.bandwidth)  # type: ignore[no-untyped-call]
    counted: torch.Tensor = _Step.apply(pre.detach(), threshold, how.bandwidth)  # type: ignore[no-untyped-call]
    return value, counted


def _of_each(known: torch.Tensor, latent: torch.Tensor) -> torch.Tensor:
    """`known[latent]`, whose gradient is summed in one order whatever the number of threads."""
    return known.index_select(0, latent.flatten()).view(latent.shape)


def _penalty(
    dictionary: Dictionary, value: torch.Tensor, counted: torch.Tensor | None, latent: torch.Tensor
) -> torch.Tensor:
    if counted is not None:
        return counted
    if dictionary.config.activation != "relu":
        return value.new_zeros(1)
    return value * _of_each(decoder_norms(dictionary), latent)


def decoder_norms(dictionary: Dictionary) -> torch.Tensor:
    """`sum_m |d_lm|` of every latent `[latents]`, differentiable."""
    norms = dictionary.bias.new_zeros(dictionary.config.partition.latents)
    for m, seen in enumerate(dictionary.ranges):
        indices = torch.arange(seen.start, seen.stop, device=norms.device)
        norms = norms.index_add(0, indices, dictionary.decoder(m).norm(dim=-1))
    return norms


def _fired(value: torch.Tensor, latent: torch.Tensor, latents: int) -> torch.Tensor:
    fired = torch.zeros(latents, dtype=torch.bool, device=value.device)
    return fired.index_fill(0, latent[value.detach() > 0], True)


def _smallest_of_blocks(dictionary: Dictionary, value: torch.Tensor, latent: torch.Tensor) -> torch.Tensor:
    """The smallest active value, of the shared and the one-model latents apart where these are chosen apart."""
    if dictionary.config.own_k is None:
        return _smallest(value)
    shared = dictionary.config.partition.shared
    inside = (latent >= shared.start) & (latent < shared.stop)
    found = _smallest(value[~inside]).expand(dictionary.config.partition.latents).clone()
    found[shared] = _smallest(value[inside])
    return found


def _smallest(value: torch.Tensor) -> torch.Tensor:
    """The smallest active value; 0 where nothing is active."""
    held = value.detach()
    least = torch.where(held > 0, held, torch.inf).min() if held.numel() else held.new_tensor(torch.inf)
    return torch.where(least.isinf(), 0.0, least)


def revival_loss(
    dictionary: Dictionary, scaled: torch.Tensor, errors: torch.Tensor, dead: torch.Tensor, k: int
) -> torch.Tensor:
    """How badly the `dead` latents (rising indices) reconstruct what is left over, 1 for not at all."""
    pre = dictionary.bias[dead].expand(len(scaled), -1)
    shares = []
    for m, seen in enumerate(dictionary.ranges):
        place = ((dead >= seen.start) & (dead < seen.stop)).nonzero().squeeze(-1)
        own = dead[place] - seen.start
        shares.append((place, own))
        centred, read = scaled[:, m] - dictionary.centres[m].detach(), dictionary.read[m]
        reading = ((dead >= read.start) & (dead < read.stop)).nonzero().squeeze(-1)
        pre = pre.index_add(1, reading, centred @ dictionary.encoders[m][dead[reading] - read.start].T)
    kept = pre.relu().topk(min(k, len(dead)), dim=-1, sorted=False)
    value = torch.zeros_like(pre).scatter(1, kept.indices, kept.values)
    left = -errors.detach()
    found = [value[:, place] @ dictionary.decoder(m)[own] for m, (place, own) in enumerate(shares)]
    return (left - torch.stack(found, 1)).square().sum() / left.square().sum().clamp(min=1e-12)


class _JumpReLU(torch.autograd.Function):
    """`z` where it exceeds the threshold, else 0; the threshold's gradient is `-t/e` within half a bandwidth `e`."""

    @staticmethod
    def forward(ctx: Any, pre: torch.Tensor, threshold: torch.Tensor, bandwidth: float) -> torch.Tensor:
        ctx.save_for_backward(pre, threshold)
        ctx.bandwidth = bandwidth
        return pre * (pre > threshold)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        pre, threshold = ctx.saved_tensors
        near = (pre - threshold).abs() < ctx.bandwidth / 2
        return gradients[0] * (pre > threshold), -gradients[0] * near * threshold / ctx.bandwidth, None


class _Step(torch.autograd.Function):
    """1 where `z` exceeds the threshold; the threshold's gradient is `-1/e` within half a bandwidth `e`."""

    @staticmethod
    def forward(ctx: Any, pre: torch.Tensor, threshold: torch.Tensor, bandwidth: float) -> torch.Tensor:
        ctx.save_for_backward(pre, threshold)
        ctx.bandwidth = bandwidth
        return (pre > threshold).to(pre.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        pre, threshold = ctx.saved_tensors
        near = (pre - threshold).abs() < ctx.bandwidth / 2
        return None, -gradients[0] * near / ctx.bandwidth, None
