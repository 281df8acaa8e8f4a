"""The one search that gain tests share: which units of what a task shows does the gain
need, and which are enough for it? A unit is anything that two operators can alter: a
kind of action, fields of the prompts, fields of what needed actions show.

1. *Exchanged*: the unit is another task's. It carries what the gain loses.
2. *Kept*: the unit is the task's own, all else another task's. It carries the gain
   there, less that of the control, where nothing is kept.
3. *Screened*, what is kept: first by *after* only and on few tasks, as if *before* won
   nothing, so that it can only clear; what is left on more; what is still left by
   *before* too.
4. *Apart*, what is exchanged: each unit by itself, and pairs where no single one was
   found, since two redundant ones carry nothing each.
5. *Newly* (`new_reliance`): by either operator, beyond what *before* needs or is enough.

Who searches says its units and worlds, and what comes after what is cleared: parts of
parts are in `subsets`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Generic, TypeVar

from forensics.protocols import Alteration
from resampling.ablation.refused_runs import chosen_tasks
from resampling.gain_tests.amounts import Carries, EndByEnd
from resampling.gain_tests.gain_study import Comparison, GainStudy, Pair
from resampling.gain_tests.new_reliance import NewReliance, new_reliance

Unit = TypeVar("Unit")


@dataclass(frozen=True, kw_only=True)
class Search(Generic[Unit]):
    """Units, altered by two operators. `keeping` a unit, or nothing (`None`), `exchanging` it
    (if that is asked for): the altered world. `on`: the tasks with another one to show.
    """

    study: GainStudy
    on: Sequence[str]
    keeping: Callable[[Unit | None], Alteration]
    exchanging: Callable[[Unit], Alteration] | None = None

    def exchanged(
        self, units: Sequence[Unit], tasks: tuple[str, ...], before: bool = True
    ) -> dict[Unit, Comparison]:
        """What each carries; without `before` as if that side lost nothing by it."""
        worlds = self._worlds(units, alone=False)
        pairs = self.study.pairs(worlds, tasks, () if before else worlds)
        if not before:
            pairs = [(self.study.plain.pair[0], afters) for _, afters in pairs]
        return dict(zip(units, map(self.study.compare, pairs), strict=True))

    def kept(self, units: Sequence[Unit], most: int, before: bool) -> dict[Unit, Comparison]:
        """What each carries alone; without `before` as if that side won nothing there."""
        if not units:
            return {}
        worlds = self._worlds(units, alone=True)
        *pairs, control = self.study.pairs(
            [*worlds, self.keeping(None)], self._chosen(most), () if before else worlds
        )
        amounts = (self.study.amount(pair, control) for pair in pairs)
        return dict(zip(units, amounts, strict=True))

    def screened(
        self, units: Sequence[Unit], few: int, more: int, most: int | None = None
    ) -> dict[Unit, Comparison]:
        """What each carries alone, on so many tasks. `most`: units that are played on more,
        be they found on few or not; without it those of which few do not tell.
        """
        found = self.kept(units, few, before=False)
        left = [one for one in units if not found[one].cleared]
        left.sort(key=lambda one: -found[one].over_bar.estimate)
        on = left[:most] if most else [one for one in left if not found[one].found]
        rest = [one for one in left if one not in on]
        found |= self.kept(rest, few, before=True) | self.kept(on, more, before=False)
        on = [one for one in on if not found[one].cleared]
        if not most:
            on += [one for one in rest if not (found[one].cleared or found[one].found)]
        return found | self.kept(on, more, before=True)

    def apart(
        self,
        units: Sequence[Unit],
        known: Mapping[Unit, Carries],
        tasks: tuple[str, ...],
        both: Callable[[Unit, Unit], Unit],
        most_pairs: int,
    ) -> dict[Unit, Comparison]:
        """What is not `known` of each, exchanged by itself, and of pairs of them."""
        found = self.exchanged([one for one in units if one not in known], tasks)
        if not any({**known, **found}[one].found for one in units):
            pairs = [both(*two) for two in combinations(units, 2)]
            pairs = [one for one in pairs if one not in known]
            found |= self.exchanged(pairs[:most_pairs], tasks)
        return found

    def newly(
        self,
        units: Sequence[Unit],
        tasks: tuple[str, ...],
        control: Pair,
        **how: bool,
    ) -> list[NewReliance]:
        """How newly each is needed, or (`alone`) enough; `how`: as in `NewReliance`."""
        pairs = self.study.pairs(self._worlds(units, how.get("alone", False)), tasks)
        return [new_reliance(self.study, pair, control, **how) for pair in pairs]

    def newly_either(self, unit: Unit, most: int) -> Carries | None:
        """How newly a unit is needed or enough, whichever is more, if *before* wins enough to
        tell.
        """
        control, tasks = self.control(most), self._chosen(most)
        if not new_reliance(self.study, control, control).known:
            return None
        found = self.newly([unit], tasks, control, alone=True, divided=False)
        if self.exchanging is not None:
            found += self.newly([unit], tasks, control, divided=False)
        return EndByEnd(parts=found)

    def control(self, most: int) -> Pair:
        """Both sides where nothing is kept."""
        (pair,) = self.study.pairs([self.keeping(None)], self._chosen(most))
        return pair

    def _chosen(self, most: int) -> tuple[str, ...]:
        return chosen_tasks(self.on, most)

    def _worlds(self, units: Sequence[Unit], alone: bool) -> list[Alteration]:
        altered = self.keeping if alone else self.exchanging
        assert altered is not None, "what cannot be exchanged is kept alone"
        return [altered(one) for one in units]
