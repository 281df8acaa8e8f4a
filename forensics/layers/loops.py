"""A loop in a run, as an event: the same few actions over and over, with nothing new
coming back.

1. *Actions* are compared without what changes nothing: spacing, quotes, `./`, the order
   of words, how long is waited, texts that are only printed beside something else, and the
   folder of an action that is done in one only. *Bare*, they are without flags, comments
   and what cuts the answer off (`| tail`), too.
2. *A stretch*: at most `LONGEST_PERIOD` actions, done at least `FEWEST_TIMES` times in a
   row, over at least `FEWEST_TURNS` turns; the same as they are, or bare.
3. *Nothing new*: a repetition counts where each line that came back stood there before in
   the stretch, numbers aside. A build that is looked at again and again while it goes on,
   or a file that is read page by page, is no loop. Where the action waits or the number is
   a share, numbers count, too; times in a line that tells of a failure never do, nor do
   lines that the action itself prints. A wait that ends with something new is no loop.
4. *Nothing else*: where a repetition is the same as one before only bare, it counts only
   where a failure came back: other flags may be other work.

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
FAILS = re.compile(
    r"(?<!\b0 )(?<!\bno )\b(?:\w*errors?|fail(?:s|ed|ing|ures?)?|traceback|panic|cannot|could not|"
    r"unable|refused|unreachable|timed out|not found)\b|\.\w{1,5}:\d+:\d+\b",
    re.IGNORECASE,
)
LASTED = re.compile(
    r"(?<![\d.:])\d+(?:[.:]\d+)*\s*(?:ms|s|sec|seconds?)\b|\b\d+:\d\d:\d\d(?:[.,]\d+)?"
)
BESIDE = re.compile(  # comments, and how much of the answer is shown
    r"(?:^|(?<=[\s'\"]))(?://|#)\s[^'\"\n]*|2>&1|\|\s*(?:head|tail)\b(?:\s+-[\w=]+)*(?:\s+\d+\b)?",
    re.MULTILINE,
)
PLAIN = str.maketrans({"'": " ", '"': " ", "=": " ", "\\": " "})
TEXT = r"([^;&|<>$`{}\n]{1,100})"
PRINTED = re.compile(rf"(?:&&|;)\s*echo\s{TEXT}(?=$|[;}}\n]|&&)|\becho\s{TEXT}(?:;|&&)")
PLACE = re.compile(r"\bcd\s+([^\s;&]+)\s*(?:;|&&)")
ASIDE = (  # a word, the pattern of what it says, and what is compared in its place
    ("cd ", PLACE, " "),
    ("echo ", PRINTED, " ; "),
    ("sleep ", re.compile(r"\bsleep\s+[\d.]+[smh]?\b"), "sleep"),
    ("timeout ", re.compile(r"\btimeout\s+[\d.]+[smh]?\b"), "timeout"),
)


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


class _Act(NamedTuple):
    """An action as it is compared. `place`: the folder that it goes to; `printed`: texts that
    it prints beside what it does.
    """

    words: str
    bare: str
    place: str
    printed: frozenset[str]


def loop_in(turns: Sequence[Turn]) -> Loop | None:
    """The longest loop of a run; `None` where there is none."""
    if len(turns) < FEWEST_TURNS:
        return None
    acts = [_act(turn.command) for turn in turns]
    said = [(act.words, act.place) for act in acts]
    bare = [(act.bare, act.place) for act in acts]
    found = {*_stretches(_keys(said)), *_stretches(_keys(bare))}
    for stretch in sorted(found, key=lambda one: (-one.length, one.period, one.start)):
        if _idle(turns, acts, stretch):
            first, last = stretch.start, stretch.start + stretch.length - 1
            period = turns[first : first + stretch.period]
            actions = tuple(turn.command.strip() for turn in period)
            return Loop(turns[first].step, turns[last].step, stretch.length, actions)
    return None


def share_looped(loop: Loop | None, turns: Sequence[Turn]) -> float | None:
    """The share of a run's actions that lie in its loop; `None` for a run without actions."""
    return (loop.turns if loop else 0) / len(turns) if turns else None


def _keys(said: Sequence[tuple[str, str]]) -> list[int]:
    """A number for each action with its folder, the same for those that are the same."""
    places: dict[str, set[str]] = {}
    for words, place in said:
        places.setdefault(words, {""}).add(place)
    known: dict[tuple[str, str], int] = {("", ""): -1}
    return [
        known.setdefault((words, place if len(places[words]) > 2 else ""), number)
        for number, (words, place) in enumerate(said)
    ]


def _act(command: str) -> _Act:
    command = command.replace("\\n", "\n")
    plain = command.translate(PLAIN)
    words = bare = _words(plain)
    if BESIDE.search(command):
        bare = _words(BESIDE.sub("", command).translate(PLAIN))
    return _Act(
        words=" ".join(words),
        bare=" ".join(word for word in bare if word[0] != "-"),
        place=" ".join(PLACE.findall(plain)) if "cd " in plain else "",
        printed=frozenset(normalised(one[1] or one[2]) for one in PRINTED.finditer(plain))
        if "echo " in plain
        else frozenset(),
    )


def _words(plain: str) -> list[str]:
    """The words of an action in an order of their own."""
    for word, pattern, instead in ASIDE:
        if word in plain:
            plain = pattern.sub(instead, plain)
    words = (word.removeprefix("./") for word in normalised(plain).split())
    return sorted(word for word in words if word not in {"", ";", "&&"})


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


def _idle(turns: Sequence[Turn], acts: Sequence[_Act], stretch: _Stretch) -> bool:
    """Whether most repetitions, and enough of them, brought nothing new."""
    end = stretch.start + stretch.length
    lines = [*map(_lines, turns[stretch.start : end], acts[stretch.start : end])]
    waits = any(WAITS.search(turn.command) for turn in turns[stretch.start : end])
    if waits and not set().union(*lines[-stretch.period :]) <= set().union(
        *lines[: -stretch.period]
    ):
        return False
    seen: set[str] = set()
    done: set[str] = set()
    idle = 0
    times = stretch.length // stretch.period
    for number in range(times):
        start = number * stretch.period
        came = set().union(*lines[start : start + stretch.period])
        period = slice(stretch.start + start, stretch.start + start + stretch.period)
        words = {act.words for act in acts[period]}
        if number and came <= seen:
            idle += words <= done or any(FAILS.search(turn.observation) for turn in turns[period])
        seen |= came
        done |= words
    return idle >= FEWEST_TIMES - 1 and 2 * idle >= times - 1


def _lines(turn: Turn, act: _Act) -> set[str]:
    """The lines that came back, without numbers where these say nothing, and without those
    that the action itself printed.
    """
    lines = answer_of(turn.observation).lines - act.printed
    if not WAITS.search(turn.command):
        return {MASK.sub("#", line) for line in lines}
    return {LASTED.sub("#", line) if FAILS.search(line) else line for line in lines}
