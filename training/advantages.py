"""Group advantages (GRPO, 2402.03300; scaling discussed in Dr. GRPO,
2503.20783, and REINFORCE++, 2501.03262).

A *dead group* is one whose rewards are all equal (exactly, or within a stated
tolerance of the whole group): it has no gradient. It is counted and recorded
with its reason, never silently trained on.

Scaling `batch` divides by the standard deviation of the step's centred rewards
over *living* groups only: with dead groups in it, the more of them there are
the larger the advantages of the others would become.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from forensics.errors import UserError
from forensics.plugins import load_plugin
from forensics.records import Trajectory

if TYPE_CHECKING:
    from training.recipe import GrpoSection

Scaling = Literal["group", "batch", "none"]
SCALE_FLOOR = 1e-6


@dataclass(frozen=True, kw_only=True)
class Group:
    """One group: its attempts, their named rewards (`None`: missing) and
    totals.

    `missing`: for each attempt without a total, by its place in the group, why
    it has none.
    """

    task: str
    trajectories: tuple[Trajectory, ...]
    components: tuple[dict[str, float | None], ...]
    totals: tuple[float | None, ...]
    missing: Mapping[int, str] = field(default_factory=dict)


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


def group_mean(groups: Sequence[Group], config: "GrpoSection") -> list[GroupAdvantages]:
    """The estimator `group`."""
    totals = [group.totals for group in groups]
    return step_advantages(totals, config.scaling, config.dead_tolerance)


AdvantageEstimator = Callable[[Sequence[Group], "GrpoSection"], Sequence[GroupAdvantages]]


def estimate_advantages(groups: Sequence[Group], config: "GrpoSection") -> list[GroupAdvantages]:
    """Advantages of a step by the estimator that the recipe names (an entry
    point of `forensics.advantages`). Raises `UserError` where it gives none for
    a run with a reward, or one that is not finite.
    """
    estimator: AdvantageEstimator = load_plugin("forensics.advantages", config.advantages)
    found = list(estimator(groups, config))
    given = [[value is not None and np.isfinite(value) for value in one.values] for one in found]
    if given != [[total is not None for total in group.totals] for group in groups]:
        raise UserError(
            f"the advantage estimator '{config.advantages}' must give one finite number for each"
            " run that has a reward, and None for each that has none"
        )
    return found


def _dead(known: np.ndarray, tolerance: float) -> str | None:
    if len(known) < 2:
        return "fewer than two rewards"
    if known.max() - known.min() > tolerance:
        return None
    return f"all {len(known)} rewards equal {known[0]:g}"
