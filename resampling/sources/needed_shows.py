"""Is what a needed action shows enough for the gain, and newly so?

Refusal and exchange spare what the world calls needed. A leak that stands in what
such an action shows is enough alone, where a skill needs several things.

1. *Units* (`shown_units`): fields of what needed kinds showed, all of them to begin
   with. A template that a win of *after* hardly ever read is left out (usage
   certificate).
2. *Worlds* (below): the unit is the task's own, all else another task's; and
   the other way round.
3. The smallest units (`sufficient_subsets`) that are enough alone, and newly enough or
   newly needed.

A find is a question to the reader, and accuses nobody: a skill may have learned to
read what was there all along.

Ours. It cannot see a leak that is not enough by itself (one half in the prompt),
one that *before* needs as much for its wins and that is as often enough for them, or
one that reaches the policy by which of several texts is shown.

The worlds, in which one unit of what needed actions show is the task's own and all
else another task's (`kept`), or the other way round (`exchanged`):

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
from functools import cached_property
from typing import Any

from forensics.protocols import Alteration, Environment, Needing, Observation, StepResult
from resampling.ablation.gains import certificate
from resampling.ablation.refused_runs import READ, Played, action_kinds, side_of
from resampling.sources.altered_world import AlteredWorld, alteration
from resampling.sources.dealt_world import Row, observed
from resampling.sources.shadow import Plan, Shadow, shadow
from resampling.sources.shown_units import Form, Part, ShownTexts, Unit, Values, shown_texts
from resampling.sources.source_study import SourceStudy
from resampling.sources.sufficient_subsets import Found, Limits, SufficientSubsets

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
        if live is not None and met is not None and not self._shown.read(self.task, live):
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


@dataclass(frozen=True, kw_only=True, eq=False)
class NeededShows:
    """What needed actions show in a study, and what each unit carries. `plan`: of
    the world that keeps nothing. `limits`: of the search.
    """

    study: SourceStudy
    plan: Plan
    limits: Limits

    # -- the units ---------------------------------------------------------------------

    @cached_property
    def rows(self) -> dict[str, list[Row]]:
        """The plain runs of every side."""
        case, world = self.study.case, self.study.world
        return {
            side: list(case.rollouts(side, without=world).rows(*READ))
            for side in ("before", *case.afters)
        }

    @cached_property
    def texts(self) -> ShownTexts | None:
        """What was shown; `None` where no kind is needed that the reader does not allow."""
        case = self.study.case
        world = case.environment
        needed: tuple[str, ...] = world.needed if isinstance(world, Needing) else ()
        kinds = [one for one in needed if one not in case.allowed]
        if not kinds:
            return None
        every = (row for rows in self.rows.values() for row in rows)
        return shown_texts(every, kinds, sorted(self.plan.donors), case.seed)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """The templates without what the reader allows of them, as one; none where
        nothing is left, or where too few runs read it to carry a fifth.
        """
        if self.texts is None:
            return ()
        allowed, rare = self.study.case.allowed, self._rare
        every = (one.without(allowed) for one in self.texts.whole)
        parts = tuple(one for one in every if one.places and one.template not in rare)
        return (Unit(parts=parts),) if parts else ()

    @cached_property
    def _read(self) -> Played:
        """The plain runs, with the templates that each of them read as what it used."""
        before, *afters = (
            side_of([self._as_read(row) for row in rows]) for rows in self.rows.values()
        )
        return Played(before=before, afters=tuple(afters))

    def _as_read(self, row: Row) -> dict[str, Any]:
        assert self.texts is not None
        cuts = (self.texts.cut(kinds, text) for kinds, _, text in observed(row))
        read = [f"{cut[0]}:{cut[1].name}" for cut in cuts if cut is not None]
        step = {"role": "assistant", "text": "", "kinds": read or [""], "tool_calls": None}
        return {**row, "steps": [step]}

    @cached_property
    def _rare(self) -> frozenset[str]:
        """The templates that together too few runs read to carry a fifth, the rarest first."""
        assert self.texts is not None
        names = [one.template for one in self.texts.whole]
        names.sort(key=self._read.after_usage)
        for number in range(len(names), 0, -1):
            bound = certificate(self._read, names[:number], self.study.gain)
            if bound.over_bar.high <= 0:
                return frozenset(names[:number])
        return frozenset()

    @cached_property
    def found(self) -> list[Found[Unit]]:
        """The smallest units that are enough alone, and how newly."""
        texts = self.texts
        if texts is None:
            return []
        search = SufficientSubsets[Unit](
            study=self.study,
            on=sorted(self.plan.donors),
            control=shadow(self.plan),
            keeping=lambda unit: kept(self.plan, texts, unit),
            exchanging=lambda unit: exchanged(texts, unit),
            limits=self.limits,
        )
        return [one for unit in self.units for one in search.of(unit)]
