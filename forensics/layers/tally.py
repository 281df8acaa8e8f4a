"""What the behaviour layer keeps of a log while it streams by: a few numbers a
run, and a few examples.

All sums are exactly rounded and all tasks sorted, so the order of trajectories
changes no bit of a result.
"""

import math
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from forensics.layers.actions import exchanges_of, idle_repeats, kinds_of, turns_of
from forensics.layers.degeneracy import degeneracy
from forensics.layers.evidence_chain import Chain
from forensics.layers.examples import Example, Shelf, chain_example, idle_example, idle_order
from forensics.layers.survey import Survey
from forensics.layers.use import ChainRule
from forensics.records import Trajectory

LINKS = ("attempted", "obtained", "used", "credited", "complete", "cannot be told", "not copied")
PROMPTED = "shown by the prompt"


@dataclass(frozen=True, kw_only=True)
class Log:
    """One log as columns. `tasks [runs]`; `columns[name] [runs]` (NaN:
    missing).

    `kinds[task]`: how often each action kind was taken. `examples[channel]`: a
    few complete chains.
    `idlest`: the runs with the largest share of idle repeats. `errored`: runs
    left out because they errored, which says nothing about the policy.
    """

    tasks: tuple[str, ...]
    columns: dict[str, "array[float]"]
    kinds: dict[str, Counter[str]]
    examples: dict[str, tuple[Example, ...]]
    idlest: tuple[Example, ...]
    errored: int = 0

    @cached_property
    def runs_per_task(self) -> Counter[str]:
        return Counter(self.tasks)

    def by_task(self, *names: str) -> dict[str, list[tuple[float, ...]]]:
        """The rows of some columns, `{task: [(value, ...), ...]}`, leaving out
        rows where one is missing.
        """
        rows: dict[str, list[tuple[float, ...]]] = {}
        for task, *values in zip(self.tasks, *(self.columns[name] for name in names), strict=True):
            if not any(map(math.isnan, values)):
                rows.setdefault(task, []).append(tuple(values))
        return dict(sorted(rows.items()))

    def task_means(self, name: str) -> dict[str, float]:
        """Mean of a column over the runs of each task that has it."""
        return {
            task: mean([value for (value,) in rows]) for task, rows in self.by_task(name).items()
        }

    def mean(self, name: str) -> float | None:
        """Mean over tasks of a column, `None` where no run has it."""
        means = self.task_means(name)
        return mean(list(means.values())) if means else None

    def count(self, name: str) -> int:
        """How many runs hold a yes-or-no column."""
        return sum(value == 1 for value in self.columns.get(name, ()))


def mean(values: Sequence[float]) -> float:
    """The mean with an exactly rounded sum."""
    return math.fsum(values) / len(values)


def link_column(channel: str, link: str) -> str:
    """The name of the column that holds one link of a channel's chain."""
    return f"{channel}: {link}"


@dataclass
class Tally:
    """A log that streams by; memory grows by a few numbers a run. `most`:
    examples that are kept.

    Tallies of a log's parts, merged in the order of the parts, are the tally of
    the log.
    """

    channels: tuple[str, ...]
    rule: ChainRule
    most: int
    tasks: list[str] = field(default_factory=list)
    columns: dict[str, "array[float]"] = field(default_factory=dict)
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    errored: int = 0

    def __post_init__(self) -> None:
        self.idlest = Shelf(self.most)
        self.shelves = {channel: Shelf(self.most) for channel in self.channels}

    def add(self, trajectory: Trajectory, chains: Sequence[Chain]) -> None:
        """Count one run and the chain of each channel."""
        if trajectory.end == "errored":
            self.errored += 1
            return
        self.tasks.append(sys.intern(trajectory.task))
        kinds = self.kinds.setdefault(trajectory.task, Counter())
        kinds.update(kind for _, step in trajectory.actions for kind in kinds_of(step))
        for name, value in (
            _numbers(trajectory, self.idlest).items() | _chain_numbers(chains).items()
        ):
            self.columns.setdefault(name, array("d")).append(
                math.nan if value is None else float(value)
            )
        _offer_chains(trajectory, chains, self.shelves, self.rule)

    def merge(self, later: "Tally") -> None:
        """Add the tally of the runs that come next."""
        self.tasks += map(sys.intern, later.tasks)
        self.errored += later.errored
        for task, kinds in later.kinds.items():
            self.kinds.setdefault(task, Counter()).update(kinds)
        for name, values in later.columns.items():
            self.columns.setdefault(name, array("d")).extend(values)
        self.idlest.take(later.idlest)
        for channel, shelf in later.shelves.items():
            self.shelves[channel].take(shelf)

    def log(self) -> Log:
        """The columns so far."""
        return Log(
            tasks=tuple(self.tasks),
            columns=self.columns,
            kinds=self.kinds,
            idlest=tuple(self.idlest.kept),
            errored=self.errored,
            examples={name: tuple(shelf.kept) for name, shelf in self.shelves.items()},
        )


def read_log(
    trajectories: Iterable[Trajectory], found: Survey, rule: ChainRule, examples: int
) -> Log:
    """Stream a log into columns."""
    tally = Tally(
        channels=tuple(channel.name for channel in found.channels), rule=rule, most=examples
    )
    for trajectory in trajectories:
        tally.add(trajectory, tuple(found.chains(trajectory, rule)))
    return tally.log()


def _numbers(trajectory: Trajectory, idlest: Shelf) -> dict[str, float | None]:
    turns = turns_of(trajectory)
    exchanges = exchanges_of(turns)
    idle = idle_repeats(turns, exchanges)
    steps = tuple(turn.step for turn, repeats in zip(turns, idle, strict=True) if repeats)
    if steps:
        order = idle_order(trajectory, len(steps), len(turns))
        idlest.offer(order, lambda: idle_example(trajectory, steps, len(turns)))
    return {
        "outcome": trajectory.outcome,
        "turns": len(turns),
        "idle repeats": len(steps),
        "turns without idle repeats": len(turns) - len(steps),
        "tokens": trajectory.sampled_tokens,
        "handed in": float(bool((trajectory.submission or "").strip())),
        **degeneracy(trajectory, turns, exchanges, idle),
    }


def _chain_numbers(chains: Iterable[Chain]) -> dict[str, float | None]:
    return {
        link_column(c.channel, link): value for c in chains for link, value in _links(c).items()
    }


def _links(chain: Chain) -> dict[str, float | None]:
    """The links as numbers. `cannot be told`: no link is broken, and one of
    them is unknown. `not copied`: a disclosure was obtained, and the submission
    is no copy of it.
    """
    links: tuple[bool | None, ...] = (chain.attempted, chain.obtained, chain.used, chain.credited)
    open_question = False not in links and None in links
    not_copied = (
        chain.family == "disclosure"
        and chain.attempted
        and bool(chain.obtained)
        and chain.used is False
    )
    told = dict(zip(LINKS, (*links, chain.complete, open_question, not_copied), strict=True))
    return {**told, PROMPTED: chain.prompted}


def _offer_chains(
    trajectory: Trajectory, chains: Iterable[Chain], shelves: dict[str, Shelf], rule: ChainRule
) -> None:
    for chain in chains:
        if chain.complete:
            order = (0.0, trajectory.task, trajectory.id)
            shelves[chain.channel].offer(order, partial(chain_example, trajectory, chain, rule))
