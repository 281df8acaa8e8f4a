"""What touches only the active (row, latent) pairs: decode, and the gradients
of encoder and decoder.

1. Decode: each row is a bag of a few decoder rows, weighted (2406.04093,
   appendix D).
2. Gradient of a value: the product of its row's gradient with its latent's
   decoder, at the active pairs only.
3. Gradients of the weights: the same bags read the other way round, each latent
   a bag of the rows it was active in. The rows of latents that nothing
   activated are never computed.

Departure from 2406.04093: their kernels are for a GPU; here every step is an
operation torch has on CPU and CUDA.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

CHUNK = 4096  # pairs at once where products are taken by gathering
CHUNK_ON_CUDA = 2**16


@dataclass(frozen=True)
class Pattern:
    """Active pairs sorted by row, and the `order` that sorts them by latent.

    `row_starts` and `latent_starts` say where each begins in the one and the
    other order.
    """

    row: Int[Tensor, " active"]
    latent: Int[Tensor, " active"]
    row_starts: Int[Tensor, " row_starts"]
    order: Int[Tensor, " active"]
    latent_starts: Int[Tensor, " latent_starts"]

    @classmethod
    def of(cls, row: Tensor, latent: Tensor, rows: int, latents: int) -> "Pattern":
        small = torch.int16 if latents <= 2**15 else torch.int32  # small whole numbers sort fastest
        order = torch.argsort(latent.to(small), stable=True)
        return cls(row, latent, starts(row, rows), order, starts(latent[order], latents))

    @property
    def rows(self) -> int:
        return len(self.row_starts) - 1

    @property
    def latents(self) -> int:
        return len(self.latent_starts) - 1

    def by_latent(
        self, value: Float[Tensor, " active"], table: Float[Tensor, "rows width"]
    ) -> Float[Tensor, "latents width"]:
        """`sum over a latent's pairs of value * table[row]`."""
        return bags(self.row[self.order], self.latent_starts, value[self.order], table)

    def within(self, seen: slice) -> tuple["Pattern", Tensor | None]:
        """The pairs of a range of latents, counted from its start, and their
        indices (None for all).
        """
        if (seen.start, seen.stop) == (0, self.latents):
            return self, None
        chosen = ((self.latent >= seen.start) & (self.latent < seen.stop)).nonzero().squeeze(-1)
        return Pattern.of(
            self.row[chosen], self.latent[chosen] - seen.start, self.rows, seen.stop - seen.start
        ), chosen


def starts(sorted_labels: Tensor, number: int) -> Tensor:
    """Where each of `number` labels begins `[number + 1]`."""
    labels = torch.arange(number + 1, device=sorted_labels.device, dtype=sorted_labels.dtype)
    return torch.searchsorted(sorted_labels, labels)


def bags(index: Tensor, starts: Tensor, weights: Tensor, table: Tensor) -> Tensor:
    """Weighted sums `[bags, width]` of rows of a table: only these are read, and no
    product is held.
    """
    if len(index) == 0:
        return table.new_zeros((len(starts) - 1, table.shape[1]))
    return embedding_bag(
        index,
        table,
        starts,
        mode="sum",
        per_sample_weights=weights.to(table.dtype),
        include_last_offset=True,
    )


def products_at(
    pattern: Pattern, left: Float[Tensor, "rows width"], right: Float[Tensor, "latents width"]
) -> Float[Tensor, " active"]:
    """`left[row] . right[latent]` at every pair."""
    usable = left.is_cuda or torch.backends.mkl.is_available()
    if len(pattern.row) and usable and left.dtype in (torch.float32, torch.float64):
        return _sampled(pattern, left, right)
    found = left.new_empty(len(pattern.row))
    chunk = CHUNK_ON_CUDA if left.is_cuda else CHUNK
    for first in range(0, len(found), chunk):
        part = slice(first, first + chunk)
        found[part] = torch.einsum("pw,pw->p", left[pattern.row[part]], right[pattern.latent[part]])
    return found


def _sampled(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    """By latent, so that the larger table is read once through."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once that its compressed rows are in beta
        empty = torch.sparse_csr_tensor(
            pattern.latent_starts,
            pattern.row[pattern.order],
            left.new_zeros(len(pattern.row)),
            size=(pattern.latents, pattern.rows),
            check_invariants=False,
        )
    by_latent = torch.sparse.sampled_addmm(empty, right.contiguous(), left.T, beta=0.0).values()
    return torch.empty_like(by_latent).index_copy(0, pattern.order, by_latent)


class Decode(torch.autograd.Function):
    """`sum over a row's pairs of value * table[latent]`, differentiable in both."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, table: Tensor, pattern: Pattern) -> Tensor:
        ctx.save_for_backward(value, table)
        ctx.pattern = pattern
        return bags(pattern.latent, pattern.row_starts, value, table)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        value, table = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        to_value = None
        if ctx.needs_input_grad[0]:
            to_value = products_at(ctx.pattern, gradient, table).to(value.dtype)
        to_table = ctx.pattern.by_latent(value, gradient) if ctx.needs_input_grad[1] else None
        return to_value, to_table, None


class Encode(torch.autograd.Function):
    """Pre-activations that are known already, with the gradients that the
    products behind them would have.
    """

    @staticmethod
    def forward(
        ctx: Any,
        known: Tensor,
        pattern: Pattern,
        ranges: Sequence[slice],
        centred: Tensor,
        bias: Tensor,
        centres: Tensor,
        *encoders: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(centred, *encoders)
        ctx.pattern, ctx.ranges = pattern, ranges
        return known.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        gradient = gradients[0].contiguous()
        centred, *encoders = ctx.saved_tensors
        to_bias = gradient.new_zeros(ctx.pattern.latents).index_add(0, ctx.pattern.latent, gradient)
        to_encoders, to_centres = [], []
        for m, (seen, encoder) in enumerate(zip(ctx.ranges, encoders, strict=True)):
            part, chosen = ctx.pattern.within(seen)
            to_encoders.append(
                part.by_latent(gradient if chosen is None else gradient[chosen], centred[:, m])
            )
            to_centres.append(-(to_bias[seen].to(encoder.dtype) @ encoder))
        return None, None, None, None, to_bias, torch.stack(to_centres).to(to_bias), *to_encoders


class EncodeStacked(torch.autograd.Function):
    """As `Encode`, for dictionaries whose rows and latents lie one behind the other, each of which
    reads all models with all of its latents; `centres [dictionaries, models, width]`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        known: Tensor,
        pattern: Pattern,
        centred: Tensor,
        bias: Tensor,
        centres: Tensor,
        *encoders: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(centred, *encoders)
        ctx.pattern, ctx.dictionaries = pattern, len(centres)
        return known.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        gradient, pattern = gradients[0].contiguous(), ctx.pattern
        centred, *encoders = ctx.saved_tensors
        to_bias = gradient.new_zeros(pattern.latents).index_add(0, pattern.latent, gradient)
        apart = to_bias.unflatten(0, (ctx.dictionaries, 1, -1))
        to_centres = [-(apart @ one.unflatten(0, (ctx.dictionaries, -1)))[:, 0] for one in encoders]
        to_encoders = [pattern.by_latent(gradient, centred[:, m]) for m in range(len(encoders))]
        return None, None, None, to_bias, torch.stack(to_centres, 1), *to_encoders
