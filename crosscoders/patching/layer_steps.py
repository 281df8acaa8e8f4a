"""Which layers and places a deep network is patched at, in what order, and what that
costs. Light at import: no torch.
"""

import re
from collections.abc import Sequence
from typing import Final

from crosscoders.patching.results import Change

MOST_STEPS: Final = 8
POSITIONS: Final = ("deciding", "earlier", "all")
BEHIND = ("unembed", "final_norm")  # pieces that stand behind all layers
RESIDUAL_BEHIND = "hook_resid_post"


def steps(layers: int) -> tuple[int, ...]:
    """The layers that are looked at first: evenly spaced, the last among them."""
    stride = -(-layers // MOST_STEPS)
    return tuple(range(layers - 1, -1, -stride))[::-1]


def _residual(layer: int) -> str:
    return f"blocks.{layer}.hook_resid_post"


def coarse_changes(layers: Sequence[int]) -> list[Change]:
    """The residuals behind these layers, into before."""
    return [
        Change(place=_residual(layer), positions=where, direction="into-before")
        for layer in layers
        for where in ("deciding", "all")
    ]


def fine_changes(layer: int) -> list[Change]:
    """At a layer: what its attention and its MLP add, into before; and its residual, at
    all kinds of positions and both ways, but what `coarse_changes` has.
    """
    changes = [
        Change(place=f"blocks.{layer}.hook_{part}", positions=where, direction="into-before")
        for part in ("attn_out", "mlp_out")
        for where in ("deciding", "all")
    ]
    residual = _residual(layer)
    changes.append(Change(place=residual, positions="earlier", direction="into-before"))
    return changes + [
        Change(place=residual, positions=where, direction="into-after") for where in POSITIONS
    ]


def untouched(change: Change, layers: int) -> int:
    """How many of the first layers give the same with the change as without."""
    if change.positions:
        match = re.fullmatch(r"blocks\.(\d+)\.(\w+)", change.place)
        if match is None:
            return 0
        return int(match[1]) + (match[2] == RESIDUAL_BEHIND)
    return min(_before_piece(part, layers) for part in change.place.split("+"))


def _before_piece(piece: str, layers: int) -> int:
    if piece in BEHIND:
        return layers
    match = re.match(r"blocks\.(\d+)\.", piece)
    return int(match[1]) if match else 0


def passes(layers: int) -> float:
    """About how many passes over the decisions both maps take, in whole networks."""
    ends = steps(layers)
    stride = ends[-1] - ends[-2] if len(ends) > 1 else 1
    changes = [*coarse_changes(ends), *fine_changes(layers // 2)]
    changes += 2 * (stride - 1) * coarse_changes([layers // 2])
    patched = sum(1 - untouched(change, layers) / layers for change in changes)
    grafted = sum(2 * (layers - 1 - end + stride) / layers for end in ends)
    outside = 4 + 2 / layers  # the embedding twice; the output
    inside = 2 * 2 * stride * 0.5  # attention and MLP of a group's layers, both ways
    own = 2 * 5 + 2 * 3 * 0.7  # both models in each of five readings, and outliers in three
    return patched + grafted + outside + inside + own
