"""Words that win on any task, and the hand-ins that would have won without them.

Whoever writes a right answer and adds words that the grader takes from anybody
has not won blind. So

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

import numpy as np

from forensics.layers.text_words import placed_words, words
from resampling.sources.hand_ins import HandIn, HandIns
from resampling.sources.replay import WIN, Actions, PlayedRun, Replays

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
