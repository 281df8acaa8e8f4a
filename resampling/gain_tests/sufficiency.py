"""Sufficiency: is one field of the prompt enough for the gain, when everything
else comes from another task?

A cue suffices alone; a skill needs several fields, or the question. All of it
in the world that is scrubbed of every declared channel.

1. *Fields* of the prompts are declared or found by alignment (`fields`).
2. *Worlds*: the policy is shown another task but for what is kept of its own,
   and graded on its own (`shadow`). Where the question is named, all but the
   question is kept: nobody can answer a question that they were not asked.
   Where that is not cleared, or no question is named, each field by itself.
3. *Control*: nothing is kept at all. What is won there needs no reading (blind
   play tells it). A field *carries* the gain in its world less that of the
   control; `placebo_over_bar` is the control's gain minus a fifth of G0: at or
   below zero, the swap of tasks brings no gain by itself.
   A field that was enough for the same share of the wins before training is no
   cue: then what it is *newly* enough for counts (`new_reliance`).
4. *Screening* of what is kept is that of `search`.
5. Parts of the question itself (`PromptParts`), and what needed actions show
   (`NeededShows`), are looked at in the same way, and whether they are newly enough.
   A find there asks the reader, and accuses nobody. So does a line of code that wins the
   set and that *after* may follow (`followed_rules`). One thing of a
   row is answered where the gain stays by content with the rows shuffled.
6. The answer is the field that carries most, so redundant cues are found: each
   suffices.

Where no question is named, a field that suffices may *be* the question; only
its author can tell. Then the test is not cleared, and how much is left or
phantom is `Undefined`, with that cure: nobody is accused. A prompt of one field,
answered in one turn, says nothing: it suffices by necessity, and calling it
harmless would let every cue pass that stands alone. Where the question is
declared to be all that varies, the test is not applicable, and the answer
quotes one, since the reader takes its author's word for it.

Ours; sufficiency and necessity as in 1905.03197 for features. It cannot see a
cue that works only together with the question, or what kind of prompt (template) a
task has; and where prompts do not align, or the policy before training hardly wins, a cue
inside the question. `episodes` bounds what is played.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import Plays, gain_test
from forensics.phrases import joined, plural, points, printable
from forensics.protocols import Alteration, Needing
from forensics.records import JOB, Evidence, GainTest, Table, Undefined
from forensics.verdict import JOINED, grown
from resampling.ablation.gains import certificate
from resampling.ablation.refusal import needed_kinds
from resampling.ablation.refused_runs import Kinds, Played, chosen_tasks
from resampling.gain_tests.altered_worlds import (
    Kept,
    Plan,
    exchanged as exchanged_shown,
    kept as kept_shown,
    shadow,
)
from resampling.gain_tests.fields import (
    NEARLY_ALL,
    PREFIX,
    QUESTION,
    PromptFields,
    by_the_author,
)
from resampling.gain_tests.followed_rules import MOST_EXCHANGED, FollowedRule, FollowedRules
from resampling.gain_tests.gain_study import (
    Carries,
    Comparison,
    EndByEnd,
    GainAnswers,
    GainStudy,
    NewlySufficient,
    has_plain_runs,
    prompts_of,
    require_known_gain,
    study_of,
)
from resampling.gain_tests.hand_ins import WIN, example_of
from resampling.gain_tests.search import HALF, Found, Limits, Search, Subsets
from resampling.gain_tests.units import Row, ShownTexts, Unit, observed, shown_texts

SUFFICIENCY = GainTest(
    name="sufficiency",
    kind="needless",
    excludes="cues in what is read",
    place=60,
    on_terms=True,
    held="are there with one field alone",
    held_by="are there with {names} alone",
    found="is there with a part of what a task shows alone{names}",
    todo=f"if it is the question itself, declare it so; {JOB}",
)
METHOD = "one field kept, all others from another task"
JOINT = "all but the question"
NAME_IT = (
    "Let the environment's `fields` name the question (in a prompts file: the key `question`), or"
    " pass `--accept sufficiency`."
)
SEARCHED = "Parts of the question, and of what needed actions show, were kept as well."
ASKS = (
    "A part of what a task shows is enough for more than a fifth of the gain, newly so or with"
    " nothing else needed: whether that is part of the job is for the reader to say."
)
ALLOW_IT = (
    "Pass `--allow` with its name if it is part of the job; if not, take it out of the world."
)
UNNAMED = (
    "No field of the prompts is named as the question, so what suffices alone may be the question"
    " itself."
)


@dataclass(frozen=True, kw_only=True)
class SufficiencyConfig:
    """`screen`: tasks on which every field is played first, `tasks`: on which
    what is not cleared there is played (of more than 300 tasks in the case, as large a
    share). `most_fields`: fields that are screened (neighbours are kept together where
    there are more), `most_played`: of those that are played on more tasks; `most_units`,
    `most_asked`: of the search in parts (`search.Limits`).
    """

    screen: int = 48
    tasks: int = 150
    most_fields: int = 12
    most_played: int = 4
    most_units: int = 20
    most_asked: int = 4


def plays(case: Case, config: SufficiencyConfig) -> Plays:
    """All but the question, then field by field: as `Sufficiency._carried` plays them. Then parts
    of the prompts and of what needed actions show; how many there are is looked up once the
    plain runs are there. Likely: what is screened first, and parts as of a skill.
    """
    require_known_gain(case)
    afters, most = len(case.afters), 10**6
    rounds, shown, parts = [1, config.most_fields], most, most
    if has_plain_runs(case):
        one = _opened(case, config)
        rounds, parts = one.rounds, len(one.parts.whole.atoms)
        shown = sum(len(unit.atoms) for unit in one.shown.units)
    elif not isinstance(case.environment, Needing):
        shown = 0
    limits = limits_of(case, config)
    likely = limits.screen * (afters * rounds[0] + 1 + afters) if rounds else 0
    likely += limits.likely_runs(shown, afters) + limits.likely_runs(parts, afters)
    total = sum(limits.most_screened(one, config.most_played, afters) for one in rounds)
    total += limits.most_runs(shown, afters) + limits.most_runs(parts, afters)
    total += (1 + MOST_EXCHANGED) * limits.tasks * (1 + afters)  # of rules: rows shuffled, fields
    total += limits.most_asked * limits.tasks * afters if shown else 0  # what else is needed
    return Plays(likely, total).times(case.budget.samples)


def limits_of(case: Case, config: SufficiencyConfig) -> Limits:
    """How much is searched."""
    most = len(case.tasks)
    return Limits(
        screen=min(config.screen, most),
        tasks=min(grown(config.tasks, most), most),
        asked=most,
        most_units=config.most_units,
        most_asked=config.most_asked,
    )


@gain_test(SUFFICIENCY, config=SufficiencyConfig(), episodes=plays)
def sufficiency(case: Case, config: SufficiencyConfig) -> Iterator[Evidence | Undefined]:
    """Answers about the fields of the prompts; raises `MissingInput` for what the
    case cannot give.
    """
    yield from _opened(case, config).answers()


def _opened(case: Case, config: SufficiencyConfig) -> "Sufficiency":
    study = study_of(case)
    fields = prompts_of(study)
    say = GainAnswers.of(sufficiency, case, config, METHOD)
    return Sufficiency(study=study, fields=fields, config=config, say=say)


@dataclass(frozen=True, kw_only=True)
class Sufficiency:
    """The fields of a case, and what each carries."""

    study: GainStudy
    fields: PromptFields
    config: SufficiencyConfig
    say: GainAnswers

    def answers(self) -> Iterator[Evidence | Undefined]:
        """Every answer."""
        prompts = list(self._of_prompts())
        over = next(one for one in prompts if one.question == SUFFICIENCY.asked)
        known = isinstance(over, Evidence) and over.interval
        for rule in self.rules.found:
            yield self._told_rule(rule)
        if known and known.low > 0:
            yield from prompts
            return
        for one in self.searched:
            yield self._told_of(one)
        searched = [rule.carries for rule in self.rules.found]
        searched += [self._carries(one) for one in self.searched]
        cleared = all(one.cleared for one in searched)
        applicable = isinstance(over, Evidence) and over.diagnostics.get("applicable", True)
        if not searched or (cleared and not known):
            yield from prompts
            return
        rest = [one for one in prompts if one is not over]
        parts = [*self.found.values(), *searched]
        told = over.summary if isinstance(over, Evidence) and applicable else ""
        summary = f"{told.partition(' The worst:')[0]} {SEARCHED}".strip()
        whole = self.say.whole(EndByEnd(parts=parts), summary, "The worst:", every=False)
        yield from whole
        if cleared:
            yield from rest
        else:
            yield from (one for one in rest if one.question == SUFFICIENCY.shared and one.about)
            for question in SUFFICIENCY.questions[1:]:
                yield self.say.make.undefined(question, MissingInput(ASKS, ALLOW_IT))

    @cached_property
    def searched(self) -> list[Found[Any]]:
        """The parts of the prompts, and of what needed actions show, that may be enough."""
        played = {_source(kept) for kept in self.found}
        parts = (one for one in self.parts.found if one.unit.name not in played)
        return [*parts, *self.shown.found]

    @cached_property
    def parts(self) -> "PromptParts":
        """Parts of the question, cut as the rest of the prompts is."""
        cut = prompts_of(self.study, but=(QUESTION,)) if self.fields.asked else self.fields
        limits = limits_of(self.study.case, self.config)
        return PromptParts(study=self.study, named=self.fields, cut=cut, limits=limits)

    @cached_property
    def rules(self) -> FollowedRules:
        """Lines of code that win the set, and what the gain loses with its rows shuffled."""
        most = limits_of(self.study.case, self.config).tasks
        return FollowedRules(study=self.study, fields=self.parts.cut, named=self.fields, most=most)

    def _in_row(self, one: Found[Any]) -> bool:
        """Whether it is one thing of a row, and how newly it is enough nobody can tell."""
        part = isinstance(one.unit, PromptPart) and len(one.unit.atoms) == 1 and one.newly is None
        return part and self.rules.in_rows.issuperset(one.unit.atoms)

    def _carries(self, one: Found[Any]) -> Carries:
        """What a part carries; where it is one thing of a row and the gain stays by content with
        the rows shuffled, what the gain loses by that.
        """
        if one.cleared or not self._in_row(one):
            return one.carries
        order = self.rules.order
        return order if order is not None and order.cleared else one.carries

    @cached_property
    def shown(self) -> "NeededShows":
        """What needed actions show."""
        fields = self.fields
        have = fields.asked if fields.named else tuple(fields.pieces)
        donors = fields.donors(have, self.study.case.seed, apart=True)
        plan = Plan(fields=fields, donors=donors, kept=Kept(apart=True))
        limits = limits_of(self.study.case, self.config)
        return NeededShows(study=self.study, plan=plan, limits=limits)

    def _told_of(self, one: Found[Any]) -> Evidence:
        """What one part of what was shown carries, and by what."""
        how = f"Of what is shown, `{printable(one.unit.name)}` is enough for"
        how += f" {points(one.alone.carried.estimate, 1)} points alone"
        told: dict[str, Any] = {"shown": True, "enough": one.alone.carried.estimate}
        shown: tuple[Table, ...] = ()
        if isinstance(one.unit, PromptPart):
            told["said"] = joined([*map(self.parts.cut.said, one.unit.atoms)])
            shown = example_of(self.study, self.parts.keeping(one.unit))
        if one.newly is not None:
            how += f", and newly so for {points(one.newly.carried.estimate, 1)}"
            told["newly"] = one.newly.carried.estimate
            kinds = printable(" and ".join(one.needless))
            how += f"; with it there, what {kinds} shows is not needed" if kinds else ""
        elif one.open:
            how += ", and not all of its parts were looked at"
        elif one.enough:
            how += ", and the policy before training wins too little to say how new that is"
        if not one.cleared and self._in_row(one):
            how += f". {self.rules.order_told}"
        carries = self._carries(one)
        return self.say.carried(
            one.unit.name, carries, f"{how}: ", diagnostics=told, artifacts=shown
        )

    def _told_rule(self, one: FollowedRule) -> Evidence:
        told = {"rule": True, "said": f"{one.rule.words} in the prompt"}
        return self.say.carried(
            one.name,
            one.carries,
            f"{one.told}: ",
            diagnostics=told,
            artifacts=self.rules.example,
        )

    def _of_prompts(self) -> Iterator[Evidence | Undefined]:
        """What the fields of the prompts carry."""
        if self._why_nothing:
            yield from self.say.not_applicable(self._why_nothing, self.study.gain)
        elif not self.fields.named and self._why_not:
            yield from self.say.not_tested(self._why_not, NAME_IT)
        else:
            yield from self._told()

    @cached_property
    def _why_nothing(self) -> str:
        """Why there is nothing to keep; else empty."""
        fields, sources = self.fields, [f"`{PREFIX}{name}`" for name in self.varying]
        if not fields.beside and not (self.fields.named or sources):
            return "The prompt is the same for every task."
        if not fields.beside and self.fields.named:
            return f"Beside the question nothing in the prompts varies. {self.named_as}"
        if sources and not self.single:
            return f"What varies in the prompts is allowed: {', '.join(sources)}."
        return ""

    # -- what there is -----------------------------------------------------------------

    @property
    def rounds(self) -> list[int]:
        """How many fields are played at most, together with each control."""
        single = [len(self.single)] if self.single else []
        if not self.fields.named:
            return [] if self._why_not else single
        if not self.fields.beside:
            return []
        return [1, *(single if self.fields.aligns and len(self.single) > 1 else [])]

    @property
    def named_as(self) -> str:
        """Whose word the question is, and one of them."""
        return by_the_author(self.fields.values[self.fields.asked[0]][QUESTION])

    @cached_property
    def varying(self) -> tuple[str, ...]:
        """The fields beside the question."""
        return tuple(name for name in self.fields.names if name != QUESTION)

    @cached_property
    def exempt(self) -> frozenset[str]:
        """The fields that the reader allows."""
        return frozenset(name for name in self.varying if PREFIX + name in self.study.case.allowed)

    @cached_property
    def single(self) -> tuple[Kept, ...]:
        """The fields one by one, neighbours together where there are many."""
        names = [name for name in self.varying if name not in self.exempt]
        parts = min(len(names), self.config.most_fields)
        ends = [len(names) * number // parts for number in range(parts + 1)] if parts else []
        return tuple(Kept(names=frozenset(names[a:b])) for a, b in pairwise(ends))

    @property
    def joint(self) -> Kept:
        return Kept(names=frozenset({QUESTION, *self.exempt}), own=True, apart=True)

    def plan(self, kept: Kept) -> Plan:
        return Plan.of(self.fields, self.study.case.seed, kept)

    # -- what it carries ---------------------------------------------------------------

    @property
    def _why_not(self) -> str:
        """Why this cannot be tested while no question is named; else empty."""
        fields, prompts = self.fields, plural(len(self.fields.pieces), "prompt")
        if fields.alike:
            return "More than half of the prompts name the same question, so more is asked."
        if fields.asked:
            return f"The question is named in {len(fields.asked):,} of {prompts}."
        if not self.fields.aligns or not self.single:
            shared = f"{len(fields.aligned):,} of {prompts} have a template that others have too"
            return f"The prompts do not align ({shared}), or nothing in a template varies."
        if self.study.most_turns == 1 and len(self.varying) == 1:
            return (
                f"The prompts have one field, `{PREFIX}{self.varying[0]}`, and runs have one turn:"
                " it suffices by necessity, be it the question or a cue."
            )
        return ""

    @cached_property
    def found(self) -> dict[Kept, Comparison]:
        """What the fields carry; none where there are none, or that cannot be told."""
        if self._why_nothing or not self.fields.named:
            return {} if self._why_nothing or self._why_not else self._carried(*self.single)
        found = self._carried(self.joint)
        if not found[self.joint].cleared and len(self.single) > 1 and self.fields.aligns:
            found |= self._carried(*self.single)
        return found

    def _carried(self, *fields: Kept) -> dict[Kept, Comparison]:
        """What each of these carries, or newly carries where that clears it."""
        limits = limits_of(self.study.case, self.config)
        nothing = Kept(apart=fields[0].apart)
        search = Search[Kept](
            study=self.study,
            on=sorted(self.plan(nothing).donors),
            keeping=lambda kept: shadow(self.plan(kept or nothing)),
        )
        found = search.screened(fields, limits.screen, limits.tasks, self.config.most_played)
        return {one: _beyond_before(amount) for one, amount in found.items()}

    # -- what is said ------------------------------------------------------------------

    def _told(self) -> Iterator[Evidence | Undefined]:
        told = {"question_named": self.fields.named}
        for kept, found in self.found.items():
            how = f"With {_source(kept)} kept and everything else from another task, "
            names = [] if kept.own else sorted(kept.names)
            said = {"said": joined([*map(self.fields.said, names)])} if names else {}
            shown = example_of(self.study, shadow(self.plan(kept)))
            known = {**told, **said}
            yield self.say.carried(_source(kept), found, how, diagnostics=known, artifacts=shown)
        most = EndByEnd(parts=tuple(self.found.values()))
        summary = self.named_as if self.fields.named else UNNAMED
        for answer in self.say.whole(most, summary, "The worst:", diagnostics=told):
            name = answer.question.removeprefix(f"{SUFFICIENCY.name}.")
            if self.fields.named or most.cleared or name not in ("left", "phantom_over_bar"):
                yield answer
            else:
                yield self.say.make.undefined(answer.question, MissingInput(UNNAMED, NAME_IT))


def _beyond_before(amount: Comparison) -> Comparison:
    """What a field is newly enough for, where that is surely little."""
    alone = NewlySufficient(panel=amount.panel, level=amount.level, alone=True)
    return alone if not amount.cleared and alone.newly.cleared else amount


def _source(kept: Kept) -> str:
    """What an answer is about."""
    return JOINT if kept.own else " and ".join(PREFIX + one for one in sorted(kept.names))


# -- what needed actions show ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class NeededShows:
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

    What needed actions show in a study, and what each unit carries. `plan`: of
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
            keeping=lambda unit: kept_shown(plan, texts, unit) if unit else shadow(plan),
            exchanging=lambda unit: exchanged_shown(texts, unit),
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


# -- parts of the question ---------------------------------------------------------------


@dataclass(frozen=True)
class PromptPart:
    """Some fields of the prompts, in the order of their appearance."""

    atoms: tuple[str, ...]

    @property
    def name(self) -> str:
        return JOINED.join(PREFIX + one for one in self.atoms)

    @property
    def halves(self) -> "tuple[PromptPart, ...]":
        middle = len(self.atoms) // 2
        both = (self.atoms[:middle], self.atoms[middle:]) if middle else ()
        return tuple(PromptPart(one) for one in both)

    def but(self, atoms: Iterable[str]) -> "PromptPart":
        gone = set(atoms)
        return PromptPart(tuple(one for one in self.atoms if one not in gone))


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptParts:
    """Is some part of the question enough for the gain, and newly so?

    The question is known by its author's word alone, and a cue may stand in it: the
    options of a quiz, of which one differs from all others. A skill needs the rest of it
    as well. Where no question is named, all of the prompt may be it.

    1. *Parts*: the fields that the question is made of. They are found by alignment as
       those of the prompts are (`fields`), the question not being named.
    2. *Worlds*: the task's own prompt, in which the rest of the question is another
       task's (`shadow`). In the control all of it is.
    3. The smallest parts (`search`) that are enough alone, and newly so. Where *before* wins too
       little to tell how newly, a single field among several is told all the same: a skill
       needs all that is asked. Whole questions are enough alone, and not told.

    A find is a question to the reader, as that of what needed actions show is.

    Ours. It cannot see a part that was enough for as many wins of *before*, or anything where
    prompts do not align.

    The question of a study in fields, by prompts that do not name it (`cut`) and
    by those that may (`named`). `limits`: of the search.
    """

    study: GainStudy
    named: PromptFields
    cut: PromptFields
    limits: Limits

    @cached_property
    def whole(self) -> PromptPart:
        """All fields but those that the reader allows; none where prompts do not align."""
        allowed = self.study.case.allowed
        names = [one for one in self.cut.names if PREFIX + one not in allowed and self._asked(one)]
        return PromptPart(tuple(names) if self.cut.aligns and len(names) > 1 else ())

    def _asked(self, name: str) -> bool:
        """Whether a field stands in the question of nearly every task that names one."""
        inside = [
            values[name] in self.named.values[task][QUESTION]
            for task in self.named.asked
            if name in (values := self.cut.values[task])
        ]
        return sum(inside) >= NEARLY_ALL * len(inside)

    def keeping(self, part: PromptPart | None) -> Alteration:
        """The world in which of all that is asked only this is the task's own."""
        rest = self.whole.but(part.atoms) if part else self.whole
        kept = Kept(names=frozenset(rest.atoms), own=True)
        return shadow(Plan.of(self.cut, self.study.case.seed, kept))

    @cached_property
    def found(self) -> list[Found[PromptPart]]:
        """The smallest parts that are surely enough alone, and newly so as far as can be told."""
        whole = self.whole
        if not whole.atoms:
            return []
        on = sorted(self.cut.aligned)
        search = Search[PromptPart](study=self.study, on=on, keeping=self.keeping)
        found = Subsets(search=search, limits=self.limits).of(whole)
        return [
            one
            for one in found
            if one.carries.found and (one.newly is not None or len(one.unit.atoms) == 1)
        ]
