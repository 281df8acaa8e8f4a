"""TopK: the `k` largest positive latents of each row, while training and at
inference (2406.04093).
"""

from typing import Literal

import torch
from torch import Tensor

from crosscoders.activation_functions import TrainingStep, require_k
from crosscoders.dictionaries.settings import TrainerSettings


class TopK:
    """No penalty and no threshold; all latents of a row compete."""

    saelens = "topk"
    l1 = False
    by_rank: Literal["always"] = "always"
    one_model_budget = False

    def check(self, k: int, latents: int) -> None:
        require_k(k, latents)

    def parameters(self, latents: int, settings: TrainerSettings) -> dict[str, Tensor]:
        return {}

    def candidates(self, pre: Tensor, step: TrainingStep) -> Tensor:
        """Row by row; within a row in any order."""
        largest = pre.topk(step.k, dim=-1, sorted=False)
        rows = torch.arange(len(pre), device=pre.device)[:, None] * pre.shape[1]
        return (largest.indices + rows)[largest.values > 0]

    def value(
        self, pre: Tensor, latent: Tensor, step: TrainingStep
    ) -> tuple[Tensor, Tensor | None]:
        return pre.relu(), None

    def threshold(self, old: Tensor, value: Tensor, latent: Tensor, step: TrainingStep) -> Tensor:
        return old

    def infer(self, pre: Tensor, threshold: Tensor, k: int) -> Tensor:
        active = pre.relu()
        kept = active.topk(k, dim=-1)
        return torch.zeros_like(active).scatter(-1, kept.indices, kept.values)
