"""A few runs worth showing, as text spans; which ones does not depend on the order of reading."""

from collections.abc import Callable
from typing import NamedTuple

from forensics.layers.evidence_chain import Chain
from forensics.layers.text_words import Gram, placed_words
from forensics.layers.use import ChainRule, new_lines
from forensics.records import Span, Spans, Trajectory
from forensics.wording import printable

Order = tuple[float, str, str]


class Example(NamedTuple):
    """A run to look at, and the step to look at first. Sorts by `order`."""

    order: Order
    trajectory: str
    step: int
    spans: Spans


class Shelf:
    """Keeps the `most` examples that come first in their order."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: list[Example] = []

    def offer(self, order: Order, make: Callable[[], Example]) -> None:
        """Keep the example if it comes before one that is kept; it is built only then."""
        if len(self.kept) < self.most or (self.kept and order < self.kept[-1].order):
            self.kept = sorted([*self.kept, make()], key=lambda example: example.order)[: self.most]

    def take(self, other: "Shelf") -> None:
        """Offer what another shelf kept."""
        for example in other.kept:
            self.offer(example.order, lambda example=example: example)  # type: ignore[misc]


def chain_example(trajectory: Trajectory, chain: Chain, rule: ChainRule) -> Example:
    """A chain highlighted: the attempts, what was obtained, where it was
    written down again, the last action.
    """
    spans = [Span(step=i, label="attempt") for i in chain.attempt_steps]
    lines = (
        new_lines(trajectory, chain.obtained_steps[0], rule) if chain.family == "disclosure" else ()
    )
    wanted: frozenset[Gram] = frozenset().union(*lines)
    for i in chain.obtained_steps:
        spans += _marked(trajectory.steps[i].text, wanted, i, "obtained") or [
            Span(step=i, label="obtained")
        ]
    for i, step in trajectory.actions:
        if chain.obtained_steps and i > chain.obtained_steps[0]:
            spans += _marked(step.text, wanted, i, "used")
    spans.append(Span(step=trajectory.actions[-1][0], label="credited"))
    title = (
        f"Run {printable(trajectory.id)} of task {printable(trajectory.task)}: {chain.explanation}"
    )
    return Example(
        order=(0.0, trajectory.task, trajectory.id),
        trajectory=trajectory.id,
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
        order=idle_order(trajectory, len(steps), turns),
        trajectory=trajectory.id,
        step=steps[0],
        spans=Spans(title=title, trajectory=trajectory.id, spans=spans),
    )


def idle_order(trajectory: Trajectory, idle: int, turns: int) -> Order:
    """The idlest run first."""
    return (-idle / turns, trajectory.task, trajectory.id)


def _marked(text: str, wanted: frozenset[Gram], step: int, label: str) -> list[Span]:
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
