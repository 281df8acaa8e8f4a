"""Action ablation: what does the gain owe to kinds of action that nobody
allowed, and do its hand-ins stand?

All of it in the world that is scrubbed of every declared channel, so on the
part of the gain that survives there (with no declared channel: on the whole
gain).

1. *Graded again*: every hand-in in a fresh copy of its task (`fresh_copy`), a
   missing one as an empty one.
2. *Usage certificate* (`gains`): the kinds that are neither `needed` by the
   environment's word nor allowed by the reader, all together, from who tried
   them. Where it clears them, nothing is played.
3. *Pilot*, few tasks and *before* alone: which of them can be refused at all,
   and which does *before* need itself? What cannot be judged is named and
   leaves the test open.
4. *Jointly*: both policies with all the others refused, on all tasks, for what
   they carry at most.
5. Where that is not at most a fifth, each by itself, and pairs (a refused kind
   and the one that *after* then turned to): (a) more than half of the gain
   vanishes, by Benjamini-Hochberg over the kinds; (b) the before policy hardly
   needs the kind; (c) the answer came out of what the kind returned
   (`refused_runs.holds_answer`), or the wins do not stand in a fresh copy: a *shortcut*.
6. A kind that is not cleared then, or that *before* needs too, is split by its
   object, if it serves several (`recurring`): `open status.txt` is refused by
   itself. Where such objects carry more than a fifth, `open` means the others.
   Objects of a `needed` kind are named where *after* turned to them.
7. Once more jointly, without what was found or could not be judged, so that the
   reader who allows just these has an answer at hand.

Ours (docs/methods.md; the neighbours are 2506.19143 and 2510.27484). A run in
which every draw was refused is missing, counted, never a failure; with many of
them the kind cannot be judged.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.layers import GENUINE_BAR, OPEN, World, channel_names, gain, paired
from forensics.phrases import percent, printable
from forensics.protocols import Environment, Needing, Withholding
from forensics.records import Evidence, Undefined
from forensics.runs import Condition
from forensics.statistics import Contrast, benjamini_hochberg
from forensics.verdict import JOINED
from forensics.world import PlayedElsewhere
from resampling.ablation import ablation_evidence as say
from resampling.ablation.ablation_evidence import AblationEvidence
from resampling.ablation.gains import (
    MOST_TURNS,
    AblationConfig,
    Carried,
    Judged,
    before_needs,
    certificate,
    compare,
)
from resampling.ablation.refused_runs import (
    RULE,
    Kinds,
    Played,
    chosen_tasks,
    holds_answer,
    object_use,
    plain_side,
    played_plainly,
    played_without,
    recurring,
    side_without,
    substitutes,
)


def scrubbed_world(case: Case) -> World:
    """The world without any declared channel; the open one where none is
    declared, or the logs hold no other.
    """
    try:
        world = channel_names(case)
    except MissingInput:
        return OPEN
    return world if case.runs_models or ("before", world) in case.stored else OPEN


def needed_kinds(world: Environment | None) -> Kinds:
    """What an honest solver needs, by the environment's word."""
    return tuple(world.needed) if isinstance(world, Needing) else ()


@dataclass(frozen=True, kw_only=True)
class AblationStudy:
    """One ablation: the case's own runs in the world, and what is worked out
    from them. `accused`: what is called a shortcut already.
    """

    case: Case
    config: AblationConfig
    world: World
    plain: Played
    evidence: AblationEvidence
    accused: frozenset[str | None] = frozenset()
    judged: Judged = field(default_factory=Judged)

    @cached_property
    def gain(self) -> Contrast:
        """The gain in this world."""
        return paired({OPEN: self.plain.pair}, None).estimate(gain(OPEN), self.config.level)

    @property
    def needed(self) -> tuple[str, ...]:
        """What an honest solver needs, by the environment's word."""
        return needed_kinds(self.case.environment)

    def kinds(self) -> Iterator[Evidence | Undefined]:
        """Every answer about kinds of action."""
        judged, tried = self.judged, self.plain.kinds
        self._tell_unseen()
        allowed = tuple(sorted(set(self.case.allowed)))
        joined = [kind for kind in tried if JOINED in kind]
        if joined or not tried:
            why = "No run shows a kind of action that could be refused."
            if joined:
                name = printable(joined[0])
                why = f"A kind of action is called {name}, which reads like several kinds."
            yield self.evidence.not_jointly(None, (why,), ())
            return
        rest = tuple(kind for kind in tried if kind not in {*self.needed, *allowed})
        whole = certificate(self.plain, rest, self.gain)
        for kind in rest:
            judged.carried[kind,] = certificate(self.plain, (kind,), self.gain)
        if not whole.cleared or self.config.each:
            yield from self._refused(rest, whole)
        yield from (
            self.evidence.carried(kinds, one)
            for kinds, one in sorted(judged.carried.items())
            if len(kinds) > 1 or kinds[0] not in judged.not_refusable
        )
        yield from (
            self.evidence.not_judged((kind,), why)
            for kind, why in sorted(judged.not_refusable.items())
        )
        yield self._together(say.named(allowed) or None, judged.carried.get(rest, whole))
        further = tuple(sorted({*allowed, *judged.named()}))
        left = tuple(kind for kind in rest if kind not in further)
        if further != allowed:
            yield self._once_allowed(further, left)

    def _tell_unseen(self) -> None:
        """Of what an agent's harness calls needed: what no run did, by a name that is known."""
        unseen = sorted({*self.needed} - {*self.plain.kinds})
        if unseen and isinstance(self.case.environment, PlayedElsewhere):
            names, known = (", ".join(map(printable, few)) for few in (unseen, self.plain.kinds))
            logging.getLogger("forensics").warning(
                "`needed` names %s, which no run did; the kinds of action of these runs: %s",
                names,
                known,
            )

    def _together(self, key: str | None, together: Carried) -> Evidence | Undefined:
        """The test's answer: the worst that was found, else what is open,
        else what all carry `together`.
        """
        found, reasons = self.judged.found().values(), self.judged.reasons
        if reasons and not found:
            return self.evidence.not_jointly(key, reasons, sorted(self.judged.named()))
        worst = max(
            found, key=lambda one: (one.over_bar.low, one.over_bar.estimate), default=together
        )
        return self.evidence.jointly(key, worst, self.plain.kinds, self.needed, self._turned_to())

    def _turned_to(self) -> list[str]:
        """Objects of needed kinds that the policy after training turned to."""
        tried = [kind for kind in self.needed if kind in self.plain.kinds]
        return recurring(object_use(self.case, self.world, tried), self.config.turned)

    def _once_allowed(self, further: Kinds, left: Kinds) -> Evidence | Undefined:
        """The same once the reader allows `further`."""
        key, spared = say.named(further), tuple(self.judged.objects)
        plain = played_plainly(self.case, self.world, split=further) if spared else self.plain
        bound = certificate(plain, left, self.gain)
        carried = bound if bound.cleared else self._jointly(left, spared)
        if isinstance(carried, str):
            return self.evidence.not_jointly(key, (carried,), left)
        return self.evidence.jointly(key, carried, self.plain.kinds, self.needed)

    def _refused(self, rest: Kinds, whole: Carried) -> Iterator[Evidence | Undefined]:
        """Play what the certificate does not clear; what is learnt goes into `judged`."""
        judged = self.judged
        suspects = [kind for kind in rest if not judged.carried[kind,].cleared]
        judged.not_refusable.update(self._pilot(suspects))
        joint = tuple(kind for kind in rest if kind not in judged.not_refusable)
        cleared = whole.cleared
        if joint and not cleared:
            played = self._jointly(joint)
            if isinstance(played, str):
                judged.not_jointly[joint] = played
            else:
                judged.carried[joint], cleared = played, played.cleared
        if not cleared or self.config.each:
            yield from self._singly([kind for kind in suspects if kind in joint])
        if judged.not_refusable:
            few = chosen_tasks(self.case.tasks, self.config.tasks)
            plain = self._plainly(few)
            if objects := self._objects(judged.not_refusable, plain, few):
                yield from self._answers(objects, plain)

    def _pilot(self, suspects: Sequence[str]) -> dict[str, str]:
        """Kinds that cannot be judged by refusing them, and why."""
        if len(self.plain.kinds) < 2:
            return {
                kind: (
                    f"{printable(kind)} is the only kind of action, so nothing could take its place"
                    " if it were refused."
                )
                for kind in suspects
            }
        tasks = chosen_tasks(self.case.tasks, self.config.pilot)
        own = plain_side(self.case, "before", self.world, tasks, self.case.allowed)
        reasons: dict[str, str] = {}
        for kind in self._most_used(suspects):
            side = side_without(
                self.case,
                "before",
                self.world,
                (kind,),
                tasks,
                self.config.max_redraws,
                tuple(self.case.allowed),
            )
            if side.missing > self.config.most_missing:
                reasons[kind] = _stuck((kind,), side.missing)
            elif before_needs(own.runs, side.runs, self.config.bars).high < 0:
                reasons[kind] = (
                    f"The policy before training needs {printable(kind)} too, so refusing it cannot"
                    " say what the gain owes to it."
                )
        return reasons

    def _most_used(self, kinds: Sequence[str]) -> list[str]:
        """At most so many of them as are refused by themselves."""
        before = self.plain.before.usage
        usage = {kind: max(self.plain.after_usage(kind), before.get(kind, 0.0)) for kind in kinds}
        return sorted(kinds, key=lambda kind: -usage[kind])[: self.config.most_kinds]

    def _jointly(self, kinds: Kinds, but: Kinds = ()) -> Carried | str:
        """What these kinds carry together, `but` for some objects, played on all
        tasks; why, where it cannot be told.

        Kinds that no run had tried, and to which runs turn when these are
        refused, are refused too. Those to which few runs turn stay, and such a
        run counts as lost, before training as won.
        """
        spared = {*self.plain.kinds, *self.needed, *self.case.allowed, *but}
        for _ in range(MOST_TURNS):
            runs = self._without([kinds], self.case.tasks, but)[kinds]
            if runs.missing > min(self.config.most_missing, GENUINE_BAR * self.gain.low):
                return _stuck(kinds, runs.missing)
            if kept := [kind for kind in runs.kinds if kind in kinds]:
                return f"{printable(say.named(tuple(kept)))} was refused and taken all the same."
            turned = tuple(kind for kind in runs.kinds if kind not in spared)
            if certificate(runs, turned, self.gain).cleared:
                pairs = (runs.pair, runs.pair_at_worst(turned))
                carried, worst = (
                    compare(self.plain.pair, pair, self.config.bars).carried for pair in pairs
                )
                return carried.at_worst(worst, runs.missing_in_all)
            kinds = tuple(sorted({*kinds, *turned}))
        return (
            "Whatever was refused, runs turned to what none had tried:"
            f" {printable(say.named(turned))}."
        )

    def _without(
        self, refused: Sequence[Kinds], tasks: Sequence[str], spared: Sequence[str] = ()
    ) -> dict[Kinds, Played]:
        """Both policies on these tasks with each set of kinds refused."""
        kept = tuple(sorted({*self.case.allowed, *spared}))
        return played_without(self.case, self.world, refused, tasks, self.config.max_redraws, kept)

    def _plainly(self, tasks: Sequence[str]) -> Played:
        """The case's own runs on these tasks."""
        return played_plainly(self.case, self.world, tasks, self.case.allowed)

    def _compared(self, runs: Played, plain: Played) -> Carried:
        return compare(plain.pair, runs.pair, self.config.bars).carried

    def _objects(
        self, kinds: Iterable[str], plain: Played, tasks: Sequence[str]
    ) -> dict[Kinds, Played]:
        """Runs with an object of these kinds refused by itself, where it carries
        more than a fifth. Only what *after* uses more than *before* is tried.
        """
        use = object_use(self.case, self.world, tuple(kinds))
        names = recurring(use, self.config.recur, self.config.most_objects)
        played = {
            one: runs
            for one, runs in self._without([(name,) for name in names], tasks).items()
            if runs.missing <= self.config.most_missing
            and one[0] not in runs.kinds
            and self._compared(runs, plain).found
        }
        self.judged.objects.update({name: use[name].kind for (name,) in played})
        return played

    def _singly(self, first: Sequence[str]) -> Iterator[Evidence | Undefined]:
        """Each kind by itself, then pairs, on fewer tasks."""
        most_used = self._most_used(first)
        few = chosen_tasks(self.case.tasks, self.config.tasks)
        plain = self._plainly(few)
        played = self._played([(kind,) for kind in sorted(most_used)], few)
        carrying = [
            kinds[0] for kinds, runs in played.items() if not self._compared(runs, plain).cleared
        ]
        if objects := self._objects(carrying, plain, few):
            others = [(kind,) for kind in carrying if kind in self.judged.objects.values()]
            played = {kinds: runs for kinds, runs in played.items() if kinds not in others}
            played |= objects | self._played(others, few, tuple(self.judged.objects))
        single = {
            kinds: runs for kinds, runs in played.items() if not self._compared(runs, plain).found
        }
        least = self.config.half * abs(self.gain.estimate)
        barred = {
            *self.needed,
            *self.case.allowed,
            *self.judged.not_refusable,
            *(kind for kinds in played.keys() - single.keys() for kind in kinds),
        }
        pairs = substitutes(single, plain, least, self.config.most_pairs, barred)
        yield from self._answers(played | self._played(pairs, few), plain)

    def _played(
        self, refused: Sequence[Kinds], tasks: Sequence[str], spared: Sequence[str] = ()
    ) -> dict[Kinds, Played]:
        """Runs of those that can be judged."""
        judged: dict[Kinds, Played] = {}
        for kinds, runs in self._without(refused, tasks, spared).items():
            why = ""
            if runs.missing > self.config.most_missing:
                why = _stuck(kinds, runs.missing)
            else:
                judged[kinds] = runs
            if kinds[0] in runs.kinds:
                why = f"{printable(kinds[0])} was refused and taken all the same."
            if why and len(kinds) == 1:
                self.judged.not_refusable[kinds[0]] = why
        return judged

    def _answers(
        self, played: Mapping[Kinds, Played], plain: Played
    ) -> Iterator[Evidence | Undefined]:
        judged = self.judged
        compared = {
            kinds: compare(plain.pair, runs.pair, self.config.bars)
            for kinds, runs in played.items()
        }
        q_values = benjamini_hochberg([gains.p_value for gains in compared.values()])
        tasks = frozenset(plain.before.runs.tasks)
        wins = [
            run
            for side in self.case.afters
            for run in self.case.rollouts(side, Condition(scrubbed=self.world))
            if run.task in tasks and (run.outcome or 0.0) >= RULE.win
        ]
        environment = self.case.environment
        withheld = environment.withheld if isinstance(environment, Withholding) else None
        for (kinds, gains), q_value in zip(compared.items(), q_values, strict=True):
            through = float(q_value) < 1 - self.config.level and gains.dispensable  # (a) and (b)
            known = judged.carried.get(kinds)
            fewer = known is not None and known.played  # fewer tasks clear nothing
            if not fewer or not gains.carried.cleared:
                judged.carried[kinds] = gains.carried
            if through:
                judged.runs_through.add(kinds)
            result = say.KindResult(
                kinds=kinds,
                gains=gains,
                q_value=float(q_value),
                missing=played[kinds].missing,
                runs_through=through,
                contents=holds_answer(
                    wins, kinds, withheld, self.config.control_tasks, self.config.level
                ),
                bent=say.named(kinds) in self.accused,
            )
            yield from self.evidence.answers(result, say.replacement(plain, played[kinds], kinds))


def _stuck(kinds: Kinds, share: float) -> str:
    about = printable(say.named(kinds), say.LONGEST)
    return (
        f"With {about} refused, {percent(share)} of the runs ended because every draw was refused."
    )
