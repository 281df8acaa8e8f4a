"""Worlds in which one unit of what needed actions show is the task's own and all
else another task's (`kept`), or the other way round (`exchanged`).

1. Kept: a shadow world that keeps nothing of the prompt (`shadow`): the donor's
   texts are shown, the task itself grades. Where the donor, or the task itself
   by the same action, shows a text of the unit's template, the unit in it is the
   task's own: as it was shown just now, if the case's runs read it too, else as they
   read it. What is the same in both worlds hangs on the action alone, and stays.
2. Exchanged: the task's own world. In a text of the template the unit is that of
   the next task, in an order drawn by the seed, that has another there.
3. The n-th text of a template that an episode shows stands for the n-th that the
   other task's runs were shown, so equal texts of one episode get equal values.

Where no run of a task was shown such a text, the donor's stays as it is.
"""

from dataclasses import dataclass
from typing import Any

from forensics.protocols import Alteration, Environment, Observation, StepResult
from resampling.ablation.refused_runs import action_kinds
from resampling.sources.altered_world import AlteredWorld, alteration
from resampling.sources.shadow import Plan, Shadow
from resampling.sources.shown_units import Form, Part, ShownTexts, Unit, Values

Met = tuple[Part, Values]  # the part of the unit that a text has, and all values of the text


@dataclass(frozen=True, kw_only=True, eq=False)
class Shown:
    """One unit among what was shown."""

    texts: ShownTexts
    unit: Unit

    def __deepcopy__(self, memo: Any) -> "Shown":
        return self  # nothing of it ever changes

    def met(self, action: str, result: StepResult) -> Met | None:
        """What of the unit a step showed."""
        found = self.texts.cut(action_kinds(action, result.kinds), result.observation)
        part = self.unit.by_form.get(found[1]) if found else None
        return (part, found[2]) if found and part else None

    def own(self, task: str, form: Form, number: int) -> Values | None:
        """The n-th text of a template that the runs of a task were shown."""
        known = self.texts.values[form].get(task)
        return known[number % len(known)] if known else None

    def read(self, task: str, met: Met) -> bool:
        """Whether the task's runs were shown this text, as far as they are kept."""
        return met[1] in self.texts.values[met[0].form].get(task, (met[1],))

    def another(self, task: str, part: Part, number: int, but: Values) -> Values | None:
        """The n-th of another task that differs in the unit, if there is one."""
        every = (of[number % len(of)] for of in self.texts.others(task, part.form))
        return next((one for one in every if part.of(one) != part.of(but)), None)


def number_of(seen: list[tuple[Form, Values]], form: Form, values: Values) -> int:
    """The place of a text among those of its template that an episode showed."""
    if (form, values) not in seen:
        seen.append((form, values))
    return [one for of, one in seen if of == form].index(values)


class KeptShown(Shadow):
    """See the module's text, 1."""

    def __init__(self, inner: Environment, name: str, plan: Plan, shown: Shown) -> None:
        super().__init__(inner, name, plan)
        self._shown, self._seen = shown, []  # type: Shown, list[tuple[Form, Values]]

    def reset(self, task: str, seed: int) -> Observation:
        self._seen = []
        return super().reset(task, seed)

    def step(self, action: str) -> StepResult:
        own = self._inner.step(action)
        if self._over:
            return StepResult(**{**vars(own), "observation": "", "channels": ()})
        other = self._donor.step(action)
        self._over = other.terminated or other.truncated
        text = self._put(action, own, other)
        return StepResult(**{**vars(own), "observation": text, "channels": other.channels})

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
    """See the module's text, 2."""

    def __init__(self, inner: Environment, name: str, shown: Shown) -> None:
        super().__init__(inner, name)
        self._shown, self._seen = shown, []  # type: Shown, list[tuple[Form, Values]]

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
        text = part.put(values, others)
        return StepResult(**{**vars(result), "observation": text, "channels": ()})


def kept(plan: Plan, texts: ShownTexts, unit: Unit) -> Alteration:
    """The world that keeps this unit and nothing else."""
    shown = Shown(texts=texts, unit=unit)
    told = f"shadow keeping shown {unit.name} {plan.key} {texts.key}"
    return alteration(told, lambda inner, name: KeptShown(inner, name, plan, shown))


def exchanged(texts: ShownTexts, unit: Unit) -> Alteration:
    """The world in which this unit is that of other tasks."""
    shown = Shown(texts=texts, unit=unit)
    told = f"exchange shown {unit.name} {texts.key}"
    return alteration(told, lambda inner, name: ExchangedShown(inner, name, shown))
