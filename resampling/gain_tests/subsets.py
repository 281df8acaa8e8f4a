"""Which parts of what a task shows are enough for the gain, and newly so: the
smallest ones. (Sufficient input subsets, 1810.03805, of a gain in place of a score.)

1. *Enough?* What a part carries alone, screened (`search`). With a part every part of
   it is cleared. What is not is halved, down to the smallest parts that are enough.
2. *Thinned*: where no half carries `HALF` as much as the whole, several parts work
   together, wherever they stand. Chunks are taken out, ever smaller ones, as long as
   `HALF` of what the whole carries by *after* is left (delta debugging, Zeller and
   Hildebrandt 2002, by complements).
3. *NewReliance?* By `new_reliance`, not divided: the part is newly needed, or newly enough,
   whichever is more. Where *before* wins too little to tell, 1 decides alone.
4. A part carries the smaller of 1 and 3, end by end: what is looked up is enough
   alone, but *before* looks it up as well; and a line that *before* passed over may be
   read by an honest policy, but is not enough.
5. Where `most_units` worlds were halved, or 3 was asked of `most_asked` parts, what is
   left carries what it does by 1. Where as many were thinned, 3 is asked of what is left.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from resampling.gain_tests.amounts import Carries, EndByEnd
from resampling.gain_tests.gain_study import Comparison
from resampling.gain_tests.search import Search

HALF = 0.5


class Divisible(Protocol):
    """Something with parts. `atoms`: the smallest ones."""

    @property
    def name(self) -> str: ...
    @property
    def atoms(self) -> Sequence[Any]: ...
    @property
    def halves(self) -> Sequence[Self]: ...
    def but(self, atoms: Iterable[Any], /) -> Self: ...


Unit = TypeVar("Unit", bound=Divisible)


@dataclass(frozen=True, kw_only=True, eq=False)
class Found(Generic[Unit]):
    """What is known of a part: `alone` it is enough for so much; `newly` so, if
    that was asked and can be told. `open`: of its parts not all were looked at.
    `needless`: what else is called needed, and is not where this is there.
    """

    unit: Unit
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
class Subsets(Generic[Unit]):
    """The smallest parts that a `search` finds; it counts what it `played` and `thinned`."""

    search: Search[Unit]
    limits: Limits
    played: list[Unit] = field(default_factory=list, init=False)
    thinned: list[Unit] = field(default_factory=list, init=False)

    def of(self, unit: Unit) -> list[Found[Unit]]:
        """The smallest parts that are enough alone, and how newly; else the unit itself."""
        named = {one.unit.name: one for one in self._smallest(unit)}
        smallest = sorted(named.values(), key=lambda one: -one.alone.carried.estimate)
        asked = [self._asked(one) for one in smallest[: self.limits.most_asked]]
        left = [replace(one, open=True) for one in smallest[self.limits.most_asked :]]
        return [*asked, *left] or [self._alone(unit)]

    def _smallest(self, unit: Unit) -> list[Found[Unit]]:
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

    def _thinned(self, whole: Found[Unit]) -> Found[Unit]:
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

    def _alone(self, unit: Unit) -> Found[Unit]:
        """What it carries alone."""
        found = self.search.screened([unit], self.limits.screen, self.limits.tasks)
        return Found(unit=unit, alone=found[unit])

    def _asked(self, one: Found[Unit]) -> Found[Unit]:
        """How newly this part is needed or enough; where that may be much, on more tasks."""
        if one.open:
            return one
        for tasks in dict.fromkeys((self.limits.tasks, self.limits.asked)):
            one = replace(one, newly=self.search.newly_either(one.unit, tasks))
            if one.cleared:
                return one
        alone = self.search.kept([one.unit], self.limits.asked, before=True)
        return replace(one, alone=alone[one.unit])

    def _by_after(self, unit: Unit) -> float:
        """What it carries alone on few tasks, as if *before* won nothing there."""
        found = self.search.kept([unit], self.limits.screen, before=False)
        return found[unit].carried.estimate
