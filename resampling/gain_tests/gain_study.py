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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from forensics.case import Case, Rollouts
from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker, Instrument
from forensics.layers import (
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
from resampling.gain_tests.amounts import Carries

DIFFERENCE = "score difference"
ALTERED: World = ("altered",)
CONTROL: World = ("control",)
LEVEL = 0.95
Pair = tuple[Runs, tuple[Runs, ...]]  # before, and every after seed
Values = np.ndarray[tuple[int], np.dtype[np.float64]]


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
        return self.amount((_as_runs(tasks, before), tuple(_as_runs(tasks, v) for v in afters)))

    def loss_by_task(
        self, tasks: Sequence[str], before: Values, afters: Sequence[Values]
    ) -> "Comparison":
        """The same of what is left in an altered world."""
        return self.compare((_as_runs(tasks, before), tuple(_as_runs(tasks, v) for v in afters)))


def nothing_won(tasks: Sequence[str]) -> Runs:
    """Runs of these tasks without a win."""
    names = sorted(tasks)
    return runs_from(names, np.zeros((len(names), 2)))


def _as_runs(tasks: Sequence[str], values: Values) -> Runs:
    """Numbers of tasks (sorted) in place of the mean scores of runs."""
    none = np.zeros(len(tasks))
    return Runs(tasks=tuple(tasks), counts=none, score=values, unfinished=none, product=none)


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
    def carried(self) -> Contrast:
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
