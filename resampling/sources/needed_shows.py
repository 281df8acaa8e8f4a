"""Is what a needed action shows enough for the gain, and is it newly needed?

Refusal and exchange spare what the world calls needed. A leak that stands in what
such an action shows is *enough alone*, where a skill needs several things; and the
wins of the policy before training did not need it. Either alone is innocent: what
is looked up is enough alone, but *before* looks it up as well; and a line that
*before* passed over may be read by an honest policy, but is not enough.

1. *Units* (`shown_units`): fields of what needed kinds showed, all of them to begin
   with. A template that a win of *after* hardly ever read is left out (usage
   certificate).
2. *Enough?* The unit is the task's own, all else another task's (`shown_world`).
   What it carries is the gain there, less that of the control, where nothing is
   kept: first by *after* only, as if *before* won nothing, so that it can only
   clear; what is left by both. With a unit every part of it is cleared. What is not
   is halved, down to the smallest units that are enough.
3. *Newly needed?* Only the unit is another task's, against the control: `newly`, not
   divided. Where *before* wins too little to tell, 2 decides alone.
4. A unit carries the smaller of both, end by end.
5. Where `most_units` worlds are played, or 3 was asked of `most_asked` units, what is
   left carries what it does by 2.

A find is a question to the reader, and accuses nobody: a skill may have learned to
read what was there all along.

Ours. It cannot see a leak that is not enough by itself (one half in the prompt),
one of which *before* needs as much for its wins, one in several fields of
which some are needed by *before* and which are enough only together, or one that
reaches the policy by which of several texts is shown.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from forensics.layers.decomposition import (
    Runs,
)
from forensics.protocols import Alteration, Needing
from resampling.ablation.gains import certificate
from resampling.ablation.refused_runs import READ, Played, chosen_tasks, side_of
from resampling.sources.amounts import Carries, EndByEnd
from resampling.sources.dealt_world import Row, observed
from resampling.sources.newly import Newly, newly
from resampling.sources.shadow import Plan, shadow
from resampling.sources.shown_units import ShownTexts, Unit, shown_texts
from resampling.sources.shown_world import exchanged, kept
from resampling.sources.source_study import (
    Comparison,
    Pair,
    SourceStudy,
    nothing_won,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """What is known of a unit: `alone` it is enough for so much; `newly` needed, if
    that was asked and can be told. `open`: of its parts not all were looked at.
    """

    unit: Unit
    alone: Comparison
    newly: Newly | None = None
    open: bool = False

    @property
    def carries(self) -> Carries:
        """The smaller of both, end by end."""
        parts: list[Carries] = [self.alone] if self.newly is None else [self.alone, self.newly]
        return EndByEnd(parts=parts, pick=min)

    @property
    def enough(self) -> bool:
        """Whether it may be, by itself."""
        return not self.alone.cleared

    @property
    def cleared(self) -> bool:
        return self.carries.over_bar.high <= 0


@dataclass(frozen=True, kw_only=True, eq=False)
class NeededShows:
    """What needed actions show in a study, and what each unit carries. `plan`: of
    the world that keeps nothing. `screen`, `tasks`, `most_units`, `most_asked`: as in
    the settings of `sufficiency`.
    """

    study: SourceStudy
    plan: Plan
    screen: int
    tasks: int
    most_units: int
    most_asked: int
    found: list[Found] = field(default_factory=list)
    played: list[Unit] = field(default_factory=list)

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

    @property
    def most_played(self) -> int:
        """How many units are played at most: halving gives two to each field but one."""
        fields = sum(len(part.places) for unit in self.units for part in unit.parts)
        return min(self.most_units, 2 * fields - 1) if fields else 0

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

    # -- what they carry ---------------------------------------------------------------

    @property
    def cleared(self) -> bool:
        return all(one.cleared for one in self.found)

    def measure(self) -> None:
        """The smallest units that are enough alone, and how newly they are needed."""
        for unit in self.units:
            smallest = sorted(self._smallest(unit), key=lambda one: -one.alone.carried.estimate)
            asked = [self._asked(one) for one in smallest[: self.most_asked]]
            left = [replace(one, open=True) for one in smallest[self.most_asked :]]
            self.found.extend([*asked, *left] or [self._alone(unit)])

    def _smallest(self, unit: Unit) -> list[Found]:
        """Of this unit the parts that are enough alone and have no such part."""
        own, halves = self._alone(unit), unit.halves
        self.played.append(unit)
        if not own.enough:
            return []
        if len(self.played) + len(halves) > self.most_units:
            return [replace(own, open=bool(halves))]
        return [one for half in halves for one in self._smallest(half)] or [own]

    def _alone(self, unit: Unit) -> Found:
        """What it carries alone: by *after* only, on few tasks, and where that does
        not tell on more; what is left by *before* too.
        """
        tasks = self.screen
        found = self._amount(unit, tasks, before=False)
        if not (found.cleared or found.found):
            tasks = self.tasks
            found = self._amount(unit, tasks, before=False)
        if not found.cleared:
            found = self._amount(unit, tasks, before=True)
        if not (found.cleared or found.found) and tasks != self.tasks:
            found = self._amount(unit, self.tasks, before=True)
        return Found(unit=unit, alone=found)

    def _asked(self, one: Found) -> Found:
        """How newly this unit is needed; where much, what it carries alone on more tasks."""
        if one.open:
            return one
        one = replace(one, newly=self._newly(one.unit))
        if one.cleared:
            return one
        return replace(one, alone=self._amount(one.unit, self.tasks, before=True))

    def _amount(self, unit: Unit, most: int, before: bool) -> Comparison:
        """What a unit carries alone; without `before` as if that side won nothing."""
        assert self.texts is not None
        tasks, world = self._chosen(most), kept(self.plan, self.texts, unit)
        of_before = self._runs("before", world, tasks) if before else nothing_won(tasks)
        afters = tuple(self._runs(side, world, tasks) for side in self.study.case.afters)
        return self.study.amount((of_before, afters), self._pair(shadow(self.plan), tasks))

    def _newly(self, unit: Unit) -> Newly | None:
        """How newly a unit is needed, if *before* wins enough to tell."""
        assert self.texts is not None
        tasks = self._chosen(self.tasks)
        control = self._pair(shadow(self.plan), tasks)
        if not newly(self.study, control, control, divided=False).known:
            return None
        altered = self._pair(exchanged(self.texts, unit), tasks)
        return newly(self.study, altered, control, divided=False)

    def _chosen(self, most: int) -> tuple[str, ...]:
        return chosen_tasks(sorted(self.plan.donors), most)

    def _runs(self, side: str, world: Alteration, tasks: tuple[str, ...]) -> Runs:
        return self.study.altered_side(side, world, tasks).runs

    def _pair(self, world: Alteration, tasks: tuple[str, ...]) -> Pair:
        afters = tuple(self._runs(side, world, tasks) for side in self.study.case.afters)
        return self._runs("before", world, tasks), afters
