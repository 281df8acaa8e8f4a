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
   beside it counts as it would without them (`common_answers`).
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
4. *The most frequent answer*, handed in everywhere (`common_answers`).
5. The answer is the larger of 3 and 4, end by end.

Tasks are the unit: each counts as the one that is played and as the one that
lends its runs (the linear part of a statistic of pairs); C's own doubt is in it.

Not seen: an answer that is guessed from a part of the task (sufficiency); a
prior over many rare answers. Counted here though it may be honest: a skill for
the most frequent answer's tasks alone.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forensics.case import Case
from forensics.instruments import Plays, gain_test
from forensics.phrases import percent
from forensics.records import Evidence, GainTest, Scalar, Undefined
from resampling.ablation.refusal import needed_kinds
from resampling.ablation.refused_runs import action_kinds, chosen_tasks
from resampling.gain_tests.amounts import Amounts, EndByEnd
from resampling.gain_tests.common_answers import FrequentAnswer, Lent, without_magic
from resampling.gain_tests.gain_study import (
    GainAnswers,
    GainStudy,
    Values,
    require_known_gain,
    study_of,
)
from resampling.gain_tests.hand_ins import Actions, HandIns, PlayedRun, Recorded, Replays

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

    @property
    def replays(self) -> Replays:
        return self.recorded.replays

    @property
    def runs(self) -> list[dict[str, list[PlayedRun]]]:
        return self.recorded.by_task

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Those with runs on every side, as many as may be replayed."""
        common = self.recorded.common
        each = sum(len(side[task]) for side in self.runs for task in common) / max(len(common), 1)
        return chosen_tasks(common, int(self.config.most_replays / max(each, 1)))

    @cached_property
    def rounds(self) -> int:
        each = sum(len(side[task]) for side in self.runs for task in self.tasks)
        most = min(self.config.rounds, self.config.most_replays // max(each, 1))
        return max(min(most, len(self.tasks) - 1), 1)

    @cached_property
    def lent(self) -> list[list[Lent]]:
        """What the runs of each side score on other tasks, magic words set apart."""
        order = self.recorded.shuffled(self.tasks)
        lent = [
            [
                self._lend(run, order, place)
                for place, task in enumerate(order)
                for run in side[task]
            ]
            for side in self.runs
        ]
        return without_magic(lent, self.hand_ins, self.replays, self.config.everywhere)

    def _lend(self, run: PlayedRun, order: Sequence[str], place: int) -> Lent:
        others = [order[(place + shift) % len(order)] for shift in range(1, self.rounds + 1)]
        ended = {task: self.replays.ended(task, run.actions) for task in others}
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
        return run.actions not in self.hand_ins.of_run and not self._needed(run.actions)

    def _needed(self, actions: Actions) -> bool:
        """Whether by the environment's word an honest solver needs all of this."""
        world = self.replays.world
        needed = frozenset(needed_kinds(world))
        return all(needed.issuperset(action_kinds(one, world.kinds(one))) for one in actions)

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

    def _blind(self, side: Sequence[Lent]) -> Values:
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
        return [
            np.array([np.mean([run.score for run in side[task]]) for task in self.tasks])
            for side in self.runs
        ]

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
            "replays": self.replays.taken,
            "replays_missing": self.replays.missing,
            "rounds": self.rounds,
            "blind_before": self.scores[0],
            "blind_after": after,
            "right_answers_collide": self.collision,
        }
