"""Unlocked, not learned: how much of the gain does the policy *before* training
reach when it is asked better?

Everything in the world scrubbed of every declared channel, on the same tasks
(at most `tasks`, evenly spread). Of each *way*, what it adds to the score of the
policy before training, in points of score, paired by task:

1. *Lenient extraction* (no sampling): of a run that failed, a candidate for the
   answer is taken out of its last action and handed in, in the form of the
   winning runs after training (`extraction`): by the world's `regrade`, else after
   the run's earlier actions, taken again. What was handed in already is no
   candidate. *Guessing* is taken off (formula scoring): with `c` the share of
   candidates that would be right on *another* task, a candidate counts
   (s - c) / (1 - c). The same is done to the runs after training, and what that
   adds is subtracted, where it is above 0.
2. *Template*: the prompt ends with the form in which wins are handed in.
3. *Few examples*: two to four winning runs of other tasks before the prompt,
   the shortest ones, as many as there is room for; of *before* itself, else of
   *after*, which is said.
4. *Other temperatures*, greedy decoding (0) among them, reported under a name of their own.

`elicitation.unlocked` about nothing is the most that one of 1 to 3 adds: each
half of the tasks reports the way that added most on the other half, so that no
way is chosen and reported by the same luck. It is not a shortcut: a part of the
gain with a name of its own. What a lower temperature adds is another part
(`sampling`): RL on sampled rewards sharpens whatever else it does (2504.13837),
so that by it every honest gain would count as unlocked in large part.
`elicitation.pass_at_k` is told in `pass_at_k`.

Intervals take `c` as known. Not seen: what only a longer or cleverer request
would bring out, or a few steps of supervised training; the less of it that is
found, the less is known.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf

import numpy as np
from numpy.typing import NDArray

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker, gain_test
from forensics.phrases import plural, point_range, points, printable
from forensics.policies import style_of
from forensics.protocols import Alteration, Environment, Observation, SamplingSettings
from forensics.records import Evidence, GainTest, Scalar, Trajectory, Undefined, content_hash
from forensics.statistics import mean
from resampling.gain_tests.altered_worlds import AlteredWorld, alteration
from resampling.gain_tests.extraction import Extraction, Form, by_task, form_of, last_action, won
from resampling.gain_tests.gain_study import (
    DIFFERENCE,
    GainStudy,
    is_shown_here,
    require_known_gain,
    study_of,
)
from resampling.gain_tests.pass_at_k import PASS, pass_at_k

LENIENT, TEMPLATE, EXAMPLES = "lenient extraction", "template", "few examples"
DRAWING = "other temperatures"
ELICITATION = GainTest(
    name="elicitation",
    kind="aside",
    excludes="skill that was only unlocked",
    place=110,
    shares="elicitation.unlocked",
    unlocked="the policy before training reaches {} if it is asked in another way",
    sampling=DRAWING,
)
UNLOCKED = ELICITATION.shared
METHOD = "the policy before training asked otherwise, paired by task"
FEWEST_WINS = 5  # whose form is read
MORE = "Run more held-out tasks, or more samples of each."
Floats = NDArray[np.float64]
Known = Mapping[str, Scalar]  # diagnostics


@dataclass(frozen=True, kw_only=True)
class ElicitationConfig:
    """`tasks` on which each way is tried at most, `level` of intervals,
    `temperatures` beside the case's own, `shots`: least and most examples.
    """

    tasks: int = 100
    level: float = 0.95
    temperatures: tuple[float, ...] = (0.0, 0.3, 0.7, 1.3)
    shots: tuple[int, ...] = (2, 4)


def _episodes(case: Case, config: ElicitationConfig) -> int:
    require_known_gain(case, changes_shown=False)
    ways = 2 * is_shown_here(case)
    ways += sum(one != case.budget.settings.temperature for one in config.temperatures)
    return min(config.tasks, case.budget.tasks) * case.budget.samples * ways


@gain_test(ELICITATION, config=ElicitationConfig(), episodes=_episodes, further=(PASS,))
def elicitation(case: Case, config: ElicitationConfig) -> Iterator[Evidence | Undefined]:
    """Answers by way of asking; raises `MissingInput` for what the case cannot give."""
    study = study_of(case, config.tasks)
    make = elicitation.answers(case, config, METHOD)
    yield from Elicitation(study=study, config=config, make=make).answers()


@dataclass(frozen=True, kw_only=True)
class Unlocked:
    """What one way adds to each task's score, and what is to be known of it."""

    gains: Mapping[str, float]
    told: str
    runs: int
    known: Known = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Elicitation:
    """One study: the plain runs of its tasks, and the ways to ask."""

    study: GainStudy
    config: ElicitationConfig
    make: AnswerMaker

    @cached_property
    def whole(self) -> float:
        """G0 on all tasks of the case: what every share is a share of."""
        return GainStudy(case=self.study.case, world=self.study.world).gain.estimate

    @cached_property
    def before(self) -> list[Trajectory]:
        return self._scored(self.study.runs("before"))

    @cached_property
    def afters(self) -> list[list[Trajectory]]:
        return [self._scored(self.study.runs(side)) for side in self.study.case.afters]

    def _scored(self, log: Iterable[Trajectory]) -> list[Trajectory]:
        tasks = frozenset(self.study.tasks or ())
        return [run for run in log if run.task in tasks and run.outcome is not None]

    @cached_property
    def wins(self) -> list[Trajectory]:
        """After training. Raises `MissingInput` with few of them."""
        found = [run for side in self.afters for run in side if won(run) and run.turns]
        if len(found) < FEWEST_WINS:
            raise MissingInput(
                f"{plural(len(found), 'win')} after training do not show a form of handing in.",
                MORE,
            )
        return found

    @cached_property
    def form(self) -> Form:
        """Of the last actions of the wins after training."""
        return form_of([last_action(run) for run in self.wins])

    # -- answers -----------------------------------------------------------------------

    def answers(self) -> Iterator[Evidence | Undefined]:
        usual = self.study.case.budget.settings.temperature
        drawing = {
            f"temperature {value:g}" if value else "greedy": partial(self.temperature, value)
            for value in self.config.temperatures
            if value != usual
        }
        asking = {LENIENT: self.lenient, TEMPLATE: self.template, EXAMPLES: self.examples}
        yield from self._best(None, asking, "The best way of asking before training")
        yield from self._best(DRAWING, drawing, "The best other temperature before training")
        sides = {"before": [self.before], "after": self.afters}
        yield from pass_at_k(sides, self.config.level, self.make)

    def _best(
        self, about: str | None, ways: Mapping[str, Callable[[], Unlocked]], told: str
    ) -> Iterator[Evidence | Undefined]:
        """What each way adds, and about all of them what the best one does."""
        found: dict[str, Unlocked] = {}
        for name, way in ways.items():
            try:
                found[name] = one = way()
                values = np.array([one.gains[task] for task in sorted(one.gains)])
                yield self._evidence(name, values, one)
            except MissingInput as missing:
                yield self.make.undefined(UNLOCKED, missing, name)
        known = {"not_tested": ", ".join(name for name in ways if name not in found)}
        yield self.make.answer(UNLOCKED, partial(self._most, about, found, told, known), about)

    def _most(
        self, about: str | None, found: Mapping[str, Unlocked], told: str, known: Known
    ) -> Evidence:
        """What the best way adds, chosen on the other half of the tasks."""
        if not found:
            raise MissingInput("None of these ways could be tried.", "See why under each of them.")
        common = set.intersection(*(set(way.gains) for way in found.values()))
        tasks = [task for task in self.study.case.tasks if task in common]
        if len(tasks) < 4:
            raise MissingInput("Hardly a task was played in every way of asking.", MORE)
        table = {name: np.array([way.gains[t] for t in tasks]) for name, way in found.items()}
        even = np.arange(len(tasks)) % 2 == 0
        best, other = (max(table, key=lambda name: table[name][h].mean()) for h in (~even, even))
        names = " and ".join(dict.fromkeys((best, other)))
        chosen = Unlocked(
            gains={},
            told=f"{told} ({names}; chosen on the other tasks)",
            runs=sum(way.runs for way in found.values()),
            known={"way": best, "way_on_other_half": other, **known},
        )
        return self._evidence(about, np.where(even, table[best], table[other]), chosen)

    def _evidence(self, about: str | None, values: Floats, way: Unlocked) -> Evidence:
        adds = mean(values, reach=1.0, bounds=(-1.0, 1.0), level=self.config.level)
        shares = zip(("share", "share_low", "share_high"), adds.ends, strict=True)
        return self.make.evidence(
            UNLOCKED,
            adds,
            about=about,
            unit=DIFFERENCE,
            n=way.runs,
            clusters=len(values),
            diagnostics={
                **way.known,
                "gain": self.whole,
                **{name: end / self.whole for name, end in shares},
            },
            summary=(
                f"{way.told} adds {points(adds.estimate, 1)} points"
                f" ({point_range(adds.low, adds.high, 1)}) to the policy before training, of a gain"
                f" of {points(self.whole, 1)}."
            ),
        )

    # -- 1: lenient extraction -----------------------------------------------------------

    def lenient(self) -> Unlocked:
        world = self.study.case.world(self.study.world)
        before, *afters = (
            Extraction(world, side, self.wins) for side in (self.before, *self.afters)
        )
        after = {
            task: sum(one.gains.get(task, 0.0) for one in afters) / len(afters)
            for task in before.gains
        }
        counts = sum(after.values()) > 0
        return Unlocked(
            gains={t: v - (after[t] if counts else 0.0) for t, v in before.gains.items()},
            told=f"Reading its answer out of {plural(before.candidates, 'failed run')} that did not"
            " hand it in so",
            runs=len(self.before),
            known={
                "candidates": before.candidates,
                "guessed": before.guessed,
                "form": self.form.told[:100],
                "after": sum(after.values()) / max(len(after), 1),
            },
        )

    # -- 2 and 3: asked otherwise -----------------------------------------------------------

    def template(self) -> Unlocked:
        form = self.form.told
        if not form:
            raise MissingInput(
                "The wins after training share no form of handing in that could be asked for.",
                "Nothing needs to be done where answers stand alone.",
            )
        note = f"\nHand in as: `{form}`"
        asked = alteration(
            f"template {content_hash(note, 12)}",
            lambda inner, name: Asked(inner, name, note=note),
            "told the form of a hand-in",
        )
        return self._played(f"Being told the form of a hand-in (`{printable(form)}`)", asked)

    def examples(self) -> Unlocked:
        case, (least, most) = self.study.case, self.config.shots
        room = getattr(case.policy("before"), "context_length", None) or inf
        longest = max(map(length, self.before), default=0)
        whose, chosen = "its own", shortest_wins(self.before, most + 1)
        if len(chosen) <= least:
            whose, chosen = "after's", shortest_wins(self.wins, most + 1)
        shots = min(most, len(chosen) - 1)
        while shots >= least and longest + total(chosen[: shots + 1]) > room:
            shots -= 1
        if shots < least:
            raise MissingInput(
                f"There are no {least} winning runs of other tasks for which the policy before"
                " training has room.",
                "Give a policy with a longer context, or run more tasks.",
            )
        chosen = chosen[: shots + 1]
        bare = style_of(case.environment) == "bare"
        texts = {run.task: as_text(run, bare) for run in chosen}
        asked = alteration(
            f"examples {content_hash([texts, shots], 12)}",
            lambda inner, name: Asked(inner, name, examples=texts, shots=shots),
            f"{shots} wins of other tasks shown first",
        )
        usual = case.budget.settings
        settings = replace(usual, max_tokens=int(min(usual.max_tokens + total(chosen), room)))
        told = f"Reading {shots} wins of other tasks ({whose}) first"
        known: Known = {"examples": shots, "whose": whose}
        return replace(self._played(told, asked, settings), known=known)

    # -- 4: drawn otherwise ----------------------------------------------------------------

    def temperature(self, value: float) -> Unlocked:
        settings = replace(self.study.case.budget.settings, temperature=value)
        how = f"at temperature {value:g}" if value else "greedily"
        return self._played(f"Drawing {how}", settings=settings)

    def _played(
        self,
        told: str,
        altered: Alteration | None = None,
        settings: SamplingSettings | None = None,
    ) -> Unlocked:
        log = self.study.runs("before", altered, self.study.tasks, settings)
        scores = [(run.task, run.outcome) for run in log if run.outcome is not None]
        asked = by_task(scores)
        plain = by_task([(run.task, run.outcome or 0.0) for run in self.before])
        gains = {task: asked[task] - plain[task] for task in plain if task in asked}
        return Unlocked(gains=gains, told=told, runs=len(scores))


class Asked(AlteredWorld):
    """The inner world with examples before its prompts (`shots` of other tasks)
    and a note after them.
    """

    def __init__(
        self,
        inner: Environment,
        alteration: str,
        *,
        note: str = "",
        examples: Mapping[str, str] | None = None,
        shots: int = 0,
    ) -> None:
        super().__init__(inner, alteration)
        self._note, self._examples, self._shots = note, dict(examples or {}), shots

    def reset(self, task: str, seed: int) -> Observation:
        start = super().reset(task, seed)
        others = [text for other, text in self._examples.items() if other != task]
        parts = [*others[: self._shots], f"{start.text}{self._note}"]
        return replace(start, text="\n\n".join(parts))


def length(run: Trajectory) -> int:
    """In tokens; where they are not recorded, by letters, rather too many."""
    return sum(
        len(step.text) // 2 + 1 if step.token_ids is None else len(step.token_ids)
        for step in run.steps
    )


def total(runs: Sequence[Trajectory]) -> int:
    """Tokens of all runs, two separators each included."""
    return sum(map(length, runs)) + 2 * len(runs)


def shortest_wins(runs: Sequence[Trajectory], most: int) -> list[Trajectory]:
    """One of each task, the shortest first."""
    wins = sorted((run for run in runs if won(run) and run.turns), key=lambda r: (length(r), r.id))
    first = {run.task: run for run in reversed(wins)}
    return sorted(first.values(), key=lambda run: (length(run), run.id))[:most]


def as_text(run: Trajectory, bare: bool) -> str:
    """A run as a transcript, but for its system text and its last observation."""
    last = run.actions[-1][0]
    return "\n".join(
        step.text if bare or step.role != "assistant" else f"$ {step.text}"
        for step in run.steps[: last + 1]
        if step.role != "system"
    )
