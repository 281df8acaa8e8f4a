"""A loop in a run, as an event: the same few actions over and over, with nothing new
coming back.

1. *Actions* are compared without what changes nothing: spacing, quotes, `./`, the order
   of words.
2. *A stretch*: at most `LONGEST_PERIOD` actions, done at least `FEWEST_TIMES` times in a
   row, over at least `FEWEST_TURNS` turns.
3. *Nothing new*: a repetition counts where each line that came back stood there before in
   the stretch, numbers aside. A build that is looked at again and again while it goes on,
   or a file that is read page by page, is no loop. Where the action waits or the number is
   a share, numbers count, too.

The longest such stretch of a run is told: of equal ones that with the shortest period,
then the first.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forensics.layers.actions import Turn, answer_of
from forensics.layers.text_words import normalised

LONGEST_PERIOD = 12
FEWEST_TIMES = 3
FEWEST_TURNS = 5
MASK = re.compile(r"\d+(?:[.,:]\d+)*(?![\d.,:]*\s*(?:%|/\s*\d|of\s+\d))")
WAITS = re.compile(r"\b(?:sleep|wait|watch)\b", re.IGNORECASE)
PLAIN = str.maketrans({"'": " ", '"': " ", "=": " ", "\\": " "})


class Loop(NamedTuple):
    """`first` and `last`: step numbers of actions, from 0. `turns`: how many actions lie
    in it; `actions`: one period of them, as they were written the first time.
    """

    first: int
    last: int
    turns: int
    actions: tuple[str, ...]

    @property
    def times(self) -> int:
        """How often the actions were done in full."""
        return self.turns // len(self.actions)


class _Stretch(NamedTuple):
    start: int
    length: int
    period: int


def loop_in(turns: Sequence[Turn]) -> Loop | None:
    """The longest loop of a run; `None` where there is none."""
    if len(turns) < FEWEST_TURNS:
        return None
    found = sorted(_stretches(_keys(turns)), key=lambda one: (-one.length, one.period, one.start))
    for stretch in found:
        if _idle(turns, stretch):
            first, last = stretch.start, stretch.start + stretch.length - 1
            period = turns[first : first + stretch.period]
            actions = tuple(turn.command.strip() for turn in period)
            return Loop(turns[first].step, turns[last].step, stretch.length, actions)
    return None


def share_looped(loop: Loop | None, turns: Sequence[Turn]) -> float | None:
    """The share of a run's actions that lie in its loop; `None` for a run without actions."""
    return (loop.turns if loop else 0) / len(turns) if turns else None


def _keys(turns: Sequence[Turn]) -> list[int]:
    """A number for each turn, the same for actions that are the same."""
    known: dict[str, int] = {"": -1}
    glances = [_key(turn.command) for turn in turns]
    return [known.setdefault(key, number) for number, key in enumerate(glances)]


def _key(command: str) -> str:
    words = normalised(command.translate(PLAIN)).split()
    return " ".join(sorted(word.removeprefix("./") for word in words))


def _stretches(keys: Sequence[int]) -> Iterator[_Stretch]:
    """Where a period repeats often enough, as far as it goes; no turn without an action."""
    for period in range(1, LONGEST_PERIOD + 1):
        fewest = max(FEWEST_TIMES * period, FEWEST_TURNS)
        same = 0
        for at in range(period, len(keys) + 1):
            if at < len(keys) and keys[at] == keys[at - period] >= 0:
                same += 1
                continue
            if same + period >= fewest:
                yield _Stretch(at - same - period, same + period, period)
            same = 0


def _idle(turns: Sequence[Turn], stretch: _Stretch) -> bool:
    """Whether most repetitions, and enough of them, brought nothing new."""
    seen: set[str] = set()
    idle = 0
    times = stretch.length // stretch.period
    for number in range(times):
        start = stretch.start + number * stretch.period
        lines = set().union(*(_lines(turn) for turn in turns[start : start + stretch.period]))
        idle += number > 0 and lines <= seen
        seen |= lines
    return idle >= FEWEST_TIMES - 1 and 2 * idle >= times - 1


def _lines(turn: Turn) -> set[str]:
    """The lines that came back, without numbers where these say nothing."""
    lines = answer_of(turn.observation).lines
    return set(lines) if WAITS.search(turn.command) else {MASK.sub("#", line) for line in lines}
