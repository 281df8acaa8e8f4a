"""Actions that were recorded, taken again in the world of any task: no policy,
no sampling, fresh instances of the environment.

1. The recorded runs of a side are read as `Played` runs: what was done, what
   was handed in, what it scored.
2. `Replays.score` resets a fresh instance to a task and takes the actions, one
   after the other, until the environment ends the episode. Its score counts. A
   replay that hands in nothing scored nothing, as a run that is cut off does.
3. Where the environment raises, or knows no score, the replay is missing and
   counted, never a failure. The same actions on the same task are taken once.

`HandIns` is what was handed in, where it stands in a run's actions, and how another
text is handed in its place.

1. `hand_in_of` finds where in its actions a run wrote what it handed in: the
   longest common run of words of the submission and an action, the last one
   among equals. It must be at least half of those words of the submission that
   the run wrote anywhere. Where no run of a case says what it handed in, its
   last action stands for it.
2. `HandIn.saying` is the same run with another text there, so that whatever has
   to be found beside the answer stays found. Whether that text decides is told by
   one that means `NOTHING`: runs that win with it carry no other text.
3. `HandIns.wins` hands a text in on a task: in a few of its runs, winning ones
   first, or where none carries it, by the environment's `regrade`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import chain

import numpy as np

from forensics.case import Rollouts
from forensics.errors import MissingInput, stop_outside
from forensics.layers import placed_words, words
from forensics.phrases import middle_cut, percent
from forensics.protocols import Alteration, Environment, Regrading
from forensics.records import ALTERED_PROMPT, Table, content_hash
from resampling.gain_tests.gain_study import GainStudy, Values

Actions = tuple[str, ...]
Ended = tuple[float | None, str | None]  # score, submission
COLUMNS = (
    "task",
    "sample",
    "id",
    "outcome",
    "end",
    "submission",
    "steps.list.element.role",
    "steps.list.element.text",
)
SHOWN = 400  # characters of a prompt or an answer that is shown
WIN = 0.5  # a score from which a run is a win


@dataclass(frozen=True, kw_only=True)
class PlayedRun:
    """A recorded run: its task, actions, score, and what it handed in. `prompt`:
    what it was asked.
    """

    task: str
    actions: Actions
    score: float
    submission: str | None
    prompt: str

    @property
    def won(self) -> bool:
        return self.score >= WIN


def played_runs(log: Rollouts, tasks: Sequence[str]) -> list[PlayedRun]:
    """The runs of these tasks that have a score, in an order that does not hang
    on the log's.
    """
    wanted = frozenset(tasks)
    rows = [
        row
        for row in log.rows(*COLUMNS)
        if row["task"] in wanted and row["outcome"] is not None and row["end"] != "errored"
    ]
    return [
        PlayedRun(
            task=row["task"],
            actions=tuple(s["text"] for s in row["steps"] if s["role"] == "assistant"),
            score=row["outcome"],
            submission=row["submission"],
            prompt=next((s["text"] for s in row["steps"] if s["role"] == "user"), ""),
        )
        for row in sorted(rows, key=lambda row: (row["task"], row["sample"], row["id"]))
    ]


def example_of(study: GainStudy, world: Alteration, won: bool = True) -> tuple[Table, ...]:
    """One prompt of an altered world that every side has played, and the answers there; no table
    where none has. `won`: one that the policy after training wins, else one that it loses.
    """
    tasks = study.played.get(world.name, ())
    return example_table(
        [played_runs(study.runs(s, world, tasks), tasks) for s in study.sides if tasks], won
    )


def example_table(sides: Sequence[Sequence[PlayedRun]], won: bool = True) -> tuple[Table, ...]:
    """The same of runs: of the first task by name that one side alone wins, if there is one."""
    first = [{run.task: run for run in reversed(side)} for side in sides[:2]]
    common = sorted(set.intersection(*map(set, first))) if len(first) == 2 else []
    if not common:
        return ()
    before, after = first
    task = min(common, key=lambda t: (after[t].won is not won, before[t].won is won, t))
    answers = (
        (f"{name} training, {'won' if of[task].won else 'lost'}", "".join(of[task].actions[-1:]))
        for name, of in (("before", before), ("after", after))
    )
    rows = (("task", task), ("prompt", after[task].prompt), *answers)
    shown = tuple((name, middle_cut(text, SHOWN)) for name, text in rows)
    return (Table(title=ALTERED_PROMPT, columns=("", "text"), rows=shown),)


@dataclass(kw_only=True)
class Replays:
    """Replays in one world. `taken` counts them, `missing` those without a score."""

    world: Environment
    seed: int
    taken: int = 0
    missing: int = 0
    _known: dict[tuple[str, Actions], Ended] = field(default_factory=dict)

    def score(self, task: str, actions: Actions) -> float | None:
        """What these actions score on a task, `None` where it cannot be told."""
        return self.ended(task, actions)[0]

    def ended(self, task: str, actions: Actions) -> Ended:
        """The same, with what is handed in."""
        key = task, actions
        if key not in self._known:
            self._known[key] = self._take(task, actions)
            self.taken += 1
            self.missing += self._known[key][0] is None
        return self._known[key]

    def wins(self, task: str, many: Iterable[Actions]) -> bool | None:
        """Whether any of several does; `None` where none has a score."""
        scores = [score for one in many if (score := self.score(task, one)) is not None]
        return max(scores) >= WIN if scores else None

    def _take(self, task: str, actions: Actions) -> Ended:
        start = int(content_hash(["replay", self.seed, task], 8), 16) % 2**31
        try:
            world = self.world.spawn()
            world.reset(task, start)
            for action in actions:
                result = world.step(action)
                if result.terminated or result.truncated:
                    return result.outcome, result.submission
        except MissingInput:  # of a world that is played elsewhere: none of them can be taken
            raise
        except Exception as error:  # somebody else's world: a broken replay is data, not a crash
            stop_outside(error)
            return None, None
        return 0.0, None


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded:
    """The case's own runs in the world of a study, and replays of them there."""

    study: GainStudy

    @cached_property
    def sides(self) -> list[list[PlayedRun]]:
        """The runs before, and of every after seed."""
        tasks = self.study.case.tasks if self.study.tasks is None else self.study.tasks
        return [played_runs(self.study.runs(side), tasks) for side in self.study.sides]

    @cached_property
    def by_task(self) -> list[dict[str, list[PlayedRun]]]:
        """The same, of each side by their tasks."""
        return [by_task(side) for side in self.sides]

    @cached_property
    def common(self) -> list[str]:
        """The tasks with runs on every side."""
        return sorted(set.intersection(*map(set, self.by_task)))

    @cached_property
    def replays(self) -> Replays:
        """Raises `MissingInput` where the case has no world."""
        return Replays(world=self.study.case.world(self.study.world), seed=self.study.case.seed)

    def hand_ins(self, tasks: Sequence[str], few: int) -> "HandIns":
        """What they handed in; other texts are handed in on these tasks."""
        return HandIns(sides=self.sides, tasks=tasks, replays=self.replays, few=few)

    def shuffled(self, tasks: Sequence[str]) -> list[str]:
        """Tasks in an order drawn from the seed."""
        key = content_hash(["blind-play", self.study.case.seed], 15)
        stream = np.random.default_rng(int(key, 16))
        return [tasks[place] for place in stream.permutation(len(tasks))]

    def unscored(self, most: float) -> str:
        """What to say where more replays than this share ended without a score; else empty."""
        share = self.replays.missing / max(self.replays.taken, 1)
        return f"{percent(share)} of the replays ended without a score." if share > most else ""


def by_task(runs: Sequence[PlayedRun]) -> dict[str, list[PlayedRun]]:
    """Runs by their tasks."""
    found: dict[str, list[PlayedRun]] = defaultdict(list)
    for run in runs:
        found[run.task].append(run)
    return dict(found)


def means_of(
    side: Mapping[str, Sequence[PlayedRun]],
    tasks: Sequence[str],
    value: Callable[[PlayedRun], float],
) -> Values:
    """The mean over a side's runs of each of these tasks."""
    return np.array([np.mean([value(run) for run in side[task]]) for task in tasks])


NOTHING = "qzx"  # a text that is no answer
MOST_WORDS = 600  # of a submission and an action that are compared word by word


@dataclass(frozen=True, kw_only=True)
class HandIn:
    """Where a run wrote what it handed in: characters `start` to `end` of the
    action number `at`.
    """

    run: PlayedRun
    at: int
    start: int
    end: int

    @property
    def text(self) -> str:
        """What was written there."""
        return self.run.actions[self.at][self.start : self.end]

    @property
    def answer(self) -> str:
        """The same, told apart by its words alone."""
        return " ".join(words(self.text))

    def saying(self, text: str) -> Actions:
        """The same run with another text there."""
        actions = list(self.run.actions)
        actions[self.at] = actions[self.at][: self.start] + text + actions[self.at][self.end :]
        return tuple(actions)


def hand_in_of(run: PlayedRun) -> HandIn | None:
    """Where its hand-in stands in its actions, `None` where it does not."""
    wanted = words(run.submission or "")[:MOST_WORDS]
    placed = [placed_words(action)[-MOST_WORDS:] for action in run.actions]
    said = [[word for word, _, _ in action] for action in placed]
    written = sum(word in set().union(*said) for word in wanted)
    best: tuple[int, HandIn] | None = None
    for at in range(len(run.actions) - 1, -1, -1):
        match = SequenceMatcher(None, wanted, said[at], autojunk=False).find_longest_match()
        if 2 * match.size >= max(written, 1) and (best is None or match.size > best[0]):
            start, end = placed[at][match.b][1], placed[at][match.b + match.size - 1][2]
            best = match.size, HandIn(run=run, at=at, start=start, end=end)
    return best and best[1]


@dataclass(frozen=True, kw_only=True)
class HandIns:
    """What the runs of each side handed in. `tasks`: on which other texts are
    handed in, in at most `few` runs of each.
    """

    sides: Sequence[Sequence[PlayedRun]]
    tasks: Sequence[str]
    replays: Replays
    few: int
    _graded: dict[tuple[str, str], bool | None] = field(default_factory=dict)

    @cached_property
    def told(self) -> bool:
        """Whether any run says what it handed in."""
        return any(run.submission is not None for side in self.sides for run in side)

    @cached_property
    def found(self) -> list[list[HandIn]]:
        """Of each side, those that stand in an action."""

        def submitted(run: PlayedRun) -> PlayedRun:
            return run if self.told else replace(run, submission="".join(run.actions[-1:]))

        return [
            [one for run in side if (one := hand_in_of(submitted(run))) is not None]
            for side in self.sides
        ]

    @cached_property
    def of_run(self) -> dict[Actions, HandIn]:
        """By what was done."""
        return {one.run.actions: one for side in self.found for one in side}

    @cached_property
    def answers(self) -> dict[Actions, str]:
        """The answer of those who did the same."""
        return {actions: one.answer for actions, one in self.of_run.items()}

    def frequent(self, most: int) -> dict[str, str]:
        """The answers that won on most tasks, on two at least, and a text of each."""
        tasks: dict[str, set[str]] = defaultdict(set)
        texts: dict[str, Counter[str]] = defaultdict(Counter)
        for one in chain(*self.found):
            if one.run.won:
                tasks[one.answer].add(one.run.task)
                texts[one.answer][one.text] += 1
        often = sorted(tasks, key=lambda answer: (-len(tasks[answer]), answer))[:most]
        return {
            answer: min(texts[answer], key=lambda text: (-texts[answer][text], text))
            for answer in often
            if len(tasks[answer]) > 1
        }

    @cached_property
    def carriers(self) -> dict[str, list[HandIn]]:
        """For each task a few of its runs in which the answer decides, winning ones first."""
        found: dict[str, dict[Actions, HandIn]] = defaultdict(dict)
        for one in sorted(chain(*self.found), key=lambda one: not one.run.won):
            found[one.run.task].setdefault(one.saying(NOTHING), one)
        kept = {
            task: [
                one
                for said, one in list(found[task].items())[: self.few]
                if self.replays.wins(task, [said]) is False
            ]
            for task in self.tasks
        }
        return {task: runs for task, runs in kept.items() if runs}

    def wins(self, task: str, text: str) -> bool | None:
        """Whether a text wins on a task; `None` where it cannot be handed in."""
        if carriers := self.carriers.get(task):
            return self.replays.wins(task, [one.saying(text) for one in carriers])
        if (task, text) not in self._graded:
            score = graded_again(self.replays.world, task, text)
            self._graded[task, text] = None if score is None else score >= WIN
        return self._graded[task, text]

    def winning(self, text: str, tasks: Iterable[str]) -> frozenset[str]:
        """The tasks on which a text wins."""
        return frozenset(task for task in tasks if self.wins(task, text))


def graded_again(world: Environment, task: str, text: str) -> float | None:
    """What a hand-in scores by `regrade`, `None` where it cannot be told."""
    try:
        return world.regrade(task, text).get("outcome") if isinstance(world, Regrading) else None
    except Exception as error:  # somebody else's grader: a broken grading is data, not a crash
        stop_outside(error)
        return None
