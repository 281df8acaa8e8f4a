"""Is what a needed action shows enough for the gain, and newly so?

Refusal and exchange spare what the world calls needed. A leak that stands in what
such an action shows is enough alone, where a skill needs several things.

1. *Units* (`units`): fields of what needed kinds showed, all of them to begin
   with. A template that a win of *after* hardly ever read is left out (usage
   certificate).
2. *Worlds* (`shown_world`): the unit is the task's own, all else another task's; and
   the other way round.
3. The smallest units (`search`) that are enough alone, and newly enough or
   newly needed.
4. *Needless*: one that is enough, but no more so than before training, is part of the job
   as far as 3 can tell. If at least half of the wins of a side read what the other needed
   kinds show, these are exchanged, all of them: where *after* loses at most a fifth of the
   gain by it, they are not needed after all. Then the unit carries what it is enough for.

A find is a question to the reader, and accuses nobody: a skill may have learned to
read what was there all along.

Ours. It cannot see a leak that is not enough by itself (one half in the prompt), one
that *before* goes by as well and that stands in the only kind that is needed, or one
that reaches the policy by which of several texts is shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

from resampling.ablation.gains import certificate
from resampling.ablation.refusal import needed_kinds
from resampling.ablation.refused_runs import Kinds, Played, chosen_tasks
from resampling.gain_tests.altered_worlds import Plan, exchanged, kept, shadow
from resampling.gain_tests.donors import Row, observed
from resampling.gain_tests.gain_study import GainStudy
from resampling.gain_tests.hand_ins import WIN
from resampling.gain_tests.search import HALF, Found, Limits, Search, Subsets
from resampling.gain_tests.units import ShownTexts, Unit, shown_texts


@dataclass(frozen=True, kw_only=True, eq=False)
class NeededShows:
    """What needed actions show in a study, and what each unit carries. `plan`: of
    the world that keeps nothing. `limits`: of how much is searched.
    """

    study: GainStudy
    plan: Plan
    limits: Limits

    # -- the units ---------------------------------------------------------------------

    @cached_property
    def texts(self) -> ShownTexts | None:
        """What was shown; `None` where no kind is needed that the reader does not allow."""
        case = self.study.case
        kinds = [one for one in needed_kinds(case.environment) if one not in case.allowed]
        if not kinds:
            return None
        rows = chain(*self.study.read_rows.values())
        return shown_texts(rows, kinds, sorted(self.plan.donors), case.seed)

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
        return self.study.as_if(self._as_read)

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
        texts, plan = self.texts, self.plan
        if texts is None:
            return []
        search = Search[Unit](
            study=self.study,
            on=sorted(plan.donors),
            keeping=lambda unit: kept(plan, texts, unit) if unit else shadow(plan),
            exchanging=lambda unit: exchanged(texts, unit),
        )
        subsets = Subsets(search=search, limits=self.limits)
        found = [one for unit in self.units for one in subsets.of(unit)]
        return [replace(one, needless=self._needless(search, one)) for one in found]

    # -- is the rest needed? -----------------------------------------------------------

    def _needless(self, search: Search[Unit], one: Found[Unit]) -> tuple[str, ...]:
        """Step 4: the other kinds that are read and not needed where this unit is enough."""
        if not one.enough or one.newly is None or not one.cleared:
            return ()
        own = {part.kind for part in one.unit.parts}
        others = tuple(part for unit in self.units for part in unit.parts if part.kind not in own)
        kinds = tuple(sorted({part.kind for part in others}))
        rows = self.study.read_rows.values()
        if not others or max(self._wins_that_read(one, kinds) for one in rows) < HALF:
            return ()
        tasks, unit = chosen_tasks(search.on, self.limits.tasks), Unit(parts=others)
        return kinds if search.exchanged([unit], tasks, before=False)[unit].cleared else ()

    def _wins_that_read(self, rows: Sequence[Row], kinds: Kinds) -> float:
        """The share of a side's wins that read what one of these kinds showed."""
        wins = [row for row in rows if row["outcome"] is not None and row["outcome"] >= WIN]
        read = [any({*of} & {*kinds} for of, _, _ in observed(row)) for row in wins]
        return sum(read) / max(len(read), 1)
