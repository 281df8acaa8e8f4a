"""Group advantages (GRPO, 2402.03300; scaling discussed in Dr. GRPO,
2503.20783, and REINFORCE++, 2501.03262).

A *dead group* is one whose rewards are all equal (exactly, or within a stated
tolerance of the whole group): it has no gradient. It is counted and recorded
with its reason, never silently trained on.

Scaling `batch` divides by the standard deviation of the step's centred rewards
over *living* groups only: with dead groups in it, the more of them there are
the larger the advantages of the others would become.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

Scaling = Literal["group", "batch", "none"]
SCALE_FLOOR = 1e-6


@dataclass(frozen=True, kw_only=True)
class GroupAdvantages:
    """`values`: one advantage a reward, `None` where the reward is missing.
    `dead`: the reason, if it is.

    `spread` is the population standard deviation of the known rewards (`None`:
    fewer than two).
    """

    values: tuple[float | None, ...]
    dead: str | None
    spread: float | None = None


def group_advantages(
    rewards: Sequence[float | None], scaling: Scaling = "group", tolerance: float = 0.0
) -> GroupAdvantages:
    """Rewards minus their group mean; `scaling` = "group" divides by the
    group's standard deviation.

    Missing rewards (`None`, an errored run) take no part. A group with fewer
    than two rewards is dead. Raises `ValueError` for NaN or infinite rewards.
    """
    known = np.array([reward for reward in rewards if reward is not None], dtype=np.float64)
    if not np.isfinite(known).all():
        raise ValueError(f"a reward is not a finite number: {list(rewards)}")
    spread = float(known.std()) if len(known) > 1 else None
    if (reason := _dead(known, tolerance)) is not None:
        return GroupAdvantages(
            values=tuple(None if r is None else 0.0 for r in rewards), dead=reason, spread=spread
        )
    scale = known.std() + SCALE_FLOOR if scaling == "group" else 1.0
    mean = known.mean()
    values = tuple(None if reward is None else float((reward - mean) / scale) for reward in rewards)
    return GroupAdvantages(values=values, dead=None, spread=spread)


def step_advantages(
    groups: Sequence[Sequence[float | None]], scaling: Scaling = "group", tolerance: float = 0.0
) -> list[GroupAdvantages]:
    """Advantages of all groups of a step; only scaling "batch" looks beyond a group."""
    found = [group_advantages(rewards, scaling, tolerance) for rewards in groups]
    if scaling != "batch":
        return found
    centred = [
        value
        for group in found
        if group.dead is None
        for value in group.values
        if value is not None
    ]
    scale = float(np.std(centred)) + SCALE_FLOOR if centred else 1.0
    return [
        replace(
            group, values=tuple(None if value is None else value / scale for value in group.values)
        )
        for group in found
    ]


def _dead(known: np.ndarray, tolerance: float) -> str | None:
    if len(known) < 2:
        return "fewer than two rewards"
    if known.max() - known.min() > tolerance:
        return None
    return f"all {len(known)} rewards equal {known[0]:g}"
