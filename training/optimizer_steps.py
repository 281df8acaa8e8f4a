"""Optimizer steps that cannot break a policy.

1. A step whose loss or gradient is not finite is left out: weights and moments
   stay as they are. It is counted, and warned of once in a run.
2. With too many left out in a row the run ends, in one sentence: by then it is
   not one odd batch.
3. A gradient that is zero at every weight asks for nothing, and is no step: the
   optimizer's momentum alone would move the weights.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from forensics.errors import UserError

logger = logging.getLogger("forensics")


@dataclass
class Skipped:
    """Steps left out: `most` may follow one another, `in_a_row` have until now."""

    most: int
    in_a_row: int = 0
    told: bool = False

    def state(self) -> dict[str, int]:
        """What a resumed run takes up; nothing while all is well."""
        return {"skipped": self.in_a_row} if self.in_a_row else {}

    def add(self, what: str) -> None:
        """Count one. Raises `UserError` where there are too many in a row."""
        self.in_a_row += 1
        if self.in_a_row > self.most:
            raise UserError(
                f"{what} was not finite in {self.in_a_row} optimizer steps in a row (most_skipped ="
                f" {self.most}); go on with --resume and a lower learning_rate, or check the"
                " rewards"
            )
        if not self.told:
            self.told = True
            logger.warning(
                "%s is not finite, so this optimizer step is left out; weights and optimizer stay"
                " as they are. Such steps are counted as `skipped`, and more than %d in a row end"
                " the run.",
                what.capitalize(),
                self.most,
            )


def clipped_step(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[torch.nn.Parameter],
    limit: float,
    loss: float,
    skipped: Skipped,
) -> float | None:
    """Clip the gradient at the norm `limit` and step; the norm before, `None`
    where `skipped` took the step. The same on every process, as loss and norm are.
    """
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
    length = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
    if not (math.isfinite(length) and math.isfinite(loss)):
        optimizer.zero_grad()
        skipped.add("the gradient" if math.isfinite(loss) else "the loss")
        return None
    skipped.in_a_row = 0
    if length:
        optimizer.step()
    return length
