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
5. *Newly* (`new_reliance`): by either operator, beyond what *before* needs or is enough for.
6. *Subsets*: the smallest parts of a unit that are enough, and newly so (sufficient
   input subsets, 1810.03805, of a gain in place of a score).
   With a part that is screened and cleared every part of it is. What is not is halved,
   down to the smallest parts that are enough. Where no half carries `HALF` as much as the
   whole, several parts work together, wherever they stand: the whole is *thinned*. Chunks
   are taken out, ever smaller ones, as long as `HALF` of what the whole carries by *after*
   is left (delta debugging, Zeller and Hildebrandt 2002, by complements).
7. What is left is asked how newly it is needed or enough, whichever is more, not divided.
   It carries the smaller of both, end by end: what is looked up is enough
   alone, but *before* looks it up as well; and a line that *before* passed over may be
   read by an honest policy, but is not enough. Where *before* wins too little to tell,
   or `most_units` were halved, or `most_asked` parts asked, it carries what it does alone.

Who searches says its units and worlds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from forensics.protocols import Alteration
from resampling.ablation.refused_runs import chosen_tasks
from resampling.gain_tests.gain_study import (
    Carries,
    Comparison,
    EndByEnd,
    GainStudy,
    NewReliance,
    Pair,
    new_reliance,
)

HALF = 0.5
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
        further = [one for one in left if not found[one].found] if most is None else left[:most]
        rest = [one for one in left if one not in further]
        found |= self.kept(rest, few, before=True) | self.kept(further, more, before=False)
        further = [one for one in further if not found[one].cleared]
        if most is None:
            further += [one for one in rest if not (found[one].cleared or found[one].found)]
        return found | self.kept(further, more, before=True)

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


class Divisible(Protocol):
    """Something with parts. `atoms`: the smallest ones."""

    @property
    def name(self) -> str: ...
    @property
    def atoms(self) -> Sequence[Any]: ...
    @property
    def halves(self) -> Sequence[Self]: ...
    def but(self, atoms: Iterable[Any], /) -> Self: ...


Part = TypeVar("Part", bound=Divisible)


@dataclass(frozen=True, kw_only=True, eq=False)
class Found(Generic[Part]):
    """What is known of a part: `alone` it is enough for so much; `newly` so, if
    that was asked and can be told. `open`: of its parts not all were looked at.
    `needless`: what else is called needed, and is not where this is there.
    """

    unit: Part
    alone: Comparison
    newly: Carries | None = None
    open: bool = False
    needless: tuple[str, ...] = ()

    @property
    def carries(self) -> Carries:
        """The smaller of both, end by end; what is there alone where the rest is needless."""
        if self.newly is None or self.needless:
            return self.alone
        parts: list[Carries] = [self.alone, self.newly]
        return EndByEnd(parts=parts, pick=min)

    @property
    def enough(self) -> bool:
        """Whether it may be, by itself."""
        return not self.alone.cleared

    @property
    def cleared(self) -> bool:
        return self.carries.cleared


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`screen`: tasks on which every part is played first, `tasks`: on which what is not
    cleared there is. `most_units`: parts that are halved, and as many that are
    thinned; `most_asked`: of those that are enough, how many are asked how newly, on
    `tasks` too, and where that does not clear them on `asked`.
    """

    screen: int
    tasks: int
    most_units: int
    most_asked: int
    asked: int

    def likely_runs(self, atoms: int, afters: int) -> int:
        """The same where it is as of a skill, which needs the whole: the whole is enough,
        neither half is, and how newly is told by the first tasks that are asked.
        """
        if not atoms:
            return 0
        halves = 2 if atoms > 1 else 0
        alone = self.screen * (2 * (1 + afters) + halves * afters)
        return alone + 3 * (1 + afters) * self.tasks

    def most_screened(self, units: int, further: int, afters: int) -> int:
        """The runs that screening takes at most where at most so many are played `further`."""
        left = min(units, further)
        few = 1 + afters + units * afters + units - left
        return self.screen * few + self.tasks * (1 + left) * (1 + afters)

    def most_runs(self, atoms: int, afters: int) -> int:
        """Of each sample the runs that so many atoms take at most: halving gives two parts
        to each but one, and each of them may be thinned.
        """
        if not atoms:
            return 0
        halved = min(2 * atoms - 1, self.most_units)
        both = (1 + 2 * halved) * (self.screen + self.tasks)
        asked = 3 * min(halved, self.most_asked) * max(self.asked, self.tasks)
        thinned = self.most_units * self.screen if atoms > 2 else 0
        return (both + asked) * (1 + afters) + thinned * afters


@dataclass(frozen=True, kw_only=True)
class Subsets(Generic[Part]):
    """The smallest parts that a `search` finds; it counts what it `played` and `thinned`."""

    search: Search[Part]
    limits: Limits
    played: list[Part] = field(default_factory=list, init=False)
    thinned: list[Part] = field(default_factory=list, init=False)

    def of(self, unit: Part) -> list[Found[Part]]:
        """The smallest parts that are enough alone, and how newly; else the unit itself."""
        named = {one.unit.name: one for one in self._smallest(unit)}
        smallest = sorted(named.values(), key=lambda one: -one.alone.carried.estimate)
        asked = [self._asked(one) for one in smallest[: self.limits.most_asked]]
        left = [replace(one, open=True) for one in smallest[self.limits.most_asked :]]
        return [*asked, *left] or [self._alone(unit)]

    def _smallest(self, unit: Part) -> list[Found[Part]]:
        """Of this unit the parts that are enough alone and have no such part."""
        own, halves = self._alone(unit), unit.halves
        self.played.append(unit)
        if not own.enough:
            return []
        if len(self.played) + len(halves) > self.limits.most_units:
            return [replace(own, open=bool(halves))]
        smaller = [one for half in halves for one in self._smallest(half)]
        if any(one.alone.carried.estimate >= HALF * own.alone.carried.estimate for one in smaller):
            return smaller
        return [*smaller, self._thinned(own)]

    def _thinned(self, whole: Found[Part]) -> Found[Part]:
        """What is left of a unit when all is taken out without which it carries half as
        much at least.
        """
        unit, parts = whole.unit, 4
        least = HALF * self._by_after(unit)
        while len(unit.atoms) > 2:
            left, parts = unit, min(parts, len(unit.atoms))
            for chunk in np.array_split(np.arange(len(unit.atoms)), parts):
                rest = left.but(unit.atoms[place] for place in chunk)
                if not rest.atoms:
                    continue
                if len(self.thinned) >= self.limits.most_units:
                    return self._alone(left)
                self.thinned.append(rest)
                if self._by_after(rest) >= least:
                    left = rest
            if left is unit and parts == len(unit.atoms):
                break
            parts *= 2 if left is unit else 1
            unit = left
        return whole if unit is whole.unit else self._alone(unit)

    def _alone(self, unit: Part) -> Found[Part]:
        """What it carries alone."""
        found = self.search.screened([unit], self.limits.screen, self.limits.tasks)
        return Found(unit=unit, alone=found[unit])

    def _asked(self, one: Found[Part]) -> Found[Part]:
        """How newly this part is needed or enough; where that may be much, on more tasks."""
        if one.open:
            return one
        for tasks in dict.fromkeys((self.limits.tasks, self.limits.asked)):
            one = replace(one, newly=self.search.newly_either(one.unit, tasks))
            if one.cleared:
                return one
        alone = self.search.kept([one.unit], self.limits.asked, before=True)
        return replace(one, alone=alone[one.unit])

    def _by_after(self, unit: Part) -> float:
        """What it carries alone on few tasks, as if *before* won nothing there."""
        found = self.search.kept([unit], self.limits.screen, before=False)
        return found[unit].carried.estimate
