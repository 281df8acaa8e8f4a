"""Unlocked, not learned: how much of the gain does the policy *before* training
reach when it is asked better?

Everything in the world scrubbed of every declared channel, on the same tasks
(at most `tasks`, evenly spread). Of each *way*, what it adds to the score of the
policy before training, in points of score, paired by task:

1. *Template*: the prompt ends with the form in which wins are handed in (`form_of`).
2. *Few examples*: two to four winning runs of other tasks before the prompt,
   the shortest ones, as many as there is room for; of *before* itself, else of
   *after*, which is said.
3. *Other temperatures*, greedy decoding (0) among them, reported under a name of their own.

`elicitation.unlocked` about nothing is the most that 1 or 2 adds: each half of the
tasks reports the way that added most on the other half, so that no way is chosen
and reported by the same luck. It is not a shortcut: a part of the
gain with a name of its own. What a lower temperature adds is another part
(`sampling`): RL on sampled rewards sharpens whatever else it does (2504.13837),
so that by it every honest gain would count as unlocked in large part.
`elicitation.pass_at_k` is the chance that one of k runs of a task wins:
1 - C(n - c, k) / C(n, k) of n runs with c wins, without bias (2107.03374), the mean
over tasks. Where the policy before training overtakes the one after it at a
larger k, training sharpened what was there (2504.13837): `crossing`, the smallest
such k.

Not seen: what only a longer or cleverer request would bring out; an answer that is
right in another form, of a policy that does not listen; or a few steps of
supervised training. The less of it that is found, the less is known.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import ceil, comb, inf
from os.path import commonprefix  # of letters

import numpy as np
from numpy.typing import NDArray

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker, gain_test
from forensics.phrases import percent, plural, point_range, points, printable
from forensics.policies import style_of
from forensics.protocols import Alteration, Environment, Observation, SamplingSettings
from forensics.records import (
    Estimate as Cell,
    Evidence,
    GainTest,
    Scalar,
    Table,
    Trajectory,
    Undefined,
    content_hash,
)
from forensics.statistics import Estimate, mean
from resampling.gain_tests.altered_worlds import AlteredWorld, alteration
from resampling.gain_tests.gain_study import (
    DIFFERENCE,
    GainStudy,
    is_shown_here,
    require_known_gain,
    study_of,
)

TEMPLATE, EXAMPLES = "template", "few examples"
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
PASS = "elicitation.pass_at_k"
METHOD = "the policy before training asked otherwise, paired by task"
FEWEST_WINS = 5  # whose form is read
SHARED = 0.9  # of the texts
OPENS, CLOSES = " \t\n:=([{<\"'`>", " \t\n)]}>\"'`<"
NUMBER = re.compile(r"-?\d(?:[\d,]*\d)?(?:\.\d+)?")
WORD = re.compile(r"\w+(?:[-.]\w+)*")
SHAPES = {
    "number": NUMBER,
    "word": WORD,
    "line": re.compile(r".+"),
    "text": re.compile(r".+", re.DOTALL),
}
MORE = "Run more held-out tasks, or more samples of each."
Floats = NDArray[np.float64]
Known = Mapping[str, Scalar]  # diagnostics
Won = dict[str, list[bool]]  # by task


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

    # -- answers -----------------------------------------------------------------------

    def answers(self) -> Iterator[Evidence | Undefined]:
        usual = self.study.case.budget.settings.temperature
        drawing = {
            f"temperature {value:g}" if value else "greedy": partial(self.temperature, value)
            for value in self.config.temperatures
            if value != usual
        }
        asking = {TEMPLATE: self.template, EXAMPLES: self.examples}
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

    # -- 1 and 2: asked otherwise -----------------------------------------------------------

    def template(self) -> Unlocked:
        form = form_of([run.actions[-1][1].text for run in self.wins]).told
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

    # -- 3: drawn otherwise ----------------------------------------------------------------

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


def won(run: Trajectory) -> bool:
    """Whether a run scored at least one half."""
    return (run.outcome or 0.0) >= 0.5


def by_task(scores: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The mean of each task."""
    found: dict[str, list[float]] = {}
    for task, score in scores:
        found.setdefault(task, []).append(score)
    return {task: sum(values) / len(values) for task, values in found.items()}


# -- the form of a hand-in ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Form:
    """`prefix`, what varies, `suffix`. `varies`: whether anything does."""

    prefix: str
    suffix: str = ""
    shape: str = "text"
    varies: bool = True

    @property
    def told(self) -> str:
        """For a reader who is to use it."""
        return f"{self.prefix}{'...' if self.varies else ''}{self.suffix}".strip()


def form_of(texts: Sequence[str]) -> Form:
    """The form of the winning texts of many tasks, at least one."""
    texts = [text.strip() for text in texts]
    forms = [_plain_form(texts), _plain_form([text.rpartition("\n")[2] for text in texts])]
    known = [form for form in forms if form.prefix or form.suffix]
    found = min(known, key=lambda form: [*SHAPES].index(form.shape), default=forms[0])
    return found if found.shape in ("number", "word") else _before_a_number(texts) or found


def _plain_form(texts: Sequence[str]) -> Form:
    common, count = Counter(texts).most_common(1)[0]
    if count >= SHARED * len(texts):
        return Form(prefix=common, varies=False)
    prefix = _cut(_shared_start(texts), OPENS)
    rest = [text.removeprefix(prefix) for text in texts if text.startswith(prefix)]
    suffix = _cut(_shared_start([text[::-1] for text in rest]), CLOSES)[::-1]
    slots = [text[: len(text) - len(suffix)] for text in rest]
    narrow = (
        name
        for name, shape in SHAPES.items()
        if sum(shape.fullmatch(slot.strip()) is not None for slot in slots) >= SHARED * len(slots)
    )
    return Form(prefix=prefix, suffix=suffix, shape=next(narrow, "text"))


def _before_a_number(texts: Sequence[str]) -> Form | None:
    """The constant words before the last number, where most have such."""
    found = ([*NUMBER.finditer(text)][-1:] for text in texts)
    heads = [one.string[: one.start()][::-1] for last in found for one in last]
    if len(heads) < SHARED * len(texts):
        return None
    anchor = _shared_start(heads)[::-1]
    words = anchor.lstrip() if anchor[:1].isspace() else anchor.partition(" ")[2]
    several = sum(word.isalpha() for word in WORD.findall(words)) > 1
    return Form(prefix=words, shape="number") if several else None


def _shared_start(texts: Sequence[str]) -> str:
    """The longest start that nine tenths of the texts share: in order, they are neighbours."""
    ordered, enough = sorted(texts), ceil(SHARED * len(texts))
    ends = zip(ordered, ordered[enough - 1 :], strict=False)
    return max(map(commonprefix, ends), key=len, default="")


def _cut(start: str, boundary: str) -> str:
    """A shared start up to its last boundary."""
    return start[: 1 + max(map(start.rfind, boundary))]


# -- pass@k --------------------------------------------------------------------------------


def pass_at_k(
    sides: Mapping[str, Sequence[Sequence[Trajectory]]], level: float, make: AnswerMaker
) -> Iterator[Evidence]:
    """An answer for each side (`before`, `after`: the runs of each training seed), at
    the largest k, the fewest runs of a task; the table stands beside the second.
    """
    wins: dict[str, list[Won]] = {}
    for side, seeds in sides.items():
        wins[side] = [defaultdict(list) for _ in seeds]
        for of, runs in zip(wins[side], seeds, strict=True):
            for run in runs:
                of[run.task].append(won(run))
    most = min(len(runs) for seeds in wins.values() for one in seeds for runs in one.values())
    ks = range(1, most + 1)
    curves = {side: {k: _at(seeds, k, level) for k in ks} for side, seeds in wins.items()}
    before, after = curves["before"], curves["after"]
    crossing = next((k for k in ks[1:] if before[k].estimate >= after[k].estimate), None)
    table = Table(
        title="Chance that one of k runs wins (pass@k)",
        columns=("k", *curves),
        rows=tuple(
            (
                k,
                *(
                    Cell(estimate=c[k].estimate, low=c[k].low, high=c[k].high)
                    for c in curves.values()
                ),
            )
            for k in ks
        ),
        units=dict.fromkeys(curves, "share"),
    )
    for side, curve in curves.items():
        yield make.evidence(
            PASS,
            curve[most],
            about=side,
            unit="share",
            n=sum(map(len, sides[side])),
            method="unbiased estimator of 2107.03374, mean over tasks",
            diagnostics={
                "k": most,
                "crossing": crossing,
                **{f"pass_at_{k}": one.estimate for k, one in curve.items()},
            },
            artifacts=(table,) if side == "after" else (),
            summary=(
                f"{side.capitalize()} training, one of {plural(most, 'run')} of a task wins in"
                f" {percent(curve[most].estimate)} of the tasks; one run in"
                f" {percent(curve[1].estimate)}."
            ),
        )


def _at(seeds: Sequence[Won], k: int, level: float) -> Estimate:
    tasks = sorted(set.intersection(*map(set, seeds)))
    rates = [
        [1 - comb(len(of) - sum(of), k) / comb(len(of), k) for of in (one[task] for task in tasks)]
        for one in seeds
    ]
    return mean(np.mean(rates, axis=0), reach=1.0, bounds=(0.0, 1.0), level=level)
