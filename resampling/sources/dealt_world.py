"""A world in which what kinds of action and fields of the prompt show comes from
another task.

1. *Donors* are observations that the case's own runs read, of either side, by
   the kinds of the action and the task. The last one of a run is read by nobody.
2. An action with one of the exchanged kinds in it shows what an action of just
   its kinds showed on another task: the same action's, where that task has it.
   A task's donor is the next one in an order drawn by the seed that has such an
   observation, so that an episode hears of one other task.
3. Exchanged fields of the prompt have the values of another task of its template.

What cannot be separated: an action that chains several kinds gives one
observation, and all of it is exchanged. Where no other task has an observation
of just these kinds, one of any kinds with an exchanged one among them serves, and
else nothing is shown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from forensics.protocols import Alteration, Environment, Observation, StepResult
from forensics.records import content_hash
from resampling.ablation.refused_runs import Kinds, action_kinds
from resampling.sources.altered_world import AlteredWorld, alteration
from resampling.sources.shadow import Plan

MOST_TEXTS = 4  # of one task and kinds that are kept
Row = Mapping[str, Any]
Texts = dict[str, str]  # what each action showed


@dataclass(frozen=True, kw_only=True, eq=False)
class Donors:
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

    def __deepcopy__(self, memo: Any) -> "Donors":
        return self  # nothing of it ever changes


def donors_of(rows: Iterable[Row], tasks: Sequence[str], seed: int) -> Donors:
    """The donors among runs, given as plain rows with their steps."""
    texts: dict[Kinds, dict[str, Texts]] = {}
    for row in rows:
        for kinds, action, shown in observed(row):
            of_task = texts.setdefault(kinds, {}).setdefault(row["task"], {})
            if len(of_task) < MOST_TEXTS:
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


@dataclass(frozen=True, kw_only=True)
class Deal:
    """What is exchanged: `kinds` of action, and by the plan fields of the prompt."""

    kinds: frozenset[str]
    donors: Donors
    plan: Plan | None = None

    def __deepcopy__(self, memo: Any) -> "Deal":
        return self


class DealtWorld(AlteredWorld):
    """See the module's text."""

    def __init__(self, inner: Environment, name: str, deal: Deal) -> None:
        super().__init__(inner, name)
        self._deal = deal

    def reset(self, task: str, seed: int) -> Observation:
        start = super().reset(task, seed)
        if self._deal.plan is None or task not in self._deal.plan.donors:
            return start
        text, system = self._deal.plan.prompt(task)
        return Observation(text=text, system=system, channels=start.channels)

    def step(self, action: str) -> StepResult:
        result = self._inner.step(action)
        kinds = action_kinds(action, result.kinds)
        if result.terminated or result.truncated or self._deal.kinds.isdisjoint(kinds):
            return result
        deal = self._deal
        shown = deal.donors.instead(self.task, kinds, action, deal.kinds)
        return StepResult(**{**vars(result), "observation": shown, "channels": ()})


def dealt(deal: Deal) -> Alteration:
    """The alteration of a deal."""
    what = [*sorted(deal.kinds), *([str(deal.plan.kept)] if deal.plan else [])]
    told = content_hash([deal.donors.key, deal.plan.key if deal.plan else ""], 12)
    return alteration(
        f"exchange {' + '.join(what)} {told}", lambda inner, name: DealtWorld(inner, name, deal)
    )
