"""Group advantages (GRPO, 2402.03300; scaling discussed in Dr. GRPO, 2503.20783).

A *dead group* is one whose rewards are all equal (exactly, or within a stated tolerance of the whole
group): it has no gradient. It is counted and recorded with its reason, never silently trained on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Scaling = Literal["group", "none"]
SCALE_FLOOR = 1e-6


@dataclass(frozen=True, kw_only=True)
class GroupAdvantages:
    """`values`: one advantage a reward, `None` where the reward is missing. `dead`: the reason, if it is."""

    values: tuple[float | None, ...]
    dead: str | None


def group_advantages(
    rewards: Sequence[float | None], scaling: Scaling = "group", tolerance: float = 0.0
) -> GroupAdvantages:
    """Rewards minus their group mean; `scaling` = "group" divides by the group's standard deviation.

    Missing rewards (`None`, an errored run) take no part. A group with fewer than two rewards is dead.
    Raises `ValueError` for NaN or infinite rewards.
    """
    known = np.array([reward for reward in rewards if reward is not None], dtype=np.float64)
    if not np.isfinite(known).all():
        raise ValueError(f"a reward is not a finite number: {list(rewards)}")
    if (reason := _dead(known, tolerance)) is not None:
        return GroupAdvantages(values=tuple(None if r is None else 0.0 for r in rewards), dead=reason)
    scale = known.std() + SCALE_FLOOR if scaling == "group" else 1.0
    mean = known.mean()
    return GroupAdvantages(
        values=tuple(None if reward is None else float((reward - mean) / scale) for reward in rewards), dead=None
    )


def _dead(known: np.ndarray, tolerance: float) -> str | None:
    if len(known) < 2:
        return "fewer than two rewards"
    if known.max() - known.min() > tolerance:
        return None
    return f"all {len(known)} rewards equal {known[0]:g}"
