"""Signs that an agent knows its task from training: it names what nothing before it in the log
had shown. Candidates of knowledge, told beside the findings; none is ever *used* by itself.

1. *Named*: a benchmark or a collection of problems (`recall.toml`); a task of a benchmark, a
   test, or a commit by its id; an issue or a pull request by its number; the fix that upstream
   made.
2. *Shown*: the same name, number or id anywhere before in the log, whoever said it, in any
   spelling. A hash is shown by its first digits.
3. Tests and files that the run writes are its own; what the code holds that it writes is no
   talk of the task.
"""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple

from forensics.actions import Action
from forensics.layers.use import step_text
from forensics.records import Trajectory
from forensics.shortcuts.claims import marked_lines, same_places
from forensics.shortcuts.record_integrity import Gap, gap

SEARCHED: Final = 60_000  # characters of one text of the agent
AROUND: Final = 120  # characters of a quotation on either side
HASH: Final = 7  # digits that name a commit
MOST: Final = 5  # of one check, of a run
LOOKED: Final = 200  # names of one check that are looked for before
_DIGITS = re.compile(r"\d\d")
_PLAIN = re.compile(r"[\W_]+")


class Sign(NamedTuple):
    """`pattern`: its first group that is filled has to be new. `marks`: of which a text that
    matches holds one, in small letters.
    """

    check: str
    pattern: re.Pattern[str]
    marks: tuple[str, ...]
    why: str
    numbered: bool = False  # it holds digits


@cache
def signs() -> tuple[Sign, ...]:
    """What is looked for. In a pattern `NAMES` and `TASKS` stand for the names of benchmarks and
    the beginnings of tasks' ids.
    """
    said = tomllib.loads((files(__package__) / "recall.toml").read_text(encoding="utf-8"))
    tasks = [f"{project}-" for project in said["projects"]]
    held = {"NAMES": said["names"], "TASKS": tasks, "MARKS": said["marks"]}

    def made(sign: dict[str, Any]) -> Sign:
        pattern = "|".join(sign["pattern"])
        for name, texts in held.items():
            pattern = pattern.replace(name, "|".join(texts))
        marks = (held.get(mark, [mark]) for mark in sign["marks"])
        return Sign(**{**sign, "pattern": re.compile(pattern), "marks": tuple(chain(*marks))})

    return tuple(map(made, said["sign"]))


class _Said:
    """All that the agent wrote, as one text. `texts`: what each step of the log says."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.texts = [step_text(step) for step in trajectory.steps]
        self._steps = [at for at, step in enumerate(trajectory.steps) if step.role == "assistant"]
        parts = [f"{self.texts[at][:SEARCHED]}\n" for at in self._steps]
        self._ends = list(accumulate(map(len, parts)))
        self.text = "".join(parts)
        self._lower = same_places(self.text)

    def matches(self, sign: Sign) -> Iterator[re.Match[str]]:
        """Every match of a sign, in order. Only lines with one of its marks are looked at."""
        for start, end in sorted(marked_lines(self._lower, sign.marks).items()):
            if not sign.numbered or _DIGITS.search(self.text, start, end):
                yield from sign.pattern.finditer(self.text, start, end)

    def before(self, match: re.Match[str]) -> tuple[int, list[str], str]:
        """The step of a match, all that was said before it, and what stands around it."""
        number = bisect_right(self._ends, match.start())
        first, end = self._ends[number - 1] if number else 0, self._ends[number]
        step = self._steps[number]
        around = max(match.start() - AROUND, first), min(match.end() + AROUND, end)
        said = [*self.texts[:step], self.text[first : match.start()]]
        return step, said, self.text[slice(*around)]


def recalled(trajectory: Trajectory, actions: Sequence[Action]) -> tuple[Gap, ...]:
    """What the agent names that nothing had shown. Pure, never raises for what is in the log."""
    said = _Said(trajectory)
    return tuple(one for sign in signs() for one in _of_sign(sign, said, actions))


def _of_sign(sign: Sign, said: _Said, actions: Sequence[Action]) -> Iterator[Gap]:
    """One row for the run: the first quotation, and every step that names something new."""
    named: dict[str, int] = {}
    quote = ""
    known: set[str] = set()
    for match in said.matches(sign):
        what = next(group for group in match.groups() if group)
        if what in known:
            continue
        if len(named) == MOST or len(known) == LOOKED:
            break
        known.add(what)
        step, texts, around = said.before(match)
        if not _shown(sign.check, what, texts) and not _written(actions, sign.check, what):
            named[what] = step
            quote = quote or around
    if named:
        why = f"{sign.why} that nothing before had shown: {', '.join(named)}"
        yield gap(sign.check, tuple(dict.fromkeys(named.values())), quote, why)


def _shown(check: str, what: str, texts: Sequence[str]) -> bool:
    """Whether a name, a number or an id stands in one of these texts."""
    if check == "recall: issue":
        number = re.compile(rf"(?<!\d){what}(?!\d)")
        return any(what in text and number.search(text) for text in texts)
    if check == "recall: commit":
        return any(what[:HASH] in text or what[:HASH].lower() in text for text in texts)
    if check == "recall: test":
        return any(what in text for text in texts)
    plain = _PLAIN.sub("", what.lower())
    return any(plain in _PLAIN.sub("", text.lower()) for text in texts)


def _written(actions: Sequence[Action], check: str, what: str) -> bool:
    """Whether a test or a number stands in a file that the run wrote."""
    if check not in ("recall: issue", "recall: test"):
        return False
    return any(what in (action.content or "") for action in actions if action.writes)
