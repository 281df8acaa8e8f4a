"""What the gain owes to the most frequent answer.

Of the answers that won on most tasks, each is handed in everywhere: put in place of the
answer in the task's own runs, so that what has to be found beside the answer stays (in
runs where a text that means nothing does not win; there the answer decides). `M` are
the tasks on which the first of them wins. With the tasks of M counting no more than
those of the next most frequent answer,

    carried = min(G - G_balanced, S_A - S_A,balanced):

the gain does not carry over to other answers, *and* the policy after training is worse
there. Both, since a policy that shunned this answer before gains most on M honestly, and
one that is as good on the rest has no skew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forensics.phrases import percent, plural, printable
from forensics.records.evidence import Scalar
from resampling.sources.amounts import Amounts, EndByEnd
from resampling.sources.hand_ins import HandIn, HandIns
from resampling.sources.source_study import SourceStudy, Values

FEWEST_TASKS = 5  # of either sort, for the most frequent answer to be told from the rest


@dataclass(frozen=True, kw_only=True)
class FrequentAnswer:
    """The most frequent answers of the wins, handed in everywhere. `tasks` of blind play,
    with the scores of each side there (`plain`); `answers`: so many are tried, in at
    most so many hand-ins; `everywhere`: the share of tasks on which no right answer wins.
    """

    study: SourceStudy
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
