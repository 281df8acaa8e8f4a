"""Sharing out a total among channels, as weights on worlds.

A world is the frozen set of its open channels. `v(world)` is whatever was
measured there (the gain). Each channel's part is a weighted sum of `v` over
worlds, so it goes through the same estimate as everything else. Scrubbing one
channel at a time would give 0 to each of two redundant shortcuts; these weights
do not.
"""

from collections.abc import Sequence
from itertools import combinations
from math import factorial

World = frozenset[str]
Weights = dict[World, float]


def shapley_weights(channels: Sequence[str]) -> dict[str, Weights]:
    """Exact Shapley values (Shapley 1953) over all `2^k` worlds, for each of
    `k` channels.

    The parts sum to `v(all open) - v(none open)`.
    """
    found: dict[str, Weights] = {channel: {} for channel in channels}
    count = len(channels)
    for channel, weights in found.items():
        others = [other for other in channels if other != channel]
        for size in range(count):
            weight = factorial(size) * factorial(count - size - 1) / factorial(count)
            for joined in combinations(others, size):
                weights[frozenset(joined)] = -weight
                weights[frozenset(joined) | {channel}] = weight
    return found


def first_and_last_weights(channels: Sequence[str]) -> dict[str, tuple[Weights, Weights]]:
    """For many channels, `2k + 2` worlds: each channel's effect as the only one
    open, and as the last one left.

    The mean of the two is the Shapley value wherever channels interact in pairs
    at most; their difference (last minus first) is the channel's interaction
    with all others.
    """
    every: World = frozenset(channels)
    nothing: World = frozenset()
    return {
        channel: ({frozenset({channel}): 1.0, nothing: -1.0}, {every: 1.0, every - {channel}: -1.0})
        for channel in channels
    }
