"""What is measured of a reading without running a model: explained, comes back, recall."""

import torch
from torch import Tensor

from crosscoders import Stream
from experiments.readers_of_the_difference.difference_readers import (
    SAME,
    Reading,
    partners,
    told_by,
)


@torch.no_grad()
def explained(reading: Reading, told: Stream) -> float:
    """Share of the variance of the models' difference that the account holds."""
    rows = torch.cat([block.activations.float() for block in told.blocks()])
    difference = rows[:, 1] - rows[:, 0]
    left = difference - told_by(reading, rows[:, 0], rows[:, 1])
    return float(1 - left.double().var(0).sum() / difference.double().var(0).sum())


def comes_back(first: Tensor, second: Tensor) -> float | None:
    """Share of the first's directions `[reported, width]` that the second has, one to one; `None`
    where nothing is reported.
    """
    if not len(first):
        return None
    return len(partners(first, second)) / len(first)


def recall(called: Tensor, truth: Tensor) -> dict[str, float | int | None]:
    """How many of the true directions `[features, width]` are called, and how many that are
    called are none of them.
    """
    cosines = (called @ truth.T).abs() >= SAME
    number = len(called)
    return {
        "found": int(cosines.any(0).sum()),
        "of": len(truth),
        "called": number,
        "false": int((~cosines.any(1)).sum()),
    }
