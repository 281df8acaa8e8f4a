"""The gap between two log-probabilities of the same drawn tokens, by depth of context: what
a sampler told, and what a scorer finds. Depth is how many tokens stand before the token.
"""

from itertools import pairwise
from math import inf
from typing import Final

import torch

EDGES: Final = (0, 64, 256, 1024, 4096, 16384, inf)  # tokens of context
LEAST: Final = 1e-4  # nats; below, rounding alone may grow tenfold
LARGEST_LOG_RATIO: Final = 20.0  # nats; a ratio of half a billion


def gap_by_depth(gap: torch.Tensor, depth: torch.Tensor) -> dict[str, float]:
    """Of all tokens, then of those from each edge on (`_from_64`: up to the next edge):
    `sampler_gap`, the mean of absolute gaps (nats), and `sampler_ratio`, the mean of scored /
    told probability. A depth without tokens has no numbers.

    `gap`: scored minus told log-probability `[tokens]`, float64. `depth` `[tokens]`.
    """
    found = _numbers(gap, "")
    for low, high in pairwise(EDGES):
        found |= _numbers(gap[(depth >= low) & (depth < high)], f"_from_{low}")
    return found


def _numbers(gap: torch.Tensor, where: str) -> dict[str, float]:
    if not len(gap):
        return {}
    ratio = gap.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp().mean()
    return {f"sampler_gap{where}": float(gap.abs().mean()), f"sampler_ratio{where}": float(ratio)}
