"""Blind play: what is won by a player who reads nothing, and what the gain owes
to the most frequent answer. No policy is played.

In the world that is scrubbed of every declared channel, on both sides:

1. *Another task's actions.* The tasks are put in an order drawn from the seed;
   the actions of each run are taken, word for word, in the worlds of the next
   `rounds` tasks. `B` is the mean score of such replays, after `B_A`, before
   `B_B`. One that raises is missing, and counted; with many of them the test
   was not tested. A win counts 0 where the world worked out what was handed in (a
   tool that solves any task: no action of the run holds the hand-in, and it is
   another than the run's own) by a kind of action that is not `needed`: whether
   that is part of the job is asked by refusal. A right answer with magic words
   beside it counts as it would without them (`without_magic`).
2. *What an honest solver would win so.* Where few answers are possible, right
   answers of other tasks are right here too. `C` is how often: for each task
   that was won, the winning run whose replays win *least* (what is more general
   is no better answer), mean over tasks. Hand-ins whose replays win on more
   than `everywhere` of the tasks are the answer to nothing, and left out.
3. *Carried* by it, over the wins `S` that C explains:

       (B_A - C S_A) - (B_B - C S_B)

   With unique answers C = 0 and it is `B_A - B_B`. A run that wins and whose
   replays win like right answers counts nothing; one that fails here and wins
   elsewhere is a guess. Bias: what guessing wins in a world of few answers is
   understated by the factor 1 - C (the guess is also right at times), which
   spares honest solvers that err: with two answers, a policy that handed in
   nothing valid before may be wrong in about 3 of 10 hand-ins. C is overstated
   where most wins came through a hole that opens on many, not nearly all, tasks.
4. *The most frequent answer*, handed in everywhere (`FrequentAnswer`).
5. The answer is the larger of 3 and 4, end by end.

Tasks are the unit: each counts as the one that is played and as the one that
lends its runs (the linear part of a statistic of pairs); C's own doubt is in it.

Not seen: an answer that is guessed from a part of the task (sufficiency); a
prior over many rare answers. Counted here though it may be honest: a skill for
the most frequent answer's tasks alone.

*The most frequent answer.*
Of the answers that won on most tasks, each is handed in everywhere: put in place of the
answer in the task's own runs, so that what has to be found beside the answer stays (in
runs where a text that means nothing does not win; there the answer decides). `M` are
the tasks on which the first of them wins. With the tasks of M counting no more than
those of the next most frequent answer,

    carried = min(G - G_balanced, S_A - S_A,balanced):

the gain does not carry over to other answers, *and* the policy after training is worse
there. Both, since a policy that shunned this answer before gains most on M honestly, and
one that is as good on the rest has no skew.

*Magic words.* Whoever writes a right answer and adds words that the grader takes
from anybody has not won blind. So

1. Hand-ins whose replays win on more than `everywhere` of the other tasks hold
   *magic words*: the words that nearly all of them share (`NEARLY_ALL`) and that
   less than half of the other winning hand-ins have.
2. Each such hand-in is handed in once more without them, on its own task. Where
   it still wins, the run counts as it would have without the words: by what that
   hand-in wins on the other tasks.

Not seen: two sorts of magic words that share none; words that have to stand
inside the answer. Such runs count as blind, as they did.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from forensics.case import Case
from forensics.instruments import Plays, gain_test
from forensics.layers import placed_words, words
from forensics.phrases import percent, plural, printable
from forensics.records import Evidence, GainTest, Scalar, Undefined
from resampling.ablation.refusal import needed_kinds
from resampling.ablation.refused_runs import action_kinds, chosen_tasks
from resampling.gain_tests.gain_study import (
    Amounts,
    EndByEnd,
    GainAnswers,
    GainStudy,
    Values,
    require_known_gain,
    study_of,
)
from resampling.gain_tests.hand_ins import (
    WIN,
    Actions,
    HandIn,
    HandIns,
    PlayedRun,
    Recorded,
    Replays,
    means_of,
)

BLIND_PLAY = GainTest(
    name="blind-play",
    kind="needless",
    excludes="play without reading",
    place=70,
    held="are there without reading the task",
    found="is there without reading the task{names}",
    loose="runs that read nothing",
    todo="vary the tasks, so that nothing wins without reading them",
)
METHOD = "recorded actions replayed on other tasks; the most frequent answer handed in everywhere"
REPLAYED, FREQUENT = "the actions of another task", "the most frequent answer"
CURE = "Give an environment that takes any text as an action, on any task."


@dataclass(frozen=True, kw_only=True)
class BlindPlayConfig:
    """`rounds`: on so many other tasks each run is replayed; `most_replays`: at
    most so many replays for each of the two tests (fewer rounds, then fewer
    tasks). `most_missing`: share of replays that may end without a score.
    `everywhere`: share of the tasks on which no right answer wins. `answers`:
    so many frequent ones are handed in everywhere, in at most `carriers` runs
    of each task.
    """

    rounds: int = 5
    most_replays: int = 12_000
    most_missing: float = 0.2
    everywhere: float = 0.9
    answers: int = 4
    carriers: int = 2


def plays(case: Case, config: BlindPlayConfig) -> Plays:
    """Of recorded actions, by no policy: of each run on other tasks, which is what is
    likely, once more there and at home without magic words; of each answer, and of
    nothing, in runs of each task.
    """
    require_known_gain(case)
    tasks = len(case.tasks)
    runs = tasks * case.budget.samples * (1 + len(case.afters))
    answers = min(config.answers * tasks * config.carriers, config.most_replays)
    lent = min(config.rounds * runs, config.most_replays)
    beside = min(runs, config.most_replays) + answers + tasks * config.carriers
    return Plays(lent, 2 * lent + beside)


@gain_test(BLIND_PLAY, config=BlindPlayConfig(), episodes=plays, unit="replay")
def blind_play(case: Case, config: BlindPlayConfig) -> Iterator[Evidence | Undefined]:
    """What is won without reading; raises `MissingInput` for what the case cannot give."""
    say = GainAnswers.of(blind_play, case, config, METHOD)
    study = study_of(case)
    blind = BlindPlay(study=study, config=config)
    if len(blind.tasks) < 2:
        yield from say.not_tested("Fewer than two tasks have runs of both sides.", CURE)
        return
    replayed = blind.replayed
    if unscored := blind.recorded.unscored(config.most_missing):
        yield from say.not_tested(unscored, CURE)
        return
    frequent = FrequentAnswer(
        study=study,
        tasks=blind.tasks,
        plain=blind.plain,
        hand_ins=blind.hand_ins,
        answers=config.answers,
        most_hand_ins=config.most_replays // config.carriers,
        everywhere=config.everywhere,
    )
    parts: dict[str, Amounts] = {REPLAYED: replayed}
    if (skew := frequent.carried) is not None:
        parts[FREQUENT] = skew
    told = {**blind.told, **frequent.told}
    for about, found in parts.items():
        yield say.carried(about, found)
    said = (
        f"Replayed on other tasks, runs win {percent(blind.scores[0])} before and"
        f" {percent(float(np.mean(blind.scores[1:])))} after training; right answers would win"
        f" {percent(blind.collision)}. {frequent.sentence}"
    )
    yield from say.whole(EndByEnd(parts=tuple(parts.values())), said, diagnostics=told)


@dataclass(frozen=True, kw_only=True)
class BlindPlay:
    """Every run replayed on other tasks."""

    study: GainStudy
    config: BlindPlayConfig

    @cached_property
    def recorded(self) -> Recorded:
        return Recorded(study=self.study)

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Those with runs on every side, as many as may be replayed."""
        common = self.recorded.common
        each = sum(len(side[task]) for side in self.recorded.by_task for task in common) / max(
            len(common), 1
        )
        return chosen_tasks(common, int(self.config.most_replays / max(each, 1)))

    @cached_property
    def rounds(self) -> int:
        each = sum(len(side[task]) for side in self.recorded.by_task for task in self.tasks)
        most = min(self.config.rounds, self.config.most_replays // max(each, 1))
        return max(min(most, len(self.tasks) - 1), 1)

    @cached_property
    def lent(self) -> list[list["Lent"]]:
        """What the runs of each side score on other tasks, magic words set apart."""
        order = self.recorded.shuffled(self.tasks)
        lent = [
            [
                self._lend(run, order, place)
                for place, task in enumerate(order)
                for run in side[task]
            ]
            for side in self.recorded.by_task
        ]
        return without_magic(lent, self.hand_ins, self.recorded.replays, self.config.everywhere)

    def _lend(self, run: PlayedRun, order: Sequence[str], place: int) -> "Lent":
        others = [order[(place + shift) % len(order)] for shift in range(1, self.rounds + 1)]
        ended = {task: self.recorded.replays.ended(task, run.actions) for task in others}
        return Lent(
            run=run,
            scores={
                task: 0.0 if self._worked_out(run, said) else score
                for task, (score, said) in ended.items()
                if score is not None
            },
        )

    def _worked_out(self, run: PlayedRun, said: str | None) -> bool:
        """Whether the world, not the run, made what a replay handed in, by a kind of
        action that refusal tries.
        """
        if not said or not run.submission or said == run.submission:
            return False
        if run.actions in self.hand_ins.of_run:
            return False
        world = self.recorded.replays.world
        needed = frozenset(needed_kinds(world))
        return not all(
            needed.issuperset(action_kinds(one, world.kinds(one))) for one in run.actions
        )

    @cached_property
    def hand_ins(self) -> HandIns:
        return self.recorded.hand_ins(self.tasks, self.config.carriers)

    def said(self, run: PlayedRun) -> object:
        """What runs that hand in the same share: the answer, the hand-in, or all they did."""
        return self.hand_ins.answers.get(run.actions) or run.submission or run.actions

    @cached_property
    def rates(self) -> dict[object, float]:
        """What is won on other tasks by each hand-in, over all who handed it in."""
        found: dict[object, list[float]] = defaultdict(list)
        for side in self.lent:
            for one in side:
                found[self.said(one.run)].extend(one.scores.values())
        return {group: float(np.mean(scores)) for group, scores in found.items() if scores}

    @cached_property
    def collisions(self) -> dict[str, float]:
        """For each task that was won, what its most specific winning hand-in wins elsewhere."""
        least: dict[str, float] = {}
        for side in self.recorded.sides:
            for run in side:
                rate = self.rates.get(self.said(run), 1.0)
                if run.won and rate <= self.config.everywhere:
                    least[run.task] = min(rate, least.get(run.task, 1.0))
        return least

    @property
    def collision(self) -> float:
        """C: how often a right answer of another task is right."""
        known = self.collisions.values()
        return sum(known) / len(known) if known else 0.0

    @cached_property
    def scores(self) -> list[float]:
        """B of each side."""
        return [float(self._blind(side).mean()) for side in self.lent]

    def _blind(self, side: Sequence["Lent"]) -> Values:
        """What blind play wins, task by task: as the one that is played, and as
        the one that lends its runs.
        """
        taken, given = defaultdict(list), defaultdict(list)
        for one in side:
            for task, score in one.scores.items():
                taken[task].append(score)
                given[one.run.task].append(score)
        everything = [score for scores in taken.values() for score in scores]
        mean = float(np.mean(everything)) if everything else 0.0
        rows = [
            [np.mean(found[task]) if found[task] else mean for task in self.tasks]
            for found in (taken, given)
        ]
        played, lent = (np.array(row, dtype=float) for row in rows)
        values: Values = played + lent - lent.mean()
        return values

    @cached_property
    def plain(self) -> list[Values]:
        """S of each side, task by task."""
        return [means_of(side, self.tasks, lambda run: run.score) for side in self.recorded.by_task]

    @cached_property
    def replayed(self) -> Amounts:
        """What blind play carries, beyond what right answers explain."""
        c = self.collision
        known = np.array([self.collisions.get(task, np.nan) for task in self.tasks])
        doubt = np.nan_to_num(2 * (known - np.nanmean(known) if self.collisions else known))
        doubt *= len(self.tasks) / max(int(np.isfinite(known).sum()), 1)
        before, *afters = (
            self._blind(lent) - c * plain - doubt * plain.mean()
            for lent, plain in zip(self.lent, self.plain, strict=True)
        )
        return self.study.amount_by_task(self.tasks, before, afters)

    @property
    def told(self) -> dict[str, Scalar]:
        after = float(np.mean(self.scores[1:]))
        return {
            "replays": self.recorded.replays.taken,
            "replays_missing": self.recorded.replays.missing,
            "rounds": self.rounds,
            "blind_before": self.scores[0],
            "blind_after": after,
            "right_answers_collide": self.collision,
        }


# -- the most frequent answer ------------------------------------------------------------

FEWEST_TASKS = 5  # of either sort, for the most frequent answer to be told from the rest


@dataclass(frozen=True, kw_only=True)
class FrequentAnswer:
    """The most frequent answers of the wins, handed in everywhere. `tasks` of blind play,
    with the scores of each side there (`plain`); `answers`: so many are tried, in at
    most so many hand-ins; `everywhere`: the share of tasks on which no right answer wins.
    """

    study: GainStudy
    tasks: Sequence[str]
    plain: Sequence[Values]
    hand_ins: HandIns
    answers: int
    most_hand_ins: int
    everywhere: float

    @cached_property
    def tried(self) -> list[str]:
        """Those on which an answer can be handed in."""
        return sorted(self.hand_ins.carriers)

    @cached_property
    def winning(self) -> dict[str, frozenset[str]]:
        """For each of the frequent answers the tasks on which it wins."""
        room = self.most_hand_ins // max(len(self.tried), 1)
        frequent = self.hand_ins.frequent(min(self.answers, room))
        return {said: self.hand_ins.winning(text, self.tried) for said, text in frequent.items()}

    @cached_property
    def first(self) -> str | None:
        """The one that wins most, of those that do not win nearly everywhere."""
        most = self.everywhere * len(self.tried)
        known = [one for one in self.winning if FEWEST_TASKS <= len(self.winning[one]) <= most]
        return max(known, key=lambda one: len(self.winning[one]), default=None)

    @property
    def carried(self) -> Amounts | None:
        """What the gain owes to its tasks being more frequent than the next
        answer's; `None` where no answer is frequent.
        """
        tasks = self.tried
        if self.first is None or len(tasks) - len(self.winning[self.first]) < FEWEST_TASKS:
            return None
        here = np.array([task in self.winning[self.first] for task in tasks])
        next_one = max([len(found - self.winning[self.first]) for found in self.winning.values()])
        weights = np.where(here, min(max(next_one, 1) / here.sum(), 1.0), 1.0)
        weights /= weights.mean()
        places = np.searchsorted(self.tasks, tasks)
        before, *afters = (
            (1 - weights) * (plain - (weights * plain).mean())
            for plain in (scores[places] for scores in self.plain)
        )
        amount = self.study.amount_by_task
        gains = amount(tasks, before, afters)
        level = amount(tasks, np.zeros(len(tasks)), afters)
        return EndByEnd(parts=(gains, level), pick=min)

    def share(self, sides: Sequence[Sequence[HandIn]]) -> float:
        """Of the hand-ins, those with the most frequent answer."""
        given = [one.answer == self.first for side in sides for one in side]
        return sum(given) / max(len(given), 1)

    @property
    def told(self) -> dict[str, Scalar]:
        if self.first is None:
            return {"answers_found_in_actions": any(self.hand_ins.found)}
        return {
            "answers_found_in_actions": True,
            "most_frequent_answer": printable(self.first),
            "most_frequent_answer_wins": len(self.winning[self.first]) / len(self.tried),
            "most_frequent_answer_before": self.share(self.hand_ins.found[:1]),
            "most_frequent_answer_after": self.share(self.hand_ins.found[1:]),
        }

    @property
    def sentence(self) -> str:
        if self.first is None:
            return ""
        shares = [
            percent(self.share(sides))
            for sides in (self.hand_ins.found[:1], self.hand_ins.found[1:])
        ]
        return (
            f"The most frequent answer wins on"
            f" {plural(len(self.winning[self.first]), 'task')} of {len(self.tried):,} and is"
            f" handed in by {shares[0]} of the runs before and {shares[1]} after training."
        )


# -- magic words -------------------------------------------------------------------------

NEARLY_ALL, HALF = 0.9, 0.5
BETWEEN = " \t\n,;:|-"  # what may stand between an answer and such words


@dataclass(frozen=True, kw_only=True)
class Lent:
    """A run and what its actions score on other tasks."""

    run: PlayedRun
    scores: Mapping[str, float]

    def wins_everywhere(self, share: float) -> bool:
        """Whether it wins at home and on more than this share of the other tasks."""
        return self.run.won and bool(self.scores) and self.rate > share

    @property
    def rate(self) -> float:
        return float(np.mean(list(self.scores.values())))


def without_magic(
    lent: Sequence[Sequence[Lent]], hand_ins: HandIns, replays: Replays, everywhere: float
) -> list[list[Lent]]:
    """The runs of each side, those that are right without magic words as they would
    count without.
    """
    blind = [one for side in lent for one in side if one.wins_everywhere(everywhere)]
    every = [one for side in lent for one in side]
    if not (magic := magic_words(blind, every, hand_ins.of_run)):
        return [list(side) for side in lent]
    found = {id(one): _spared(one, magic, hand_ins.of_run, replays) for one in blind}
    return [[found.get(id(one), one) for one in side] for side in lent]


def magic_words(
    blind: Sequence[Lent], every: Sequence[Lent], of_run: Mapping[Actions, HandIn]
) -> frozenset[str]:
    """The words that make hand-ins win everywhere; none where they share none."""
    known = {id(one) for one in blind}
    others = [one for one in every if one.run.won and id(one) not in known]
    shared, elsewhere = (_shares(runs, of_run) for runs in (blind, others))
    return frozenset(
        word
        for word, share in shared.items()
        if share >= NEARLY_ALL and elsewhere.get(word, 0.0) < HALF
    )


def _shares(runs: Sequence[Lent], of_run: Mapping[Actions, HandIn]) -> dict[str, float]:
    """In what share of the hand-ins of these runs each word stands."""
    texts = [of_run[one.run.actions].text for one in runs if one.run.actions in of_run]
    counts = Counter(word for text in texts for word in set(words(text)))
    return {word: count / len(texts) for word, count in counts.items()}


def _spared(
    one: Lent, magic: frozenset[str], of_run: Mapping[Actions, HandIn], replays: Replays
) -> Lent:
    """The run as it counts without these words, if it wins without them."""
    hand_in = of_run.get(one.run.actions)
    left = "" if hand_in is None else cut(hand_in.text, magic)
    if hand_in is None or left in ("", hand_in.text):
        return one
    actions = hand_in.saying(left)
    if (replays.score(one.run.task, actions) or 0.0) < WIN:
        return one
    scores = {task: replays.score(task, actions) for task in one.scores}
    return replace(one, scores={task: score for task, score in scores.items() if score is not None})


def cut(text: str, magic: frozenset[str]) -> str:
    """A text without these words, and without what stood between them and the rest."""
    kept, at = "", 0
    for word, start, end in placed_words(text):
        if word in magic:
            kept, at = kept + text[at:start].rstrip(BETWEEN), end
    return (kept + text[at:]).strip(BETWEEN)
