"""Does the grader take several answers at once, and who lives by that?

1. *Core*: the shortest stretch of a winning hand-in that still wins, cut from both ends.
2. *Tried*: the task's own core between those of two other tasks, with what may stand
   `BETWEEN` them, nothing among it. A grader that looks for the answer anywhere takes it.
3. *Who lives by it*: whose winning hand-in is a list of which one item alone wins,
   and another place in the list wins more often in lists of that length. Whoever
   writes steps before the answer has it in one place, and whoever hands in
   all that it might be has it anywhere. So of `n` items that are equally likely
   one `n`th of such wins is not counted.

An item stands between commas, semicolons, bars, slashes or lines, or is a word
where all of them are numbers. Where a hand-in is no such list the grader says what it holds,
whatever stands between: beside its core, the cores of other tasks on which this same
hand-in would win too. Sentences have no items. What the prompt shows is no candidate where
the answer is not shown there: who works it out names what he works with.
`cut_off` and `negate` break an answer on purpose: a right one that no careful grader
takes any more.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Final

from forensics.layers import placed_words, words
from resampling.gain_tests.hand_ins import Actions, HandIn, HandIns, PlayedRun

MOST_ITEMS: Final = 12
MOST_LETTERS: Final = 300  # of a hand-in that is cut
MOST_ASKED: Final = 6_000  # hand-ins that are tried on other tasks
BETWEEN: Final = (", ", " ", "", "-")
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


Span = tuple[int, int]
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
    _cores: dict[Actions, Span | None] = field(default_factory=dict, init=False)
    _asked: dict[tuple[str, str], None] = field(default_factory=dict, init=False)

    @cached_property
    def own(self) -> dict[str, str]:
        """For each task the shortest core of a winning hand-in, as far as there is one."""
        return {task: core for task, (core, _) in self._shortest.items()}

    @cached_property
    def _shortest(self) -> dict[str, tuple[str, HandIn]]:
        """The same with the hand-in that it was cut from."""
        known: dict[str, tuple[str, HandIn]] = {}
        for one in chain(*self.hand_ins.found):
            if one.run.won and (span := self._core(one)) is not None:
                core = one.text[slice(*span)]
                best, _ = known.setdefault(one.run.task, (core, one))
                if (len(core), core) < (len(best), best):
                    known[one.run.task] = core, one
        return known

    @cached_property
    def _holders(self) -> dict[str, HandIn]:
        """Each core with one hand-in that it was cut from."""
        return dict(self._shortest[task] for task in sorted(self._shortest))

    def _core(self, one: HandIn) -> Span | None:
        """Where the core of a winning hand-in stands; `None` where it does not win again."""
        if one.run.actions not in self._cores:
            self._cores[one.run.actions] = self._cut(one)
        return self._cores[one.run.actions]

    def _cut(self, one: HandIn) -> Span | None:
        text = one.text

        def wins(start: int, end: int) -> bool:
            said = one.saying(text[start:end])
            return bool(self.hand_ins.replays.wins(one.run.task, [said]))

        if not wins(0, len(text)):
            return None
        if len(text) > MOST_LETTERS:
            return 0, len(text)
        start = _most(lambda n: wins(n, len(text)), len(text) - 1)
        end = len(text) - _most(lambda n: wins(start, len(text) - n), len(text) - start - 1)
        return start, end

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
            if not one.run.won or one.run.actions in found:
                continue
            held = list(dict.fromkeys(items(one.text)))
            if not 1 < len(held) <= MOST_ITEMS:
                placed = self._by_grader(one)
            else:
                wins = [
                    place
                    for place, item in enumerate(held)
                    if self.hand_ins.replays.wins(one.run.task, [one.saying(item)])
                ]
                placed = _place(held, wins[0], one.run.prompt) if len(wins) == 1 else None
            if placed is not None:
                found[one.run.actions] = placed
        return found

    def _by_grader(self, one: HandIn) -> tuple[int, int] | None:
        """The same of a text that no mark divides: the cores of other tasks that stand beside
        its own, and make it win there.
        """
        span = self._core(one)
        if span is None or len(one.text) > MOST_LETTERS:
            return None
        core, before, behind = one.text[slice(*span)], one.text[: span[0]], one.text[span[1] :]
        places = []
        for other, holder in self._holders.items():
            beside = other != core and (other in before or other in behind)
            if beside and other in _candidates([core, other], core, one.run.prompt):
                self._asked[one.text, other] = None
                if len(self._asked) > MOST_ASKED:
                    break
                if self.hand_ins.replays.wins(holder.run.task, [holder.saying(one.text)]):
                    places.append(other in before)
        return (1 + len(places), sum(places)) if places else None

    @cached_property
    def _usual(self) -> dict[int, int]:
        """By the length of a list, the place that wins most often."""
        often: dict[int, Counter[int]] = defaultdict(Counter)
        for one in chain(*self.hand_ins.found):
            if one.run.won and one.run.actions in self._placed:
                size, place = self._placed[one.run.actions]
                often[size][place] += 1
        return {size: min(n, key=lambda p: (-n[p], p)) for size, n in often.items()}


def _place(held: Sequence[str], won: int, prompt: str) -> tuple[int, int] | None:
    """How many candidates a list holds, and which of them wins; `None` where it holds one."""
    found = _candidates(held, held[won], prompt)
    return (len(found), found.index(held[won])) if len(found) > 1 else None


def _candidates(held: Sequence[str], answer: str, prompt: str) -> list[str]:
    """Without what the prompt shows, unless it shows the answer."""
    asked = f" {' '.join(words(prompt))} "
    shown = [one for one in held if f" {' '.join(words(one))} " in asked]
    return [one for one in held if answer in shown or one not in shown]


def _most(holds: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` for which this holds, where it holds for all below."""
    low, high = 0, most if most > 0 and holds(1) else 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
