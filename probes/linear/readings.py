"""What a probe is asked, and what was read to answer it.

A question names steps of a run and a yes or no for each. It is read at the *deciding token*: the last token before the
first one that the policy drew in that step, so nothing of the step itself can be seen.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from forensics.errors import UserError
from forensics.records import Trajectory

Floats = np.ndarray


class Question(Protocol):
    """Steps of a run that are asked about, by number, each with its answer."""

    def __call__(self, trajectory: Trajectory) -> Iterator[tuple[int, bool]]: ...


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Rows read off runs, one for each step that was asked about.

    `activations`: of each site `[rows, features]`, float32. `labels [rows]` bool. `tasks`, `runs`, `steps [rows]`.
    `prefixes [rows]`: token ids up to and with the deciding one, which is all that a text-only baseline may see.
    `columns`: other scores `[rows]` to hold the probe against; turn number and length are always there.
    `unread`: steps that were asked about and could not be read.
    """

    activations: Mapping[str, Floats]
    labels: Floats
    tasks: tuple[str, ...]
    runs: tuple[str, ...]
    steps: Floats
    prefixes: tuple[Floats, ...]
    columns: Mapping[str, Floats]
    unread: int = 0

    def __post_init__(self) -> None:
        rows = len(self.labels)
        lengths = {*map(len, (self.tasks, self.runs, self.steps, self.prefixes)),
                   *map(len, self.activations.values()), *map(len, self.columns.values())}
        if lengths != {rows}:
            raise UserError(f"readings of {rows} labels hold parts of {sorted(lengths)} rows; give one entry a row")

    def at(self, sites: Collection[str]) -> "Readings":
        """The activations of some sites only."""
        return replace(self, activations={site: x for site, x in self.activations.items() if site in sites})

    def where(self, rows: Floats) -> "Readings":
        """Some rows only, by a mask or by numbers."""
        chosen = np.arange(len(self.labels))[rows]
        return Readings(
            activations={site: x[chosen] for site, x in self.activations.items()}, labels=self.labels[chosen],
            tasks=tuple(self.tasks[i] for i in chosen), runs=tuple(self.runs[i] for i in chosen),
            steps=self.steps[chosen], prefixes=tuple(self.prefixes[i] for i in chosen),
            columns={name: column[chosen] for name, column in self.columns.items()}, unread=self.unread,
        )


def readings_of(activations: Mapping[str, Any], labels: Any, tasks: Sequence[str]) -> Readings:
    """Readings of activations that come from elsewhere: no text, each row a run of its own."""
    rows = len(tasks)
    return Readings(
        activations={site: np.asarray(x, np.float32) for site, x in activations.items()},
        labels=np.asarray(labels, bool), tasks=tuple(tasks), runs=tuple(map(str, range(rows))),
        steps=np.zeros(rows, np.int64), prefixes=(np.zeros(0, np.int64),) * rows, columns={},
    )


def will_use(kinds: Collection[str], *, until_first: bool = False, turn: int | None = None) -> Question:
    """Will this step hold an action of one of these kinds? Every action of a run is asked about.

    `until_first`: only up to the first such action, as one that has read a key may never read it again. `turn`: only
    the action of this number, from 0, so that the turn itself tells nothing.
    """
    wanted = frozenset(kinds)

    def ask(trajectory: Trajectory) -> Iterator[tuple[int, bool]]:
        for place, (number, step) in enumerate(trajectory.actions):
            yes = not wanted.isdisjoint(step.kinds)
            if turn is None or place == turn:
                yield number, yes
            if yes and until_first:
                return

    return ask


def will_succeed(*, win: float = 0.5, at: str = "last", kinds: Collection[str] = ()) -> Question:
    """Will this run's outcome be at least `win`? Asked at its `first`, its `last` or `every` action.

    `kinds`: only actions that hold one of these count (none given: all). Runs without an outcome are not asked about.
    Raises `UserError` for another `at`.
    """
    if at not in ("first", "last", "every"):
        raise UserError(f"runs cannot be asked at their '{at}' action; known: first, last, every")
    wanted = frozenset(kinds)

    def ask(trajectory: Trajectory) -> Iterator[tuple[int, bool]]:
        if trajectory.outcome is None:
            return
        steps = [i for i, step in trajectory.actions if not wanted or not wanted.isdisjoint(step.kinds)]
        chosen = steps if at == "every" else steps[:1] if at == "first" else steps[-1:]
        for number in chosen:
            yield number, trajectory.outcome >= win

    return ask
