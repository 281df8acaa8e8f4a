"""The activation functions that come with the toolkit.

`relu`, with L1: the values weigh as much as the decoders are long
(transformer-circuits 2024).

`topk`: the `k` largest positive latents of each row, while training and at
inference (2406.04093).

`jumprelu`: each latent learns what it must exceed (2407.14435). Penalty: the number
of active latents. Its gradient, and that of the values, reaches the thresholds
through a rectangular kernel.

`batchtopk`: the `rows * k` largest pairs of a whole batch while training
(2412.06410), a threshold at inference.

1. A partial sort of all pairs costs half as much as the product that made them.
   So a lower bound is guessed from a sample, what lies above it is gathered,
   and the choice among these is exact. Where the guess was too high, everything
   positive is gathered instead: the result never depends on it.
2. The threshold is the running mean of the smallest value kept, of the shared
   and the one-model latents apart where these are chosen apart.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from crosscoders.activation_functions import (
    ActivationFunction,
    TrainingStep,
    above,
    at_latents,
    require_k,
)
from crosscoders.dictionaries.settings import TrainerSettings

SAMPLE = 2**16  # of the pairs, from which a lower bound is guessed
MARGIN = 1.3


class ReLU(ActivationFunction):
    """Penalty: `f_l sum_m |d_lm|`; decoders have the lengths that they learn."""

    saelens = "standard"
    l1 = True
    by_rank: Literal["never"] = "never"

    def candidates(self, pre: Tensor, step: TrainingStep) -> Tensor:
        return above(pre.reshape(-1), 0.0)

    def infer(self, pre: Tensor, threshold: Tensor, k: int) -> Tensor:
        return pre.relu()


class TopK(ActivationFunction):
    """No penalty and no threshold; all latents of a row compete."""

    saelens = "topk"
    by_rank: Literal["always"] = "always"

    def check(self, k: int, latents: int) -> None:
        require_k(k, latents)

    def candidates(self, pre: Tensor, step: TrainingStep) -> Tensor:
        """Row by row; within a row in any order."""
        largest = pre.topk(step.k, dim=-1, sorted=False)
        rows = torch.arange(len(pre), device=pre.device)[:, None] * pre.shape[1]
        return (largest.indices + rows)[largest.values > 0]

    def infer(self, pre: Tensor, threshold: Tensor, k: int) -> Tensor:
        active = pre.relu()
        kept = active.topk(k, dim=-1)
        return torch.zeros_like(active).scatter(-1, kept.indices, kept.values)


class JumpReLU(ActivationFunction):
    """Thresholds are trained as `log_threshold`, and kept in the dictionary."""

    saelens = "jumprelu"
    by_rank: Literal["never"] = "never"

    def parameters(self, latents: int, settings: TrainerSettings) -> dict[str, Tensor]:
        return {"log_threshold": torch.full((latents,), settings.first_threshold).log()}

    def candidates(self, pre: Tensor, step: TrainingStep) -> Tensor:
        """All that the kernel reaches too."""
        lowest = step.parameters["log_threshold"].exp() - step.settings.bandwidth / 2
        return above((pre - lowest).reshape(-1), 0.0)

    def value(
        self, pre: Tensor, latent: Tensor, step: TrainingStep
    ) -> tuple[Tensor, Tensor | None]:
        threshold = at_latents(step.parameters["log_threshold"].exp(), latent)
        value, active = _Jump.apply(pre, threshold, step.settings.bandwidth)  # type: ignore[no-untyped-call]
        return value, active

    def threshold(self, old: Tensor, value: Tensor, latent: Tensor, step: TrainingStep) -> Tensor:
        return step.parameters["log_threshold"].exp()


class _Jump(torch.autograd.Function):
    """`z` where it exceeds the threshold, else 0, and whether it does; the
    threshold's gradients are `-t/e` and `-1/e` within half a bandwidth `e`.
    """

    @staticmethod
    def forward(
        ctx: Any, pre: Tensor, threshold: Tensor, bandwidth: float
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(pre, threshold)
        ctx.bandwidth = bandwidth
        active = pre > threshold
        return pre * active, active.to(pre.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pre, threshold = ctx.saved_tensors
        of_value, of_active = gradients
        near = (pre - threshold).abs() < ctx.bandwidth / 2
        by_value = -of_value * near * threshold / ctx.bandwidth
        by_active = -of_active * near / ctx.bandwidth
        return of_value * (pre > threshold), by_value + by_active, None


class BatchTopK(ActivationFunction):
    """No penalty."""

    saelens = "jumprelu"
    by_rank: Literal["training"] = "training"
    one_model_budget = True

    def check(self, k: int, latents: int) -> None:
        require_k(k, latents)

    def candidates(self, pre: Tensor, step: TrainingStep) -> Tensor:
        number = step.k * len(pre)
        if step.own is not None:
            return batch_topk_apart(pre, step.partition.shared, number, step.own, step.bound)
        return batch_topk(pre, number)

    def threshold(self, old: Tensor, value: Tensor, latent: Tensor, step: TrainingStep) -> Tensor:
        least = smallest_kept(value, latent, step)
        return torch.where(old.isnan(), least, old + step.settings.threshold_rate * (least - old))


def batch_topk(pre: Tensor, number: int) -> Tensor:
    """Flat indices, rising, of the `number` largest positive elements of `pre
    [rows, latents]` (fewer where fewer are positive).
    """
    flat = pre.reshape(-1)
    stride = max(1, len(flat) // SAMPLE) | 1  # odd: no stride through one latent's column only
    sample = flat[::stride]
    wanted = min(len(sample), int(MARGIN * number * len(sample) / len(flat)) + 16)
    bound = sample.topk(wanted, sorted=False).values.min().clamp(min=0)
    candidates = above(flat, bound)
    if len(candidates) < number:
        candidates = above(flat, 0.0)
    if len(candidates) <= number:
        return candidates
    kept = torch.zeros(len(candidates), dtype=torch.bool, device=pre.device)
    kept[flat[candidates].topk(number, sorted=False).indices] = True
    return candidates[kept]


def batch_topk_apart(
    pre: Tensor,
    shared: slice,
    number: int,
    own: int,
    bound: Tensor | None = None,
) -> Tensor:
    """As `batch_topk`: the `number` largest of the shared latents, and the
    `own` largest of the others. `bound [latents]`: looked for above it first.
    """
    if bound is not None and (found := _apart_above(pre, shared, number, own, bound)) is not None:
        return found
    latents, chosen = pre.shape[1], []
    columns = torch.arange(latents, device=pre.device)
    one_model = torch.cat([columns[: shared.start], columns[shared.stop :]])
    for block, most in ((columns[shared], number), (one_model, own)):
        if len(block) and most:
            flat = batch_topk(pre[:, block], most)
            chosen.append(flat // len(block) * latents + block[flat % len(block)])
    return torch.cat(chosen).sort().values


def _apart_above(pre: Tensor, shared: slice, number: int, own: int, bound: Tensor) -> Tensor | None:
    """`None` where too few lie above the bound, or it is not known."""
    flat = pre.reshape(-1)
    found = above((pre > bound).reshape(-1), 0)
    inside = found % pre.shape[1]
    inside = (inside >= shared.start) & (inside < shared.stop)
    values, kept = flat[found], torch.zeros_like(inside)
    for block, most in ((inside, number), (~inside, own)):
        place = block.nonzero().squeeze(-1)
        if len(place) < most:
            return None
        kept[place[values[place].topk(most, sorted=False).indices]] = True
    return found[kept]


def smallest_kept(value: Tensor, latent: Tensor, step: TrainingStep) -> Tensor:
    """The smallest active value, `[latents]` where one-model latents are chosen
    apart, else one number; 0 where nothing is active.
    """
    if step.own is None:
        return _smallest(value)
    shared = step.partition.shared
    inside = (latent >= shared.start) & (latent < shared.stop)
    least = _smallest(value[~inside]).expand(step.partition.latents).clone()
    least[shared] = _smallest(value[inside])
    return least


def _smallest(value: Tensor) -> Tensor:
    least = value.new_tensor(torch.inf)
    if value.numel():
        least = torch.where(value > 0, value, torch.inf).min()
    return torch.where(least.isinf(), 0.0, least)
