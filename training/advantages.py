"""Groups of a step: their advantages (GRPO, 2402.03300; scaling discussed in Dr.
GRPO, 2503.20783, and REINFORCE++, 2501.03262), which are kept, which are dropped
and why, and where the next prompts come from.

1. *Dead* groups are those whose rewards are all equal (exactly, or within a stated
   tolerance of the whole group): they carry no gradient. They are counted and
   recorded with their reason, never silently trained on. With `refill` rounds,
   further prompts are drawn until enough groups live or the rounds are used up
   (dynamic sampling, 2503.14476, but bounded).
2. Scaling `batch` divides by the standard deviation of the step's centred rewards
   over *living* groups only: with dead groups in it, the more of them there are
   the larger the advantages of the others would become.
3. The *variance filter* (2504.20073) drops a group whose reward spread lies
   below `m - 1.28 s` of the running mean and standard deviation over groups,
   after a warm-up, and never more than half of a step's living groups.
4. A *curriculum* says which prompts come next. The prioritised one draws from a
   fixed pool with weight `p (1 - p)` of each prompt's success so far
   (smoothed), so that prompts that can still teach come up more often.

Dropped groups stay in the record with their reason. All state is plain data,
saved and restored with the run.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from forensics.errors import UserError
from forensics.protocols import Environment
from training.groups import Group as Group, GroupAdvantages as GroupAdvantages, estimator_named
from training.recipe import GrpoSection

Scaling = Literal["group", "batch", "none"]
SCALE_FLOOR = 1e-6


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


def group_mean(groups: Sequence[Group], config: GrpoSection) -> list[GroupAdvantages]:
    """The estimator `group`."""
    totals = [group.totals for group in groups]
    return step_advantages(totals, config.scaling, config.dead_tolerance)


def estimate_advantages(groups: Sequence[Group], config: GrpoSection) -> list[GroupAdvantages]:
    """Advantages of a step by the estimator that the recipe names (an entry
    point of `forensics.advantages`). Raises `UserError` where it gives none for
    a run with a reward, or one that is not finite.
    """
    found = list(estimator_named(config.advantages).estimate(groups, config))
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


FILTER_BELOW = 1.28  # standard deviations under the running mean
FILTER_WARMUP = 20  # groups seen before the filter says anything
FILTER_KEEPS = 0.5  # at least this share of a step's living groups stays


@dataclass(frozen=True, kw_only=True)
class TrainedGroup:
    """A group with its advantages; `dropped` is the reason why it is not trained on."""

    played: Group
    advantages: GroupAdvantages
    dropped: str | None


@dataclass
class VarianceFilter:
    """Running mean and variance (Welford) of the reward spread of living groups."""

    seen: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def judge(self, spreads: Sequence[float | None]) -> list[str | None]:
        """A reason for each group that falls out (`None` spreads are left
        alone); then learn from all of them.
        """
        known = [i for i, spread in enumerate(spreads) if spread is not None]
        line = self.mean - FILTER_BELOW * self.deviation
        below = [i for i in known if self.seen >= FILTER_WARMUP and (spreads[i] or 0.0) < line]
        below.sort(key=lambda i: (spreads[i] or 0.0, i))
        chosen = below[: int(len(known) * (1 - FILTER_KEEPS))]
        for i in known:
            self.seen += 1
            step = (spreads[i] or 0.0) - self.mean
            self.mean += step / self.seen
            self.squares += step * ((spreads[i] or 0.0) - self.mean)
        return [
            (
                f"reward spread {spreads[i]:.3g} below the running line {line:.3g}"
                if i in chosen
                else None
            )
            for i in range(len(spreads))
        ]

    @property
    def deviation(self) -> float:
        return float(np.sqrt(self.squares / self.seen)) if self.seen else 0.0


class Fresh:
    """New tasks at every step. Nothing of it needs to be kept."""

    def draw(
        self, environment: Environment, number: int, root: int, drawn: Collection[str] = ()
    ) -> tuple[str, ...]:
        """`number` different training tasks, none of those `drawn`; fewer where
        there are no more of them. `root` is the seed of this draw.
        """
        seed = root % 10**9
        new = _others(environment.tasks("train", number, seed), drawn)
        if len(new) < number:
            rest = _others(environment.tasks("train", number + len(drawn), seed), {*drawn, *new})
            order = np.random.default_rng([root, 3]).permutation(len(rest))
            new += [rest[i] for i in order[: number - len(new)]]
        return tuple(new)

    def learn(self, groups: Sequence[Group]) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


@dataclass
class Prioritised:
    """A fixed pool of `size` tasks (of `seed`), drawn without replacement by
    what they can still teach. `state` is plain data that a resumed run gives
    back to `restore`.

    Outcomes must lie in [0, 1] (`UserError` otherwise): they are read as shares
    of success.
    """

    size: int
    seed: int
    results: dict[str, tuple[float, int]] = field(
        default_factory=dict
    )  # sum of scores, number of attempts

    def draw(
        self, environment: Environment, number: int, root: int, drawn: Collection[str] = ()
    ) -> tuple[str, ...]:
        pool = _others(environment.tasks("train", max(self.size, number), self.seed), drawn)
        if not pool:
            return ()
        weights = np.array([self._weight(task) for task in pool])
        chosen = np.random.default_rng([root, 2]).choice(
            len(pool), min(number, len(pool)), replace=False, p=weights / weights.sum()
        )
        return tuple(pool[int(i)] for i in chosen)

    def _weight(self, task: str) -> float:
        total, number = self.results.get(task, (0.0, 0))
        share = (total + 1) / (number + 2)
        return share * (1 - share)

    def learn(self, groups: Sequence[Group]) -> None:
        for group in groups:
            total, number = self.results.get(group.task, (0.0, 0))
            scores = [t.outcome for t in group.trajectories if t.outcome is not None]
            if wrong := [score for score in scores if not 0 <= score <= 1]:
                raise UserError(
                    f"the prioritised curriculum needs outcomes in 0 to 1, and task {group.task}"
                    f' gave {wrong[0]:g}; rescale the outcome, or set curriculum = "fresh" under'
                    " [grpo]"
                )
            self.results[group.task] = (total + sum(scores), number + len(scores))

    def state(self) -> dict[str, Any]:
        return {task: list(result) for task, result in sorted(self.results.items())}

    def restore(self, state: dict[str, Any]) -> None:
        self.results = {
            task: (float(total), int(number)) for task, (total, number) in state.items()
        }


def _others(tasks: Sequence[str], drawn: Collection[str]) -> list[str]:
    """The different tasks that are not among those `drawn`, in order."""
    return [task for task in dict.fromkeys(tasks) if task not in drawn]


Curriculum = Fresh | Prioritised


def select_groups(
    groups: Sequence[Group],
    advantages: Sequence[GroupAdvantages],
    variance: VarianceFilter | None,
    keep_dead: bool = False,
) -> list[TrainedGroup]:
    """Which groups are trained on: the living ones that the filter, where there
    is one, lets through. With `keep_dead` all that have two rewards: a dead
    group still has a KL and an entropy term.
    """
    spreads = [None if found.dead else found.spread for found in advantages]
    reasons = variance.judge(spreads) if variance else [None] * len(groups)
    chosen = []
    for group, found, reason in zip(groups, advantages, reasons, strict=True):
        few = sum(total is not None for total in group.totals) < 2
        dropped = None if keep_dead and not few else found.dead or reason
        if dropped and few and group.missing:
            dropped += f": {group.missing[min(group.missing)]}"
        chosen.append(TrainedGroup(played=group, advantages=found, dropped=dropped))
    return chosen
