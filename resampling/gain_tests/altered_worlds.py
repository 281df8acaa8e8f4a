"""Environments in front of another one: the same tasks, the same grading, and something
between it and the policy.

1. A gain test derives from `AlteredWorld` and changes what the policy is `shown`, or what of an
   action is `taken`; all else is the inner world's own business. `alteration(name, make)` is what
   `Condition(altered=...)` takes. An altered world differs from the inner one by its options, and
   from another alteration by its name: everything that matters must be in there.
2. *Shadow* (`shadow`): two instances run in lockstep: the task's own one, which grades, and
   that of a *donor* task, whose texts are shown. In the donor's prompt the kept fields have the
   values of the task itself; or the other way round (`own`): in the task's own prompt some fields
   have the donor's. Kept values also take the donor's place in what later actions show, if they
   have three characters or more: what is shorter stands elsewhere by chance. Where the donor's
   episode ends first, nothing more is shown. A world whose prompts hang on the seed has no
   shadow (`fields.prompt_fields`).
3. *Dealt* (`dealt`): an action with one of the exchanged kinds in it shows what an action of just
   its kinds showed on another task (`units.Donors`); exchanged fields of the prompt have the values
   of another task. An action that chains several kinds gives one text, and all of it is exchanged.
4. One unit of what needed actions show is the task's own in a shadow that keeps nothing of the
   prompt (`kept`). Where the donor, or the task itself by the same action, shows a text of the
   unit's template, the unit in it is the task's own: as it was shown just now, if the case's runs
   read it too, else as they read it. What is the same in both worlds hangs on the action alone, and
   stays. Or the other way round (`exchanged`): in the task's own world the unit is that of the
   next task, in an order drawn by the seed, that has another there. The n-th text of a template
   that an episode shows stands for the n-th that the other task's runs were shown. Where no run of
   a task was shown such a text, the donor's stays as it is.
"""

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from forensics.phrases import joined, printable
from forensics.protocols import Alteration, Channel, Environment, Observation, StepResult
from forensics.records import content_hash
from resampling.ablation.refused_runs import action_kinds
from resampling.gain_tests.fields import PromptFields, parted
from resampling.gain_tests.units import (
    Donors,
    Form,
    Shown,
    ShownTexts,
    Unchanging,
    Unit,
    Values,
    number_of,
)

SHORTEST = 3  # characters of a value that is looked for in what actions show


class AlteredWorld:
    """Shows what the inner world shows. Derive, and change what should differ.

    Attributes that are not here (`rendering`, `needed`, `regrade`, ...) are the
    inner world's. `task` is the running one.
    """

    task: str = ""

    def __init__(self, inner: Environment, alteration: str) -> None:
        self._inner, self._alteration = inner, alteration

    # -- what a test changes ---------------------------------------------------------

    def begin(self, task: str, seed: int) -> None:
        """Called before the inner world is reset: choose what this episode needs."""

    def shown(self, text: str) -> str:
        """What the policy reads instead of a text of the inner world."""
        return text

    def taken(self, action: str) -> str:
        """What the inner world gets instead of an action of the policy."""
        return action

    # -- the inner world ---------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"{self._inner.name}, {self._alteration}"

    @property
    def options(self) -> Mapping[str, str]:
        return {**self._inner.options, "altered": self._alteration}

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self._inner.channels

    @property
    def scrubbed(self) -> tuple[str, ...]:
        return self._inner.scrubbed

    def without(self, *channels: str) -> Self:
        return self._around(self._inner.without(*channels))

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return self._inner.tasks(split, number, seed)

    def spawn(self) -> Self:
        return self._around(self._inner.spawn())

    def _around(self, inner: Environment) -> Self:
        other = copy.copy(self)
        other._inner = inner
        return other

    def reset(self, task: str, seed: int) -> Observation:
        self.task = task
        self.begin(task, seed)
        start = self._inner.reset(task, seed)
        system = None if start.system is None else self.shown(start.system)
        return Observation(text=self.shown(start.text), system=system, channels=start.channels)

    def step(self, action: str) -> StepResult:
        result = self._inner.step(self.taken(action))
        return StepResult(**{**vars(result), "observation": self.shown(result.observation)})

    def kinds(self, action: str) -> tuple[str, ...]:
        return self._inner.kinds(self.taken(action))

    def snapshot(self) -> Any:
        own = {name: value for name, value in vars(self).items() if name != "_inner"}
        return copy.deepcopy(own), self._inner.snapshot()

    def restore(self, state: Any) -> None:
        own, inner = state
        vars(self).update(copy.deepcopy(own))
        self._inner.restore(inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)


def _showing(result: StepResult, text: str, channels: tuple[str, ...] = ()) -> StepResult:
    """The same step with another text."""
    return StepResult(**{**vars(result), "observation": text, "channels": channels})


def alteration(
    name: str, make: Callable[[Environment, str], Environment], said: str = ""
) -> Alteration:
    """`make(inner, name)` gives the altered world of an environment; `said`: it in words."""
    return Alteration(name=name, of=lambda inner: make(inner, name), said=said)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of a task: fields by `names`, or (`own`) all but these.
    `apart`: the donor may have another template.
    """

    names: frozenset[str] = frozenset()
    own: bool = False
    apart: bool = False

    def __str__(self) -> str:
        names = " and ".join(sorted(self.names))
        return f"all but {names}" if self.own else names or "nothing"


@dataclass(frozen=True, kw_only=True)
class Plan(Unchanging):
    """What is kept, and which task shows the rest."""

    fields: PromptFields
    donors: Mapping[str, str]
    kept: Kept

    @classmethod
    def of(cls, fields: PromptFields, seed: int, kept: Kept) -> "Plan":
        """With a donor for each task that has one."""
        have = fields.asked if kept.apart else fields.aligned
        return cls(fields=fields, donors=fields.donors(have, seed, kept.apart), kept=kept)

    def prompt(self, task: str) -> tuple[str, str | None]:
        """The prompt and the system text that a task's run is shown."""
        donor = self.donors[task]
        base, other = (task, donor) if self.kept.own else (donor, task)
        values = self.fields.values[other]
        put = {name: values.get(name, "") for name in self.kept.names}
        pieces = self.fields.pieces[base]
        return parted("".join(put.get(piece.field or "", piece.text) for piece in pieces))

    @property
    def said(self) -> str:
        """What is altered, in words: by what is kept or by what is not, whichever is less."""
        names, every = self.kept.names, self.fields.names
        own = [one for one in every if (one in names) is not self.kept.own]
        if not own:
            return "prompts of other tasks"
        rest = [one for one in every if one not in own]
        if len(own) <= len(rest) or not rest:
            return f"prompts with only {joined([*map(self.fields.said, own)])} kept"
        return f"prompts with {joined([*map(self.fields.said, rest)])} from another task"

    @cached_property
    def key(self) -> str:
        pieces = [[task, *map(list, self.fields.pieces[task])] for task in sorted(self.donors)]
        return content_hash([sorted(self.donors.items()), pieces], 12)

    def swaps(self, task: str) -> dict[str, str]:
        """What takes the place of what in what actions show."""
        values, others = self.fields.values[task], self.fields.values[self.donors[task]]
        kept = values.keys() - self.kept.names if self.kept.own else self.kept.names
        return {
            others[name]: values[name]
            for name in sorted(kept)
            if name in values and len(others.get(name, "")) >= SHORTEST
        }


class Shadow(AlteredWorld):
    """See the module's text, 2."""

    def __init__(self, inner: Environment, name: str, plan: Plan) -> None:
        super().__init__(inner, name)
        self._plan, self._donor = plan, inner.spawn()
        self._over, self._swaps = False, {}  # type: bool, dict[str, str]

    def _around(self, inner: Environment) -> Self:
        other = super()._around(inner)
        other._donor = inner.spawn()
        return other

    def reset(self, task: str, seed: int) -> Observation:
        self.task, self._over = task, False
        self._inner.reset(task, seed)
        start = self._donor.reset(self._plan.donors[task], seed)
        text, system = self._plan.prompt(task)
        self._swaps = self._plan.swaps(task)
        return Observation(text=text, system=system, channels=start.channels)

    def step(self, action: str) -> StepResult:
        own = self._inner.step(action)
        if self._over:
            return _showing(own, "")
        other = self._donor.step(action)
        self._over = other.terminated or other.truncated
        return _showing(own, self._put(action, own, other), other.channels)

    def _put(self, action: str, own: StepResult, other: StepResult) -> str:
        """What is shown, by what the action shows on the task itself and on the donor."""
        return self.shown(other.observation)

    def shown(self, text: str) -> str:
        if not self._swaps:
            return text
        parts = sorted(map(re.escape, self._swaps), key=len, reverse=True)
        return re.sub(rf"(?<!\w)(?:{'|'.join(parts)})(?!\w)", lambda met: self._swaps[met[0]], text)

    def snapshot(self) -> Any:
        donor = None if self._over else self._donor.snapshot()
        return self.task, self._over, dict(self._swaps), donor, self._inner.snapshot()

    def restore(self, state: Any) -> None:
        self.task, self._over, swaps, donor, own = state
        self._swaps = dict(swaps)
        self._inner.restore(own)
        if donor is not None:
            self._donor.restore(donor)


def shadow(plan: Plan) -> Alteration:
    """The alteration of a plan."""
    return alteration(
        f"shadow keeping {plan.kept} {plan.key}",
        lambda inner, name: Shadow(inner, name, plan),
        plan.said,
    )


@dataclass(frozen=True, kw_only=True)
class Deal(Unchanging):
    """What is exchanged: `kinds` of action, and by the plan fields of the prompt."""

    kinds: frozenset[str]
    donors: Donors
    plan: Plan | None = None


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
        return _showing(result, deal.donors.instead(self.task, kinds, action, deal.kinds))


def dealt(deal: Deal) -> Alteration:
    """The alteration of a deal."""
    what = [*sorted(deal.kinds), *([str(deal.plan.kept)] if deal.plan else [])]
    told = content_hash([deal.donors.key, deal.plan.key if deal.plan else ""], 12)
    shows = f"what {joined(sorted(deal.kinds))} shows from another task" if deal.kinds else ""
    return alteration(
        f"exchange {' + '.join(what)} {told}",
        lambda inner, name: DealtWorld(inner, name, deal),
        ", ".join(filter(None, (shows, deal.plan.said if deal.plan else ""))),
    )


class KeptShown(Shadow):
    """See the module's text, 4."""

    def __init__(self, inner: Environment, name: str, plan: Plan, shown: Shown) -> None:
        super().__init__(inner, name, plan)
        self._shown = shown
        self._seen: list[tuple[Form, Values]] = []

    def reset(self, task: str, seed: int) -> Observation:
        self._seen = []
        return super().reset(task, seed)

    def _put(self, action: str, own: StepResult, other: StepResult) -> str:
        """The donor's text with the unit as it is on the task itself."""
        if own.observation == other.observation:
            return other.observation  # it hangs on the action, as a calculator does
        live, met = self._shown.met(action, own), self._shown.met(action, other)
        if live is not None and not self._shown.read(self.task, live):
            live = None  # an action for the donor, which the task itself may not know
        if live is not None and (met is None or met[0] == live[0]):
            part, values = live
            number = number_of(self._seen, part.form, met[1] if met else values)
        elif met is not None:
            part, of_donor = met
            number = number_of(self._seen, part.form, of_donor)
            known = self._shown.own(self.task, part.form, number)
            if known is None:
                return other.observation
            values = known
        else:
            return other.observation
        into = met[1] if met else self._shown.another(self.task, part, number, values)
        return part.put(into or values, values)

    def snapshot(self) -> Any:
        return list(self._seen), super().snapshot()

    def restore(self, state: Any) -> None:
        seen, rest = state
        self._seen = list(seen)
        super().restore(rest)


class ExchangedShown(AlteredWorld):
    """See the module's text, 4."""

    def __init__(self, inner: Environment, name: str, shown: Shown) -> None:
        super().__init__(inner, name)
        self._shown = shown
        self._seen: list[tuple[Form, Values]] = []

    def begin(self, task: str, seed: int) -> None:
        self._seen = []

    def step(self, action: str) -> StepResult:
        result = self._inner.step(action)
        met = self._shown.met(action, result)
        if result.terminated or result.truncated or met is None:
            return result
        part, values = met
        number = number_of(self._seen, part.form, values)
        others = self._shown.another(self.task, part, number, values)
        if others is None:
            return result
        return _showing(result, part.put(values, others))


def kept(plan: Plan, texts: ShownTexts, unit: Unit) -> Alteration:
    """The world that keeps this unit and nothing else."""
    shown = Shown(texts=texts, unit=unit)
    told = f"shadow keeping shown {unit.name} {plan.key} {texts.key}"
    said = f"other tasks shown, only {printable(unit.name)} kept"
    return alteration(told, lambda inner, name: KeptShown(inner, name, plan, shown), said)


def exchanged(texts: ShownTexts, unit: Unit) -> Alteration:
    """The world in which this unit is that of other tasks."""
    shown = Shown(texts=texts, unit=unit)
    told = f"exchange shown {unit.name} {texts.key}"
    said = f"{printable(unit.name)} from another task"
    return alteration(told, lambda inner, name: ExchangedShown(inner, name, shown), said)
