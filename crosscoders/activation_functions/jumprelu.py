"""JumpReLU: each latent learns what it must exceed (2407.14435).

Penalty: the number of active latents. Its gradient, and that of the values,
reaches the thresholds through a rectangular kernel.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from crosscoders.activation_functions import TrainingStep, above, above_threshold, at_latents
from crosscoders.dictionaries.settings import TrainerSettings


class JumpReLU:
    """Thresholds are trained as `log_threshold`, and kept in the dictionary."""

    saelens = "jumprelu"
    l1 = False
    by_rank: Literal["never"] = "never"
    one_model_budget = False

    def check(self, k: int, latents: int) -> None:
        """It has no `k`."""

    def parameters(self, latents: int, settings: TrainerSettings) -> dict[str, Tensor]:
        return {"log_threshold": torch.full((latents,), settings.first_threshold).log()}

    def candidates(self, pre: Tensor, step: TrainingStep) -> Tensor:
        """All that the kernel reaches too."""
        lowest = step.parameters["log_threshold"].exp() - step.settings.bandwidth / 2
        return above((pre - lowest).reshape(-1), 0.0)

    def value(
        self, pre: Tensor, latent: Tensor, step: TrainingStep
    ) -> tuple[Tensor, Tensor | None]:
        bandwidth = step.settings.bandwidth
        threshold = at_latents(step.parameters["log_threshold"].exp(), latent)
        value: Tensor = _Jump.apply(pre, threshold, bandwidth)  # type: ignore[no-untyped-call]
        active: Tensor = _Count.apply(pre.detach(), threshold, bandwidth)  # type: ignore[no-untyped-call]
        return value, active

    def threshold(self, old: Tensor, value: Tensor, latent: Tensor, step: TrainingStep) -> Tensor:
        return step.parameters["log_threshold"].exp()

    def infer(self, pre: Tensor, threshold: Tensor, k: int) -> Tensor:
        return above_threshold(pre, threshold)


class _Jump(torch.autograd.Function):
    """`z` where it exceeds the threshold, else 0; the threshold's gradient is
    `-t/e` within half a bandwidth `e`.
    """

    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor, bandwidth: float) -> Tensor:
        ctx.save_for_backward(pre, threshold)
        ctx.bandwidth = bandwidth
        return pre * (pre > threshold)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pre, threshold = ctx.saved_tensors
        near = (pre - threshold).abs() < ctx.bandwidth / 2
        return (
            gradients[0] * (pre > threshold),
            -gradients[0] * near * threshold / ctx.bandwidth,
            None,
        )


class _Count(torch.autograd.Function):
    """1 where `z` exceeds the threshold; the threshold's gradient is `-1/e`
    within half a bandwidth `e`.
    """

    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor, bandwidth: float) -> Tensor:
        ctx.save_for_backward(pre, threshold)
        ctx.bandwidth = bandwidth
        return (pre > threshold).to(pre.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pre, threshold = ctx.saved_tensors
        near = (pre - threshold).abs() < ctx.bandwidth / 2
        return None, -gradients[0] * near / ctx.bandwidth, None
