"""Groups of a step: which are kept, which are dropped and why, and where the next prompts come from.

1. *Dead* groups (all rewards equal) carry no gradient; with `refill` rounds, further prompts are drawn until
   enough groups live or the rounds are used up (dynamic sampling, 2503.14476, but bounded).
2. The *variance filter* (2504.20073) drops a group whose reward spread lies below `m - 1.28 s` of the running
   mean and standard deviation over groups, after a warm-up, and never more than half of a step's living groups.
3. A *curriculum* says which prompts come next. The prioritised one draws from a fixed pool with weight
   `p (1 - p)` of each prompt's success so far (smoothed), so that prompts that can still teach come up more often.

Dropped groups stay in the record with their reason. All state is plain data, saved and restored with the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from forensics.protocols import Environment
from forensics.records import Trajectory
from training.advantages import GroupAdvantages

FILTER_BELOW = 1.28  # standard deviations under the running mean
FILTER_WARMUP = 20  # groups seen before the filter says anything
FILTER_KEEPS = 0.5  # at least this share of a step's living groups stays


@dataclass(frozen=True, kw_only=True)
class Played:
    """One group: its attempts, their named rewards (`None`: missing) and totals."""

    task: str
    trajectories: tuple[Trajectory, ...]
    components: tuple[dict[str, float | None], ...]
    totals: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A group with its advantages; `dropped` is the reason why it is not trained on."""

    played: Played
    advantages: GroupAdvantages
    dropped: str | None


@dataclass
class VarianceFilter:
    """Running mean and variance (Welford) of the reward spread of living groups."""

    seen: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def judge(self, spreads: Sequence[float | None]) -> list[str | None]:
        """A reason for each group that falls out (`None` spreads are left alone); then learn from all of them."""
        known = [i for i, spread in enumerate(spreads) if spread is not None]
        line = self.mean - FILTER_BELOW * self.deviation
        below = [i for i in known if self.seen >= FILTER_WARMUP and (spreads[i] or 0.0) < line]
        below.sort(key=lambda i: (spreads[i] or 0.0, i))
        chosen = below[: int(len(known) * (1 - FILTER_KEEPS))]
        for i in known:
            self._learn(spreads[i] or 0.0)
        return [
            f"reward spread {spreads[i]:.3g} below the running line {line:.3g}" if i in chosen else None
            for i in range(len(spreads))
        ]

    @property
    def deviation(self) -> float:
        return float(np.sqrt(self.squares / self.seen)) if self.seen else 0.0

    def _learn(self, spread: float) -> None:
        self.seen += 1
        step = spread - self.mean
        self.mean += step / self.seen
        self.squares += step * (spread - self.mean)


class Curriculum(Protocol):
    """Where prompts come from. `state` is plain data that a resumed run gives back to `restore`."""

    def draw(self, environment: Environment, number: int, root: int) -> tuple[str, ...]:
        """`number` training tasks; `root` is the seed of this draw."""
        ...

    def learn(self, groups: Sequence[Played]) -> None:
        """See what the groups of a step brought."""
        ...

    def state(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...


class Fresh:
    """New tasks at every step."""

    def draw(self, environment: Environment, number: int, root: int) -> tuple[str, ...]:
        return environment.tasks("train", number, root % 10**9)

    def learn(self, groups: Sequence[Played]) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


@dataclass
class Prioritised:
    """A fixed pool of `size` tasks (of `seed`), drawn without replacement by what they can still teach."""

    size: int
    seed: int
    results: dict[str, tuple[float, int]] = field(default_factory=dict)  # sum of scores, number of attempts

    def draw(self, environment: Environment, number: int, root: int) -> tuple[str, ...]:
        pool = environment.tasks("train", max(self.size, number), self.seed)
        weights = np.array([self._weight(task) for task in pool])
        chosen = np.random.default_rng([root, 2]).choice(len(pool), number, replace=False, p=weights / weights.sum())
        return tuple(pool[int(i)] for i in chosen)

    def _weight(self, task: str) -> float:
        total, number = self.results.get(task, (0.0, 0))
        share = (total + 1) / (number + 2)
        return share * (1 - share)

    def learn(self, groups: Sequence[Played]) -> None:
        for group in groups:
            total, number = self.results.get(group.task, (0.0, 0))
            scores = [t.outcome for t in group.trajectories if t.outcome is not None]
            self.results[group.task] = (total + sum(scores), number + len(scores))

    def state(self) -> dict[str, Any]:
        return {task: list(result) for task, result in sorted(self.results.items())}

    def restore(self, state: dict[str, Any]) -> None:
        self.results = {task: (float(total), int(number)) for task, (total, number) in state.items()}


def curriculum(name: Literal["fresh", "prioritised"], pool: int, seed: int) -> Curriculum:
    """The curriculum that a recipe names."""
    return Fresh() if name == "fresh" else Prioritised(size=pool, seed=seed)


def judge(
    groups: Sequence[Played], advantages: Sequence[GroupAdvantages], variance: VarianceFilter | None
) -> list[Judged]:
    """Which groups are trained on: the living ones that the filter, where there is one, lets through."""
    spreads = [None if found.dead else found.spread for found in advantages]
    reasons = variance.judge(spreads) if variance else [None] * len(groups)
    return [
        Judged(played=group, advantages=found, dropped=found.dead or reason)
        for group, found, reason in zip(groups, advantages, reasons, strict=True)
    ]
