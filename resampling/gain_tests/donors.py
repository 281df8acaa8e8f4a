"""What actions showed, by their kinds and the task, to be shown on another task.

1. *Donors* are observations that the case's own runs read, of either side. The last one of a
   run is read by nobody.
2. A task's donor is the next one in an order drawn by the seed that has an observation of just
   these kinds, so that an episode hears of one other task: the same action's, where that task
   has it. Where no other task has such, one of any kinds with an exchanged one among them
   serves, and else nothing is shown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np

from forensics.records import content_hash
from resampling.ablation.refused_runs import Kinds, action_kinds

MOST_GIVEN: Final = 4  # texts of one task and kinds that are kept
Row = Mapping[str, Any]
Texts = dict[str, str]  # what each action showed


class Unchanging:
    """What a world holds and never changes: its snapshots share it."""

    def __deepcopy__(self, memo: Any) -> Self:
        return self


@dataclass(frozen=True, kw_only=True, eq=False)
class Donors(Unchanging):
    """What actions showed, by their kinds and the task; `order`: of the tasks."""

    texts: Mapping[Kinds, Mapping[str, Texts]]
    order: Sequence[str]

    @cached_property
    def place(self) -> dict[str, int]:
        return {task: number for number, task in enumerate(self.order)}

    @cached_property
    def key(self) -> str:
        told = [
            [list(kinds), sorted((task, sorted(texts.items())) for task, texts in of_kinds.items())]
            for kinds, of_kinds in sorted(self.texts.items())
        ]
        return content_hash([told, list(self.order)], 12)

    def instead(self, task: str, kinds: Kinds, action: str, wanted: frozenset[str]) -> str:
        """What is shown instead of what an action shows on a task."""
        having = self.texts.get(kinds, {})
        for other in self._others(task):
            if other in having:
                return having[other].get(action, next(iter(having[other].values())))
        near = [one for one in sorted(self.texts) if not wanted.isdisjoint({*one} & {*kinds})]
        for other in self._others(task):
            for one in near:
                if other in self.texts[one]:
                    return next(iter(self.texts[one][other].values()))
        return ""

    def _others(self, task: str) -> Iterator[str]:
        start = self.place.get(task, -1) + 1
        yield from (one for one in (*self.order[start:], *self.order[:start]) if one != task)


def donors_of(rows: Iterable[Row], tasks: Sequence[str], seed: int) -> Donors:
    """The donors among runs, given as plain rows with their steps."""
    texts: dict[Kinds, dict[str, Texts]] = {}
    for row in rows:
        for kinds, action, shown in observed(row):
            of_task = texts.setdefault(kinds, {}).setdefault(row["task"], {})
            if len(of_task) < MOST_GIVEN:
                of_task.setdefault(action, shown)
    names = sorted(tasks)
    order = [names[place] for place in np.random.default_rng(seed).permutation(len(names))]
    return Donors(texts=texts, order=tuple(order))


def observed(row: Row) -> Iterator[tuple[Kinds, str, str]]:
    """What a run read after each action but its last: kinds, action, text."""
    steps = row["steps"]
    acts = [number for number, step in enumerate(steps) if step["role"] == "assistant"]
    for number, following in pairwise(acts):
        shown = "\n".join(step["text"] for step in steps[number + 1 : following])
        yield step_kinds(steps[number]), steps[number]["text"], shown


def step_kinds(step: Row) -> Kinds:
    """The kinds of a recorded action."""
    called = tuple(call["name"] for call in step["tool_calls"] or ())
    return action_kinds(step["text"], tuple(step["kinds"] or ()) or called)
