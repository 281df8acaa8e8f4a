"""What every gain test says, and how a gain is compared with the gain in
an altered world.

Of a test `F` the rule reads (points of score, per task and training seed,
paired with the world as it is):

1. `F.carried` about a source: what the gain loses when that source is altered.
2. `F.over_bar`: what all of the test's sources carry together, minus a fifth
   of G0, the gain with the declared channels scrubbed. Its upper end at or
   below zero clears the test; its lower end above zero is a find.
3. Where it alters what no skill needs (`needless`) also `F.left`,
   the gain that is left; `F.phantom_over_bar`, what vanishes minus four fifths
   of G0; and `F.placebo_over_bar`, the harm that the alteration does to the
   policy before training, minus a fifth of G0.

A test that has nothing to alter says so with its reason (`not_applicable`):
it carries nothing. One that could not be tried says why (`not_tested`) and
blocks `genuine`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Protocol

import numpy as np

from forensics.case import Case, Rollouts
from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker, Instrument
from forensics.layers import (
    AFTER,
    BEFORE,
    GENUINE_BAR,
    OPEN,
    PHANTOM_BAR,
    Panel,
    Runs,
    Weights,
    World,
    add,
    gain,
    paired,
    runs_from,
)
from forensics.phrases import point_range, points, printable
from forensics.protocols import Alteration, SamplingSettings
from forensics.records import Evidence, GainTest, Undefined
from forensics.runs import Condition
from forensics.statistics import Contrast, Estimate
from forensics.world import CURE, PlayedElsewhere
from resampling.ablation.gains import require_gain
from resampling.ablation.refusal import scrubbed_world
from resampling.ablation.refused_runs import (
    READ,
    Played,
    Side,
    chosen_tasks,
    played_plainly,
    read_side,
    side_of,
)
from resampling.gain_tests.fields import PromptFields, prompt_fields

DIFFERENCE = "score difference"
ALTERED: World = ("altered",)
CONTROL: World = ("control",)
LEVEL = 0.95
SURE = 0.5
NEARLY_ALL = 0.8
Pair = tuple[Runs, tuple[Runs, ...]]  # before, and every after seed
Values = np.ndarray[tuple[int], np.dtype[np.float64]]


class Carries(Protocol):
    """What is said of any source, measured or bounded."""

    @property
    def whole(self) -> Contrast: ...
    @property
    def carried(self) -> Estimate: ...
    @property
    def over_bar(self) -> Estimate: ...
    @property
    def runs(self) -> int: ...
    @property
    def clusters(self) -> int: ...

    @property
    def cleared(self) -> bool:
        """Whether it is at most a fifth of the gain."""
        return self.over_bar.high <= 0

    @property
    def found(self) -> bool:
        """Whether it is more."""
        return self.over_bar.low > 0


class Amounts(Carries, Protocol):
    """What is said of a source, or of several, where no skill can fail:
    `Comparison` has it, and `EndByEnd`.
    """

    @property
    def left(self) -> Estimate: ...
    @property
    def phantom_over_bar(self) -> Estimate: ...
    @property
    def placebo_over_bar(self) -> Estimate: ...


@dataclass(frozen=True, kw_only=True)
class EndByEnd(Carries):
    """Several measures of one source, estimate and interval end by end: the
    largest of them (`pick=max`), or where all have to agree the smallest (`min`).
    """

    parts: Sequence[Carries]
    pick: Callable[[Iterable[float]], float] = max

    def _ends(self, name: str, pick: Callable[[Iterable[float]], float]) -> Estimate:
        rows: list[Estimate] = [getattr(part, name) for part in self.parts]
        estimate, low, high = (pick(ends) for ends in zip(*(r.ends for r in rows), strict=True))
        return Estimate(estimate=estimate, low=low, high=high, level=rows[0].level)

    @property
    def whole(self) -> Contrast:
        return self.parts[0].whole

    @property
    def carried(self) -> Estimate:
        return self._ends("carried", self.pick)

    @property
    def over_bar(self) -> Estimate:
        return self._ends("over_bar", self.pick)

    @property
    def left(self) -> Estimate:
        return self._ends("left", min if self.pick is max else max)

    @property
    def phantom_over_bar(self) -> Estimate:
        return self._ends("phantom_over_bar", self.pick)

    @property
    def placebo_over_bar(self) -> Estimate:
        return self._ends("placebo_over_bar", max)

    @property
    def runs(self) -> int:
        return max(part.runs for part in self.parts)

    @property
    def clusters(self) -> int:
        return min(part.clusters for part in self.parts)


def study_of(case: Case, most_tasks: int | None = None) -> "GainStudy":
    """What a gain test starts from. Raises `MissingInput` where the case
    cannot be played, or where no gain survives scrubbing.

    `most_tasks`: at most so many of the case's tasks, evenly spread.
    """
    case.require_afters()
    if not case.runs_models or case.environment is None:
        raise MissingInput(
            "Logs alone cannot say what would have happened in another world.",
            "Give the checkpoints and the environment to `forensics investigate`.",
        )
    world = scrubbed_world(case)
    tasks = None if most_tasks is None else chosen_tasks(case.tasks, most_tasks)
    study = GainStudy(case=case, world=world, tasks=tasks)
    require_gain(GainStudy(case=case, world=world).gain, world)
    return study


def has_plain_runs(case: Case) -> bool:
    """Whether the case's own runs in that world are there."""
    return case.has_played(Condition(scrubbed=scrubbed_world(case)))


def is_shown_here(case: Case) -> bool:
    """Whether what the policies are shown is made here, so that it can be changed."""
    return not isinstance(case.environment, PlayedElsewhere)


def require_known_gain(case: Case, changes_shown: bool = True) -> None:
    """For bounds of what is played: raises `MissingInput` where a test plays nothing, since the
    plain runs are there and no gain survives, or it `changes_shown` and nobody here can.
    """
    if changes_shown and not is_shown_here(case):
        raise MissingInput("What is shown is made elsewhere.", CURE)
    if has_plain_runs(case):
        study_of(case)


@dataclass(frozen=True, kw_only=True)
class GainStudy:
    """Both policies of a case in the world that is scrubbed of every declared
    channel. `tasks`: only these (`None`: all). `played`: by the names of altered worlds the
    tasks that every side has played there.
    """

    case: Case
    world: World
    tasks: tuple[str, ...] | None = None
    level: float = LEVEL
    played: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def plain(self) -> Played:
        """The case's own runs in that world."""
        return played_plainly(self.case, self.world, self.tasks)

    @cached_property
    def gain(self) -> Contrast:
        """G0: after minus before there."""
        return paired({OPEN: self.plain.pair}, None).estimate(gain(OPEN), self.level)

    @cached_property
    def most_turns(self) -> int:
        """The most actions that one of these runs took."""
        rows = chain(*self.plain_rows("steps.list.element.role").values())
        turns = [sum(one["role"] == "assistant" for one in row["steps"]) for row in rows]
        return max(turns, default=0)

    @property
    def sides(self) -> tuple[str, ...]:
        """The policy before training, and every one after it."""
        return "before", *self.case.afters

    def runs(
        self,
        side: str,
        altered: Alteration | None = None,
        tasks: tuple[str, ...] | None = None,
        sampling: SamplingSettings | None = None,
    ) -> Rollouts:
        """One side's runs in that world, as it is or altered, on all tasks or these."""
        where = Condition(scrubbed=self.world, altered=altered, sampling=sampling)
        return self.case.rollouts(side, where, tasks=tasks)

    def plain_rows(self, *columns: str) -> dict[str, list[dict[str, Any]]]:
        """These columns of the case's own runs in that world, side by side."""
        return {side: list(self.runs(side).rows(*columns)) for side in self.sides}

    @cached_property
    def read_rows(self) -> dict[str, list[dict[str, Any]]]:
        """Those of what its runs did and read."""
        return self.plain_rows(*READ)

    def as_if(self, done: Callable[[dict[str, Any]], dict[str, Any]]) -> Played:
        """The case's own runs, each as if this had been done."""
        return Played.of(side_of(list(map(done, rows))) for rows in self.read_rows.values())

    def altered(self, alteration: Alteration, tasks: tuple[str, ...] | None = None) -> Played:
        """The same policies, tasks and random numbers in an altered world;
        `tasks`: only these.
        """
        return Played.of(self.altered_side(side, alteration, tasks) for side in self.sides)

    def altered_side(
        self, side: str, alteration: Alteration, tasks: tuple[str, ...] | None = None
    ) -> Side:
        """One of them."""
        return read_side(self.runs(side, alteration, self.tasks if tasks is None else tasks))

    def pairs(
        self,
        worlds: Sequence[Alteration],
        tasks: tuple[str, ...],
        unplayed: Sequence[Alteration] = (),
    ) -> list[Pair]:
        """Both sides in each of these worlds, one policy at a time; in those that *before*
        leaves `unplayed` as if it won nothing there.
        """
        self.played.update({world.name: tasks for world in worlds if world not in unplayed})
        played = [
            [
                nothing_won(tasks)
                if side == "before" and world in unplayed
                else self.altered_side(side, world, tasks).runs
                for world in worlds
            ]
            for side in self.sides
        ]
        return [(first, tuple(rest)) for first, *rest in zip(*played, strict=True)]

    def compare(self, altered: Pair) -> "Comparison":
        """The gain in an altered world against the gain in the world as it is."""
        return Comparison(
            panel=paired({OPEN: self.plain.pair, ALTERED: altered}, None), level=self.level
        )

    def amount(self, altered: Pair, control: Pair | None = None) -> "Comparison":
        """The same where the altered runs keep *nothing but* a source: what it
        carries is the gain that they still show, less that of a `control` which
        does not keep the source either.
        """
        worlds = {OPEN: self.plain.pair, ALTERED: altered}
        worlds |= {} if control is None else {CONTROL: control}
        return Comparison(panel=paired(worlds, None), level=self.level, alone=True)

    def amount_by_task(
        self, tasks: Sequence[str], before: Values, afters: Sequence[Values]
    ) -> "Comparison":
        """The same where what a source wins by itself is known as a number `[tasks]`
        of each task and side; only differences of sides count, so it may be below 0.
        """
        return self.amount(pair_of(tasks, before, afters))


def prompts_of(study: GainStudy, but: tuple[str, ...] = ()) -> PromptFields:
    """The fields of all of a case's prompts in the world of a study; `but`: of those
    that are declared not these.
    """
    case, world = study.case, study.world
    scrubbed = case.world(world)
    return case.kept(("prompts", world, but), lambda: prompt_fields(scrubbed, case.tasks, but))


def nothing_won(tasks: Sequence[str]) -> Runs:
    """Runs of these tasks without a win."""
    names = sorted(tasks)
    return runs_from(names, np.zeros((len(names), 2)))


def pair_of(tasks: Sequence[str], before: Values, afters: Sequence[Values]) -> Pair:
    """Numbers of tasks (sorted) in place of the mean scores of runs."""
    names, none = tuple(tasks), np.zeros(len(tasks))
    first, *rest = (
        Runs(tasks=names, counts=none, score=values, unfinished=none, product=none)
        for values in (before, *afters)
    )
    return first, tuple(rest)


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison(Carries):
    """Two worlds side by side. `alone`: the altered one keeps nothing but the
    source, so the gain there (beyond that of a control, if there is one) is what
    the source carries; else what is lost there is.
    """

    panel: Panel
    level: float
    alone: bool = False

    def estimate(self, weights: Weights) -> Contrast:
        return self.panel.at_worst(weights, self.level)

    @property
    def _carried(self) -> Weights:
        if self.alone:
            return add((1, gain(ALTERED)), (-1, self._control))
        return add((1, gain(OPEN)), (-1, gain(ALTERED)))

    @property
    def _control(self) -> Weights:
        return gain(CONTROL) if (BEFORE, CONTROL) in self.panel.cells else {}

    @property
    def whole(self) -> Contrast:
        """G0 on the tasks of both."""
        return self.estimate(gain(OPEN))

    @property
    def carried(self) -> Estimate:
        return self.estimate(self._carried)

    @property
    def over_bar(self) -> Contrast:
        return self.estimate(add((1, self._carried), (-GENUINE_BAR, gain(OPEN))))

    @property
    def left(self) -> Contrast:
        return self.estimate(add((1, gain(OPEN)), (-1, self._carried)))

    @property
    def phantom_over_bar(self) -> Contrast:
        return self.estimate(add((1, self._carried), (-PHANTOM_BAR, gain(OPEN))))

    @property
    def placebo_over_bar(self) -> Contrast:
        """What the alteration takes from the policy before training, minus a
        fifth of G0. A source that stands alone is no harm: there it is the gain of
        the control.
        """
        taken: Weights = {(BEFORE, OPEN): 1.0, (BEFORE, ALTERED): -1.0}
        harm = self._control if self.alone else taken
        return self.estimate(add((1, harm), (-GENUINE_BAR, gain(OPEN))))

    @property
    def runs(self) -> int:
        return self.panel.runs_behind(add((1, gain(OPEN)), (0.5, gain(ALTERED))))

    @property
    def clusters(self) -> int:
        return len(self.panel.tasks)


@dataclass(frozen=True, kw_only=True)
class GainAnswers:
    """Makes what a gain test answers."""

    test: GainTest
    make: AnswerMaker

    @classmethod
    def of(cls, tool: Instrument, case: Case, config: Any, method: str) -> "GainAnswers":
        """Those of a gain test under these settings."""
        (test,) = tool.gain_tests
        return cls(test=test, make=tool.answers(case, config, method))

    def carried(self, about: str, found: Carries, summary: str = "", **fields: Any) -> Evidence:
        """What one source carries; `summary` says what was done to it."""
        span = point_range(found.carried.low, found.carried.high, 1)
        told = f"{printable(about)} carries {points(found.carried.estimate, 1)} points ({span})"
        return self._evidence("carried", found.carried, found, f"{summary}{told}.", about, **fields)

    def whole(
        self,
        found: Carries,
        summary: str,
        who: str = "Together",
        every: bool = True,
        **fields: Any,
    ) -> Iterator[Evidence]:
        """What the sources carry together (or the worst of them: `who`):
        everything that the rule reads. Of a needless test the
        found has to be `Amounts`, unless only `over_bar` is told (not `every`).
        """
        ends = zip(("carried", "carried_low", "carried_high"), found.carried.ends, strict=True)
        fields["diagnostics"] = {**fields.get("diagnostics", {}), **dict(ends)}
        span = point_range(found.carried.low, found.carried.high, 1)
        told = (
            f"{summary} {who} {points(found.carried.estimate, 1)} points of the gain ({span});"
            f" a fifth of it is {points(GENUINE_BAR * found.whole.estimate, 1)}."
        )
        yield self._evidence("over_bar", found.over_bar, found, told, **fields)
        if every:
            for question in self.test.questions[1:]:
                name = question.removeprefix(f"{self.test.name}.")
                yield self._evidence(name, getattr(found, name), found, told)

    def not_applicable(self, reason: str, whole: Contrast) -> Iterator[Evidence | Undefined]:
        """There is nothing to alter, for this reason: the test carries nothing."""
        nothing = Estimate(
            estimate=-GENUINE_BAR * whole.estimate,
            low=-GENUINE_BAR * whole.high,
            high=min(-GENUINE_BAR * whole.low, 0.0),
            level=whole.level,
        )
        yield self.make.evidence(
            self.test.asked,
            nothing,
            unit=DIFFERENCE,
            n=0,
            clusters=whole.clusters,
            summary=reason,
            diagnostics={"applicable": False},
        )
        missing = MissingInput(reason, "Nothing needs to be done.")
        for question in self.test.answers:
            if question != self.test.asked:
                yield self.make.undefined(question, missing)

    def not_tested(self, reason: str, cure: str) -> Iterator[Undefined]:
        """It could not be tried, for this reason."""
        for question in self.test.answers:
            yield self.make.undefined(question, MissingInput(reason, cure))

    def _evidence(
        self,
        name: str,
        answer: Estimate,
        found: Carries,
        summary: str,
        about: str | None = None,
        **fields: Any,
    ) -> Evidence:
        known: dict[str, Any] = {"unit": DIFFERENCE, "summary": summary, "about": about}
        known |= {"n": found.runs, "clusters": found.clusters}
        return self.make.evidence(f"{self.test.name}.{name}", answer, **known | fields)


def new_reliance(study: GainStudy, source: Pair, everything: Pair, **how: bool) -> "NewReliance":
    """From the runs of both sides with one source exchanged, and with everything;
    `divided`, `alone`: as in `NewReliance`.
    """
    worlds = {OPEN: study.plain.pair, ALTERED: source, CONTROL: everything}
    return NewReliance(panel=paired(worlds, None), level=study.level, **how)


@dataclass(frozen=True, kw_only=True, eq=False)
class NewReliance(Comparison):
    """What the policy after training needs of a source newly, beyond what the policy
    before training needed of it as well.

    Both lose wins when what a source shows comes from another task, since a skill
    needs what the task says. `L(x)` is what a side loses with `x` exchanged, points.

    1. `q = L_before(source) / L_before(everything)`: of the wins before training
       that are no luck (those lost where everything comes from another task), the
       share that needs the source.
    2. If after training `N` points of the wins are won in a new way that always needs
       the source, and of all others the share `q` does, then `L_after(source) = N + q
       (L_after(everything) - N)`: *newly carried* is

           N = (L_after(source) - q L_after(everything)) / (1 - q).

       Where every win before training needs the source (`q` near 1), so does every
       other way to win: the exchange tells them not apart, and the interval says so.
    3. Where `q` may be near 1, as with what an action shows that has to be read, the
       same is not divided (`divided=False`): *after* may need the source as many times more as
       it wins more. That is smaller; it says that a source is newly needed, not for how much.
    4. `alone`: the same of wins that a source is *enough* for, where all else comes from
       another task: with `W(x)` what is won there beyond the world where everything does,
       `q = W_before(source) / W_before(plain)`, and `W_after(source) - q W_after(plain)` is
       newly won by the source alone. Where every win before training needs the source, so
       that 2 tells nothing (`by_all`), this does.
    5. The interval is the linear one, in both measures of *after* and in `q`.
    6. `told`: whether it can be told at all. Before training the wins that are no
       luck, those of them that need the source (not with `alone`) and those that do not have
       all to be surely there, the first with at least `SURE` of their number.

    Ours. It cannot see a shortcut that the policy before training used for the same
    share of its wins, or a new way to win that needs the source as seldom as skill.

    `panel`: the plain world, the one with the source exchanged (`alone`: kept), the one
    with everything exchanged.
    """

    divided: bool = True

    def _by(self, side: str) -> Weights:
        """The wins of a side by the source."""
        if self.alone:
            return {(side, ALTERED): 1.0, (side, CONTROL): -1.0}
        return {(side, OPEN): 1.0, (side, ALTERED): -1.0}

    @property
    def told(self) -> bool:
        """Whether the wins before training are enough to tell what they need."""
        wins, needing = self.estimate(_every(BEFORE)), self.estimate(self._by(BEFORE))
        others = self.estimate(add((1, _every(BEFORE)), (-1, self._by(BEFORE))))
        some = self.alone or needing.low > 0
        return wins.low > SURE * wins.estimate > 0 and some and others.low > 0

    @property
    def by_all(self) -> bool:
        """Whether nearly all wins before training that are no luck are surely by the source."""
        share = add((1, self._by(BEFORE)), (-NEARLY_ALL, _every(BEFORE)))
        return self.known and self.estimate(share).low >= 0

    @property
    def shared(self) -> float:
        """q: of the wins before training, how many need the source."""
        return self.estimate(self._by(BEFORE)).estimate / self.estimate(_every(BEFORE)).estimate

    @property
    def known(self) -> bool:
        """Whether *before* surely wins something that is no luck."""
        return self.estimate(_every(BEFORE)).low > 0

    @property
    def weights(self) -> Weights:
        """Of what is newly carried."""
        q, wins = self.shared, self.estimate(_every(BEFORE)).estimate
        every = _every(AFTER)
        others = add((1, self._by(AFTER)), (-1, every)) if self.divided else every
        scale = 1 / (1 - q) if self.divided else 1.0
        # how it changes with q:
        in_q = self.estimate(others).estimate * (scale**2 if self.divided else -1)
        after, before = (add((1, self._by(side)), (-q, _every(side))) for side in (AFTER, BEFORE))
        return add((scale, after), (in_q / wins, before))  # the second is 0 in all

    @property
    def _carried(self) -> Weights:
        return self.weights

    @property
    def carried(self) -> Estimate:
        """Not divided, what *before* needs more than its share of carries nothing."""
        found = self.estimate(self.weights)
        if self.divided:
            return found
        estimate, low, high = (max(end, 0.0) for end in found.ends)
        return Estimate(estimate=estimate, low=low, high=high, level=self.level)

    @property
    def cleared(self) -> bool:
        """Whether it can be told, and is at most a fifth of the gain."""
        return self.told and super().cleared

    @property
    def runs(self) -> int:
        return self.panel.runs_behind(
            add(*((1, gain(world)) for world in (OPEN, ALTERED, CONTROL)))
        )


def _every(side: str) -> Weights:
    """The wins of a side that are no luck."""
    return {(side, OPEN): 1.0, (side, CONTROL): -1.0}


@dataclass(frozen=True, kw_only=True, eq=False)
class NewlySufficient(Comparison):
    """What a source that is kept alone carries beyond what it was enough for before training."""

    @property
    def newly(self) -> NewReliance:
        return NewReliance(panel=self.panel, level=self.level, alone=True)

    @property
    def _carried(self) -> Weights:
        return self.newly.weights
