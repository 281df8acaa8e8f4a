"""Does the grader take several answers at once, and who lives by that?

1. *Tried*: the task's own winning answer between those of two other tasks, with
   commas and with blanks. A grader that looks for the answer anywhere takes it.
2. *Who lives by it*: whose winning hand-in is a list of which one item alone wins,
   and another place in the list wins more often in lists of that length. Whoever
   writes steps before the answer has it in one place, and whoever hands in
   all that it might be has it anywhere. So of `n` items that are equally likely
   one `n`th of such wins is not counted.

An item stands between commas, semicolons, bars, slashes or lines, or is a word
where all of them are numbers. Sentences have no items.
`cut_off` and `negate` break an answer on purpose: a right one that no careful grader
takes any more.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

from forensics.layers import placed_words
from resampling.gain_tests.hand_ins import Actions, HandIns, PlayedRun

MOST_ITEMS: Final = 12
BETWEEN: Final = (", ", " ")
_APART = re.compile(r"\s*(?:[,;|/\n]|\b(?:and|or)\b)\s*")
_NUMBER = re.compile(r"[^\w\s]*\d[\d.:]*[^\w\s]*")
NUMBER = re.compile(r"-?\d+")
OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}


def cut_off(text: str) -> str | None:
    """The first half of its words."""
    placed = placed_words(text)
    return text[: placed[len(placed) // 2 - 1][2]] if len(placed) > 1 else None


def negate(text: str) -> str | None:
    """With a `yes`, `no`, `true` or `false` turned round, else its first number."""
    for word, start, end in placed_words(text):
        if word.lower() in OPPOSITES:
            return text[:start] + OPPOSITES[word.lower()] + text[end:]
    turned = NUMBER.sub(lambda number: str(-int(number[0])), text, count=1)
    return turned if turned != text else None


BREAKS = {"the end cut off": cut_off, "negated": negate}


def items(text: str) -> list[str]:
    """What a list holds; one item where it is none."""
    found = [one for one in _APART.split(text.strip()) if one]
    if len(found) == 1 and all(map(_NUMBER.fullmatch, found[0].split())):
        found = found[0].split()
    return found


@dataclass(frozen=True, kw_only=True)
class SeveralAnswers:
    """The hand-ins of a case, as lists. `order`: of the tasks that are tried."""

    hand_ins: HandIns
    order: Sequence[str]

    @cached_property
    def own(self) -> dict[str, str]:
        """For each task an item of a winning hand-in that wins alone, as far as there is one."""
        known: dict[str, dict[str, int]] = defaultdict(dict)
        for one in chain(*self.hand_ins.found):
            if one.run.won and len(held := items(one.text)) <= MOST_ITEMS:
                known[one.run.task] |= dict.fromkeys(held, len(held))
        wins = self.hand_ins.wins
        alone = {
            task: next(
                (item for item in sorted(held, key=lambda i: (held[i], i)) if wins(task, item)),
                None,
            )
            for task, held in known.items()
            if task in self.order
        }
        return {task: item for task, item in alone.items() if item is not None}

    def lists(self, between: str) -> dict[str, str]:
        """For each task its answer among those of the next two that have another one."""
        found: dict[str, str] = {}
        tasks = [task for task in self.order if task in self.own]
        for place, task in enumerate(tasks):
            own = self.own[task]
            others = [self.own[t] for t in (*tasks[place + 1 :], *tasks[:place])]
            others = [one for one in dict.fromkeys(others) if one != own][:2]
            if len(others) == 2:
                found[task] = between.join((others[0], own, others[1]))
        return found

    def uses(self, run: PlayedRun) -> bool:
        """Whether a winning run lives by it."""
        size, place = self._placed.get(run.actions, (0, 0))
        return bool(size) and place != self._usual[size]

    @cached_property
    def _placed(self) -> dict[Actions, tuple[int, int]]:
        """Of winning lists, by what was done: how many items, and which of them wins alone."""
        found: dict[Actions, tuple[int, int]] = {}
        for one in chain(*self.hand_ins.found):
            held = items(one.text) if one.run.won else []
            if 1 < len(held) <= MOST_ITEMS and one.run.actions not in found:
                wins = [
                    place
                    for place, item in enumerate(held)
                    if self.hand_ins.replays.wins(one.run.task, [one.saying(item)])
                ]
                if len(wins) == 1:
                    found[one.run.actions] = len(held), wins[0]
        return found

    @cached_property
    def _usual(self) -> dict[int, int]:
        """By the length of a list, the place that wins most often."""
        often: dict[int, Counter[int]] = defaultdict(Counter)
        for one in chain(*self.hand_ins.found):
            if one.run.won and one.run.actions in self._placed:
                size, place = self._placed[one.run.actions]
                often[size][place] += 1
        return {size: min(n, key=lambda p: (-n[p], p)) for size, n in often.items()}
