"""A group of attempts with its rewards, and what an advantage estimator is.

An estimator is a function from the groups of a step to one `GroupAdvantages` each,
found by its name under the entry points `forensics.advantages`; with keys of its own
it is an `Estimator`. Ours stand in `training.advantages` and `training.estimators`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from forensics.plugins import load_plugin
from forensics.records import Trajectory
from training.sections import Section


@dataclass(frozen=True, kw_only=True)
class Group:
    """One group: its attempts, their named rewards (`None`: missing) and
    totals.

    `missing`: for each attempt without a total, by its place in the group, why
    it has none. `weights`: of each named reward in the total.
    """

    task: str
    trajectories: tuple[Trajectory, ...]
    components: tuple[dict[str, float | None], ...]
    totals: tuple[float | None, ...]
    missing: Mapping[int, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """How many tokens the policy drew in each attempt (`None`: not recorded)."""
        return tuple(run.sampled_tokens for run in self.trajectories)


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


AdvantageEstimator = Callable[[Sequence[Group], Any], Sequence[GroupAdvantages]]


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """An estimator that says which keys under `[grpo]` it reads.

    `estimate`: from the groups and that section. `config`: a class below
    `GrpoSection` with keys of its own (`None`: it has none). `idle`: keys of
    `GrpoSection` that it does not read, which are refused beside it.
    """

    estimate: AdvantageEstimator
    config: type[Section] | None = None
    idle: tuple[str, ...] = ()


@cache
def estimator_named(name: str) -> Estimator:
    """The installed estimator of this name. Raises `UserError` with the known ones."""
    found: Estimator | AdvantageEstimator = load_plugin("forensics.advantages", name)
    return found if isinstance(found, Estimator) else Estimator(estimate=found)
