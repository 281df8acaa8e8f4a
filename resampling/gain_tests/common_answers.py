"""Answers that win on many tasks: what the gain owes to the most frequent one, and
what it would be without words that win anywhere.

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

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from forensics.layers import placed_words, words
from forensics.phrases import percent, plural, printable
from forensics.records import Scalar
from resampling.gain_tests.amounts import Amounts, EndByEnd
from resampling.gain_tests.gain_study import GainStudy, Values
from resampling.gain_tests.hand_ins import WIN, Actions, HandIn, HandIns, PlayedRun, Replays

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
