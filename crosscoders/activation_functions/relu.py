"""ReLU with L1: the values weigh as much as the decoders are long
(transformer-circuits 2024).
"""

from typing import Literal

from torch import Tensor

from crosscoders.activation_functions import TrainingStep, above
from crosscoders.dictionaries.settings import TrainerSettings


class ReLU:
    """Penalty: `f_l sum_m |d_lm|`; decoders have the lengths that they learn."""

    saelens = "standard"
    l1 = True
    by_rank: Literal["never"] = "never"
    one_model_budget = False

    def check(self, k: int, latents: int) -> None:
        """It has no `k`."""

    def parameters(self, latents: int, settings: TrainerSettings) -> dict[str, Tensor]:
        return {}

    def candidates(self, pre: Tensor, step: TrainingStep) -> Tensor:
        return above(pre.reshape(-1), 0.0)

    def value(
        self, pre: Tensor, latent: Tensor, step: TrainingStep
    ) -> tuple[Tensor, Tensor | None]:
        return pre.relu(), None

    def threshold(self, old: Tensor, value: Tensor, latent: Tensor, step: TrainingStep) -> Tensor:
        return old

    def infer(self, pre: Tensor, threshold: Tensor, k: int) -> Tensor:
        return pre.relu()
