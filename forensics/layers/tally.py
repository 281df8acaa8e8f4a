"""What the behaviour layer keeps of a log while it streams by: a few numbers a
run, and a few runs worth showing, as text spans.

All sums are exactly rounded, all tasks and examples sorted, so the order of
trajectories changes no bit of a result.
"""

import math
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from forensics.errors import MissingInput
from forensics.layers.actions import Acted, acted_in, kinds_of
from forensics.layers.degeneracy import degeneracy
from forensics.layers.evidence_chain import Survey, in_prompt
from forensics.layers.loops import Loop, loop_in, share_looped
from forensics.layers.text_words import Gram, placed_words
from forensics.layers.use import ChainRule, new_lines
from forensics.phrases import plural, printable
from forensics.records import Span, Spans, Trajectory
from forensics.records.finding import Finding

LINKS = ("attempted", "obtained", "used", "credited", "cannot be told", "not copied")
PROMPTED = "shown by the prompt"

Order = tuple[float, str, str]


class Example(NamedTuple):
    """A run to look at, and the step to look at first; smaller `order` comes first."""

    order: Order
    step: int
    spans: Spans


class LoopedRun(NamedTuple):
    """A run that loops, and its longest loop."""

    trajectory: str
    task: str
    policy: str
    file: str | None
    loop: Loop


class TopExamples(list[Example]):
    """The `most` examples that come first in their order."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def offer(self, order: Order, make: Callable[[], Example]) -> None:
        """Keep the example if it comes before one that is kept; it is built only then."""
        if len(self) < self.most or (self and order < self[-1].order):
            self.merge([make()])

    def merge(self, others: Iterable[Example]) -> None:
        """Keep the first of these and those that were kept."""
        self[:] = sorted([*self, *others], key=lambda example: example.order)[: self.most]


def _column() -> "array[float]":  # by its name, so that a log travels between processes
    return array("d")


@dataclass(kw_only=True)
class Log:
    """A log as columns while it streams by; memory grows by a few numbers a run.
    `tasks [runs]`; `columns[name] [runs]` (NaN: missing), empty for any name where no run counts.

    `most`: examples that are kept. `kinds[task]`: how often each action kind was
    taken. `examples[channel]`: a few complete chains. `idlest`: the runs with the
    largest share of idle repeats. `loops`: every run that loops.
    `errored`: runs left out because they errored, which says nothing about the policy.
    Logs of parts, merged in the order of the parts, are the log of the whole.
    """

    rule: ChainRule
    most: int
    tasks: list[str] = field(default_factory=list)
    columns: defaultdict[str, "array[float]"] = field(default_factory=lambda: defaultdict(_column))
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    examples: dict[str, TopExamples] = field(default_factory=dict)
    loops: list[LoopedRun] = field(default_factory=list)
    errored: int = 0

    def __post_init__(self) -> None:
        self.idlest = TopExamples(self.most)

    def add(self, trajectory: Trajectory, chains: Iterable[Finding]) -> None:
        """Count one run and the chain of each channel."""
        if trajectory.end == "errored":
            self.errored += 1
            return
        self.tasks.append(sys.intern(trajectory.task))
        kinds = self.kinds.setdefault(trajectory.task, Counter())
        kinds.update(kind for _, step in trajectory.actions for kind in kinds_of(step))
        acted = acted_in(trajectory)
        loop = loop_in(acted.turns)
        if loop is not None:
            run = (trajectory.id, trajectory.task, trajectory.policy, trajectory.file)
            self.loops.append(LoopedRun(*run, loop))
        numbers = _numbers(trajectory, acted, self.idlest, self.rule.win)
        numbers["loop"] = share_looped(loop, acted.turns)
        for chain in chains:
            numbers |= _links(trajectory, chain)
            if chain.complete:
                self._examples_of(chain.channel).offer(
                    (0.0, trajectory.task, trajectory.id),
                    partial(chain_example, trajectory, chain, self.rule),
                )
        for name, value in numbers.items():
            self.columns[name].append(math.nan if value is None else float(value))

    def merge(self, later: "Log") -> None:
        """Add the runs that come next."""
        self.tasks += map(sys.intern, later.tasks)
        self.errored += later.errored
        self.loops += later.loops
        for task, kinds in later.kinds.items():
            self.kinds.setdefault(task, Counter()).update(kinds)
        for name, values in later.columns.items():
            self.columns[name].extend(values)
        self.idlest.merge(later.idlest)
        for channel, examples in later.examples.items():
            self._examples_of(channel).merge(examples)

    def require_runs(self, side: str) -> None:
        """Raises `MissingInput` where every run errored."""
        if self.errored and not self.tasks:
            raise MissingInput(
                f"Each of the {plural(self.errored, 'run')} of `{side}` errored, so nothing is"
                " known of what it does.",
                "Find out why they errored and run them again.",
            )

    def _examples_of(self, channel: str) -> TopExamples:
        return self.examples.setdefault(channel, TopExamples(self.most))

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


def read_log(
    trajectories: Iterable[Trajectory], found: Survey, rule: ChainRule, examples: int
) -> Log:
    """Stream a log into columns."""
    log = Log(rule=rule, most=examples)
    for trajectory in trajectories:
        log.add(trajectory, found.chains(trajectory, rule))
    return log


def mean(values: Sequence[float]) -> float:
    """The mean with an exactly rounded sum."""
    return math.fsum(values) / len(values)


def link_column(channel: str, link: str) -> str:
    """The name of the column that holds one link of a channel's chain."""
    return f"{channel}: {link}"


def _numbers(
    trajectory: Trajectory, acted: Acted, idlest: TopExamples, win: float
) -> dict[str, float | None]:
    turns = len(acted.turns)
    steps = tuple(
        turn.step for turn, repeats in zip(acted.turns, acted.idle, strict=True) if repeats
    )
    if steps:
        order = (-len(steps) / turns, trajectory.task, trajectory.id)
        idlest.offer(order, lambda: idle_example(trajectory, steps, turns))
    return {
        "outcome": trajectory.outcome,
        "won": None if trajectory.outcome is None else trajectory.outcome >= win,
        "turns": turns,
        "idle repeats": len(steps),
        "turns without idle repeats": turns - len(steps),
        "tokens": trajectory.sampled_tokens,
        "handed in": float(bool((trajectory.submission or "").strip())),
        **degeneracy(trajectory, acted),
    }


def _links(trajectory: Trajectory, chain: Finding) -> dict[str, float | None]:
    """The links as numbers. `not copied`: a disclosure was obtained, and the submission
    is no copy of it.
    """
    not_copied = chain.family == "disclosure" and chain.obtained and chain.used is False
    links = (chain.attempted, chain.obtained, chain.used, chain.complete)
    values = (*links, chain.untold, not_copied, in_prompt(trajectory, chain.obtained_steps))
    names = [link_column(chain.channel, link) for link in (*LINKS, PROMPTED)]
    return dict(zip(names, values, strict=True))


def chain_example(trajectory: Trajectory, chain: Finding, rule: ChainRule) -> Example:
    """A chain highlighted: the attempts, what was obtained, where it was
    written down again, the last action.
    """
    spans = [Span(step=i, label="attempt") for i in chain.attempt_steps]
    lines = (
        new_lines(trajectory, chain.obtained_steps[0], rule) if chain.family == "disclosure" else ()
    )
    wanted: frozenset[Gram] = frozenset().union(*lines)
    for i in chain.obtained_steps:
        spans += marked_places(trajectory.steps[i].text, wanted, i, "obtained") or [
            Span(step=i, label="obtained")
        ]
    for i, step in trajectory.actions:
        if chain.obtained_steps and i > chain.obtained_steps[0]:
            spans += marked_places(step.text, wanted, i, "used")
    spans.append(Span(step=trajectory.actions[-1][0], label="credited"))
    title = (
        f"Run {printable(trajectory.id)} of task {printable(trajectory.task)}: {chain.explanation}"
    )
    return Example(
        order=(0.0, trajectory.task, trajectory.id),
        step=chain.obtained_steps[0],
        spans=Spans(title=title, trajectory=trajectory.id, spans=tuple(spans)),
    )


def idle_example(trajectory: Trajectory, steps: tuple[int, ...], turns: int) -> Example:
    """A run with its idle repeats highlighted, `steps` of its `turns`."""
    title = (
        f"Run {printable(trajectory.id)}: {len(steps)} of {turns} actions repeat an earlier one,"
        " with no new answer"
    )
    spans = tuple(Span(step=i, label="idle repeat") for i in steps)
    return Example(
        order=(-len(steps) / turns, trajectory.task, trajectory.id),
        step=steps[0],
        spans=Spans(title=title, trajectory=trajectory.id, spans=spans),
    )


def marked_places(text: str, wanted: frozenset[Gram], step: int, label: str) -> list[Span]:
    """The places of the wanted grams in a text, overlapping ones joined."""
    placed = placed_words(text)
    ends: list[list[int]] = []
    for start in range(len(placed)):
        for size in sorted({len(gram) for gram in wanted}):
            stretch = placed[start : start + size]
            if tuple(word for word, _, _ in stretch) in wanted:
                begin, end = stretch[0][1], stretch[-1][2]
                if ends and begin <= ends[-1][1]:
                    ends[-1][1] = max(ends[-1][1], end)
                else:
                    ends.append([begin, end])
    return [Span(step=step, label=label, start=begin, end=end) for begin, end in ends]
