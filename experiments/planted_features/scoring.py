"""How well called directions match true ones: recall and false discoveries, as k of n."""

from dataclasses import dataclass

import torch

MATCH = 0.9  # cosine


@dataclass(frozen=True, kw_only=True)
class Score:
    """`found` of `of` true features; `false` of `called` directions match none.
    `best`: cosine of each true feature with the called direction nearest to it.
    """

    found: int
    of: int
    called: int
    false: int
    best: tuple[float, ...] = ()


def judge(called: torch.Tensor, truth: torch.Tensor) -> Score:
    """`called [called, width]` and `truth [features, width]` are unit
    directions. The sign counts.
    """
    cosines = called @ truth.T  # [called, features]
    if not called.numel() or not truth.numel():
        return Score(
            found=0, of=len(truth), called=len(called), false=len(called), best=(0.0,) * len(truth)
        )
    return Score(
        found=int((cosines.amax(0) >= MATCH).sum()),
        of=len(truth),
        called=len(called),
        false=int((cosines.amax(1) < MATCH).sum()),
        best=tuple(round(value, 3) for value in cosines.amax(0).tolist()),
    )
