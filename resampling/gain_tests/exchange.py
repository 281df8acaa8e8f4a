"""Exchange: what does the gain owe to what one kind of action showed, or to one
field of the prompt, if that comes from another task?

All of it in the world that is scrubbed of every declared channel.

1. *Sources*: the kinds of action of which a run read what they showed, and,
   where the question is named, the other fields of the prompts (without it any
   field may be part of the question, which a skill needs). What the environment
   calls `needed` and what the reader allows is exempt.
2. *Usage certificate*, no play: exchanging what a kind shows changes only runs
   that read it before their last action. If the kinds together are cleared by
   it and there is no field, nothing is played.
3. *Jointly*: everything at once (`dealt_world`), both policies, on all tasks.
4. *Part of the job.* Where that is not at most a fifth of the gain, fields that
   the policy before training needed for the same share of its wins are no
   question (`new_reliance`; for *everything* another task is shown): all of them, or
   those single ones of which that holds alone and together. So are those that nearly
   all of those wins need, if they alone, all else from another task, are newly enough for
   at most a fifth. They are left as they are, and the rest is exchanged together once more.
5. What is not cleared then, each source by itself on fewer tasks, and pairs where
   no single one was found: two redundant sources carry nothing each.

What a source carries is what the gain loses. Exchange alone says that the gain
*needs* a source, which may be an honest tool that nobody allowed; it accuses
nobody. It cannot see a shortcut inside what is needed or allowed, one that shows
the same on all tasks, and what *before* loses as much by as *after*; and it takes
an action that chains several kinds as one.

Ours; interchange interventions (2106.02997) on texts in place of activations.
"""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import Plays, gain_test
from forensics.phrases import joined, percent, points, printable
from forensics.protocols import Fielded
from forensics.records import JOB, Evidence, GainTest, Table, Undefined
from forensics.verdict import JOINED
from resampling.ablation.gains import Carried, certificate
from resampling.ablation.refusal import needed_kinds
from resampling.ablation.refused_runs import Kinds, Played, chosen_tasks
from resampling.gain_tests.altered_worlds import Deal, Kept, Plan, dealt, shadow
from resampling.gain_tests.fields import PREFIX, QUESTION, PromptFields
from resampling.gain_tests.gain_study import (
    Comparison,
    EndByEnd,
    GainAnswers,
    GainStudy,
    NewReliance,
    Pair,
    has_plain_runs,
    prompts_of,
    require_known_gain,
    study_of,
)
from resampling.gain_tests.hand_ins import example_of
from resampling.gain_tests.search import Search
from resampling.gain_tests.units import Donors, donors_of

EXCHANGE = GainTest(
    name="exchange",
    kind="needed",
    excludes="cues in what is read",
    place=40,
    on_terms=True,
    held="need what was shown",
    held_by="need what {names} showed",
    found="runs through what {names} showed: is that part of the job?",
    todo=JOB,
)
METHOD = "what was shown, exchanged for what another task showed"


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig:
    """`tasks` on which single sources and pairs are exchanged; `most_sources`
    (those that are used most) and `most_pairs` of them.
    """

    tasks: int = 150
    most_sources: int = 6
    most_pairs: int = 3


def plays(case: Case, config: ExchangeConfig) -> Plays:
    """Everything at once on all tasks, which is what is likely; then each source and pair
    on fewer; where there are fields, what the policy before training needs of them too.
    Which sources there are is known once the plain runs are there.
    """
    require_known_gain(case)
    kinds, fields = config.most_sources, config.most_sources
    if has_plain_runs(case):
        say = GainAnswers.of(exchange, case, config, METHOD)
        kinds, fields = Exchange(study=study_of(case), config=config, say=say).most_sources
    elif not isinstance(case.environment, Fielded):
        fields = 0
    both = min(kinds + fields, config.most_sources)
    whole = (both > 0) + 6 * (fields > 0)
    few = both + min(config.most_pairs, both * (both - 1) // 2) if both > 1 else 0
    few += 2 * min(fields, config.most_sources)
    tasks = len(case.tasks)
    played = Plays((both > 0) * tasks, whole * tasks + few * min(config.tasks, tasks))
    return played.times((1 + len(case.afters)) * case.budget.samples)


@gain_test(EXCHANGE, config=ExchangeConfig(), episodes=plays)
def exchange(case: Case, config: ExchangeConfig) -> Iterator[Evidence | Undefined]:
    """Answers about what is shown; raises `MissingInput` for what the case cannot give."""
    study = study_of(case)
    say = GainAnswers.of(exchange, case, config, METHOD)
    yield from Exchange(study=study, config=config, say=say).answers()


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The sources of a case, and what each carries."""

    study: GainStudy
    config: ExchangeConfig
    say: GainAnswers

    def answers(self) -> Iterator[Evidence | Undefined]:
        """Every answer."""
        if joined := [kind for kind in self.kinds if JOINED in kind]:
            name = printable(joined[0])
            why = f"A kind of action is called {name}, which reads like several kinds."
            yield from self.say.not_tested(why, "Give it another name.")
        elif not self.kinds and not self.fields:
            why = "No run reads what an action shows, so there is nothing to exchange."
            if self.read.kinds:
                why = "All that actions show is needed or allowed."
            yield from self.say.not_applicable(why, self.study.gain)
        elif not self.fields and self.certified(self.kinds).cleared:
            yield from self._bounded()
        else:
            yield from self._told()

    # -- the sources -------------------------------------------------------------------

    @property
    def most_sources(self) -> tuple[int, int]:
        """How many kinds and fields may be exchanged; none where nothing is played."""
        bounded = not self.fields and self.certified(self.kinds).cleared
        nothing = bounded or any(JOINED in kind for kind in self.kinds)
        return (0, 0) if nothing else (len(self.kinds), len(self.fields))

    @cached_property
    def read(self) -> Played:
        """The plain runs without the last action of each, which shows nothing that is read."""
        return self.study.as_if(_but_the_last)

    @cached_property
    def donors(self) -> Donors:
        rows = chain(*self.study.read_rows.values())
        return donors_of(rows, self.study.case.tasks, self.study.case.seed)

    @cached_property
    def exempt(self) -> frozenset[str]:
        """What the environment calls needed, and what the reader allows."""
        case = self.study.case
        return frozenset({*needed_kinds(case.environment), *case.allowed})

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds of action that may be exchanged."""
        return tuple(kind for kind in self.read.kinds if kind not in self.exempt)

    @cached_property
    def prompts(self) -> PromptFields | None:
        """The prompts, where the question of nearly all is named and they align."""
        try:
            found = prompts_of(self.study)
        except MissingInput:
            return None
        return found if found.named and found.aligns else None

    @cached_property
    def fields(self) -> Kinds:
        """The fields of the prompts that may be exchanged."""
        names = () if self.prompts is None else self.prompts.names
        return tuple(
            PREFIX + name
            for name in names
            if name != QUESTION and self.exempt.isdisjoint({name, PREFIX + name})
        )

    # -- what they carry ---------------------------------------------------------------

    def certified(self, kinds: Kinds) -> Carried:
        """What these kinds carry at most, from who read them."""
        return certificate(self.read, kinds, self.study.gain)

    def deal(self, sources: Kinds) -> Deal:
        kinds = frozenset(sources).difference(self.fields)
        plan = self.plan(sources, own=True) if len(kinds) < len(sources) else None
        return Deal(kinds=kinds, donors=self.donors, plan=plan)

    def plan(self, sources: Kinds, **how: bool) -> Plan:
        """With what is kept of the fields among these."""
        assert self.prompts is not None, "there are fields"
        names = frozenset(one.removeprefix(PREFIX) for one in sources if one in self.fields)
        return Plan.of(self.prompts, self.study.case.seed, Kept(names=names, **how))

    @cached_property
    def found(self) -> dict[Kinds, Comparison]:
        """What all sources carry together, without those that are part of the job, and each."""
        tasks, sources = self.study.case.tasks, (*self.kinds, *self.fields)
        found: dict[Kinds, Comparison] = {**self.search.exchanged([sources], tasks)}
        if found[sources].cleared:
            return found
        if job := self._part_of_the_job():
            known = {one for fields in job for one in fields}
            sources = tuple(one for one in sources if one not in known)
            found = {**job, **self.search.exchanged([sources] if sources else [], tasks)}
        if sources and not found[sources].cleared:
            every, pairs = self._used_most(sources), self.config.most_pairs
            found |= self.search.apart(every, found, self.few, operator.add, pairs)
        return found

    @cached_property
    def search(self) -> Search[Kinds]:
        return Search(
            study=self.study,
            on=sorted(self.prompts.asked) if self.prompts else (),
            keeping=lambda sources: shadow(self.plan(sources or (), apart=True)),
            exchanging=lambda sources: dealt(self.deal(sources)),
        )

    @cached_property
    def everything(self) -> Pair:
        """Both sides with everything taken from another task."""
        return self.search.control(len(self.search.on))

    def _part_of_the_job(self) -> dict[Kinds, NewReliance]:
        """The fields that *before* needed for the same share of its wins: all, or
        those of which it holds one by one and together; with what is newly carried.
        """
        if not self.fields:
            return {}
        cleared = self._newly([self.fields], self.study.case.tasks)
        if cleared or len(self.fields) == 1:
            return cleared
        single = [(one,) for one in self.fields[: self.config.most_sources]]
        cleared = self._newly(single, self.few)
        together = tuple(one for (one,) in cleared)
        return self._newly([together], self.study.case.tasks) if together else {}

    def _newly(self, sets: Sequence[Kinds], tasks: tuple[str, ...]) -> dict[Kinds, NewReliance]:
        """Those of these sets of fields that newly carry at most a fifth of the gain."""
        search, found = self.search, {}
        for sources, one in zip(sets, search.newly(sets, tasks, self.everything), strict=True):
            if not one.cleared and one.by_all:
                (one,) = search.newly([sources], tasks, self.everything, alone=True)
            if one.cleared:
                found[sources] = one
        return found

    def _used_most(self, sources: Kinds) -> list[Kinds]:
        """Fields, and the kinds that may carry something, those first that are read most."""
        usage = {kind: self.read.after_usage(kind) for kind in self.kinds if kind in sources}
        kinds = [
            kind
            for kind in sorted(usage, key=lambda kind: -usage[kind])
            if not self.certified((kind,)).cleared
        ]
        every = [*(one for one in self.fields if one in sources), *kinds]
        return [(one,) for one in every[: self.config.most_sources]]

    @property
    def few(self) -> tuple[str, ...]:
        """The tasks on which single sources are exchanged."""
        return chosen_tasks(self.study.case.tasks, self.config.tasks)

    # -- what is said ------------------------------------------------------------------

    def _bounded(self) -> Iterator[Evidence | Undefined]:
        bound = self.certified(self.kinds)
        for kind in self.kinds:
            yield self.say.carried(
                kind, self.certified((kind,)), "By the runs that read it, at most: "
            )
        high = points(bound.carried.high, 1)
        told = f"By the runs that read what {', '.join(self.kinds)} showed, at most {high} points."
        yield from self.say.whole(bound, printable(told, 300))

    def _told(self) -> Iterator[Evidence | Undefined]:
        for sources, found in self.found.items():
            about = JOINED.join(sources)
            how = f"With what {printable(about)} shows taken from another task, "
            if isinstance(found, NewReliance) and found.alone:
                how = (
                    f"Before training nearly every win needed {printable(about)}, so it is part of"
                    " the job; what it is newly enough for by itself: "
                )
            elif isinstance(found, NewReliance):
                how = (
                    f"Before training {percent(found.shared)} of the wins needed"
                    f" {printable(about)} too, so it is part of the job; beyond that, "
                )
            names = [one.removeprefix(PREFIX) for one in sources]
            known: dict[str, str] = {}
            shown: tuple[Table, ...] = ()
            if self.prompts is not None and sources and {*sources} <= {*self.fields}:
                known["said"] = joined([*map(self.prompts.said, names)])
                shown = example_of(self.study, dealt(self.deal(sources)), won=False)
            yield self.say.carried(about, found, how, diagnostics=known, artifacts=shown)
        told = f"Exchanged: {', '.join((*self.kinds, *self.fields))}."
        yield from self.say.whole(EndByEnd(parts=tuple(self.found.values())), printable(told, 300))


def _but_the_last(row: dict[str, Any]) -> dict[str, Any]:
    acts = [number for number, step in enumerate(row["steps"]) if step["role"] == "assistant"]
    return {**row, "steps": row["steps"][: acts[-1]] if acts else row["steps"]}
