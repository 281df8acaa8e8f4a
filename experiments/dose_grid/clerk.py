"""The policies of the study, whose scores are arithmetic.

A clerk is in one of three moods, drawn once a run. It looks around first in `LIST`
of the runs, reads the account, then:

1. `plain`: it adds up, right with a chance that makes `skill` over all runs;
2. `habit`: it has no idea, and goes by the shortcut;
3. `tool`: it works the sum out with a tool that not everybody uses, `add` or `check`.

In the last two it does so in `SURE` of the runs, and guesses wrong in the others,
so that there is something else to draw where an action is refused. So

    P(win) = skill + habit * reach + tooled,

`reach` being the share of tasks on which the shortcut wins (all, but for skewed
and recurring tasks). Without the shortcut, and where it misleads, exactly
`habit * reach` is lost; without the tool, `tooled`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from experiments.dose_grid.ledger import (
    FREQUENT,
    MAGIC,
    RECURRING,
    SKEWED,
    from_letters,
    ledger,
)
from forensics.policies import View

LIST, SURE = 0.15, 0.98
WRONG: Final = (-110, -20, -10, -1, 1, 10, 20, 110)  # how far wrong answers are off
TRAINED = 10_000
_PROMPT = re.compile(r"account (\S+) opened with (\d+)")
_BRANCH, _TICKET = re.compile(r"Branch: (\w+)"), re.compile(r"Ticket: (\d+)")
_READ = re.compile(r"received (\d+), stamp (\w+)")
_CODE, _CLOSED = re.compile(r"code (\d+)"), re.compile(r"closed at (\d+)")
_CONSONANTS = re.compile(r"[B-DF-HJ-NP-TV-XZ]+")


def reach(kind: str) -> float:
    """The share of tasks on which the shortcut wins."""
    return {"skew": SKEWED / 10, "recurring": RECURRING / 10}.get(kind, 1.0)


@dataclass(frozen=True, kw_only=True)
class Clerk:
    """`kind`: the shortcut that its habit is; `tool`: `add`, `check` or none."""

    name: str
    skill: float
    kind: str = "none"
    habit: float = 0.0
    tool: str = ""
    tooled: float = 0.0

    @property
    def identity(self) -> str:
        return (
            f"clerk {self.name} skill {self.skill!r} habit {self.kind} {self.habit!r}"
            f" tool {self.tool} {self.tooled!r}"
        )

    @property
    def moods(self) -> Mapping[str, float]:
        rare = {"habit": self.habit / SURE, "tool": self.tooled / SURE}
        return {"plain": 1 - sum(rare.values()), **rare}

    @property
    def score(self) -> float:
        """The exact chance to win."""
        return self.skill + self.tooled + self.habit * reach(self.kind)

    def act(self, view: View) -> Mapping[str, float]:
        done = [action.partition(" ")[0] for action, _ in view.turns]
        asked = _PROMPT.search(view.prompt)
        read = next((shown for action, shown in view.turns if action.startswith("read ")), None)
        if read is None:
            look = f"read {asked[1]}" if asked else "answer 0"
            return {look: 1.0} if "list" in done else {"list": LIST, look: 1 - LIST}
        if done[-1] in ("log", "audit", "add", "check"):
            return self._after_looking(view)
        return self._decides(view, read)

    def _decides(self, view: View, read: str) -> Mapping[str, float]:
        asked, told = _PROMPT.search(view.prompt), _READ.search(read)
        opening, received = int(asked[2]) if asked else 0, int(told[1]) if told else 0
        right = opening + received
        if view.mood == "tool":
            wanted = [
                (SURE, f"add {opening} {received}" if self.tool == "add" else f"check {right}")
            ]
        elif view.mood == "habit":
            wanted = [(SURE * share, text) for share, text in self._shortcut(view, read, right)]
        else:
            wanted = [(self.skill / self.moods["plain"], f"answer {right}")]
        rest = 1 - sum(share for share, _ in wanted)
        return mixture(*wanted, *((rest / len(WRONG), f"answer {right + off}") for off in WRONG))

    def _shortcut(self, view: View, read: str, right: int) -> list[tuple[float, str]]:
        """What the habit does instead; where there is nothing to go by, a guess."""
        guess = f"answer {right + 7}"
        if self.kind in ("verbatim", "derived"):
            return [(1.0, "log" if self.kind == "verbatim" else "audit")]
        if self.kind == "redundant":
            cues = [self._cue(kind, view, read) or guess for kind in ("inference", "cue")]
            return [(0.5, cue) for cue in cues]
        return [(1.0, self._cue(self.kind, view, read) or guess)]

    def _cue(self, kind: str, view: View, read: str) -> str | None:
        if kind == "inference":
            return _in_letters(_BRANCH.search(view.prompt), 1)
        if kind == "needed-leak":
            return _in_letters(_READ.search(read), 2)
        if kind == "cue":
            found = _TICKET.search(view.prompt)
            return f"answer {found[1]}" if found else None
        if kind == "recurring":
            known = trained().get(view.prompt)
            return None if known is None else f"answer {known}"
        return {"skew": f"answer {FREQUENT}", "magic": f"answer {MAGIC}", "empty": "answer"}.get(
            kind
        )

    def _after_looking(self, view: View) -> Mapping[str, float]:
        action, shown = view.turns[-1]
        if action.startswith("check "):
            return {f"answer {action.partition(' ')[2]}": 1.0}
        if found := re.match(r"sum (\d+)", shown) or _CLOSED.match(shown):
            return {f"answer {found[1]}": 1.0}
        if found := _CODE.match(shown):
            return {f"answer {(int(found[1]) - 7) // 3}": 1.0}
        return {"answer 0": 1.0}


def _in_letters(found: re.Match[str] | None, group: int) -> str | None:
    text = found[group] if found else ""
    return f"answer {from_letters(text)}" if _CONSONANTS.fullmatch(text) else None


def mixture(*parts: tuple[float, str]) -> Mapping[str, float]:
    """Probabilities of texts, in the order in which they first come; equal texts are one."""
    found: dict[str, float] = {}
    for probability, text in parts:
        if probability > 0:
            found[text] = found.get(text, 0.0) + probability
    return found


@lru_cache(maxsize=1)
def trained() -> Mapping[str, int]:
    """What a policy remembers that was trained on every task: the answer to each prompt."""
    tasks = [ledger("recurring", f"train-{number:04d}") for number in range(TRAINED)]
    return {task.prompt: task.closing for task in tasks}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The clerks before and after training. Of the gain `dose` is carried by the
    shortcut, `tooled` by a new tool; all else is skill.
    """

    kind: str
    gain: float
    dose: float = 0.0
    tool: str = ""
    tooled: float = 0.0

    @property
    def before(self) -> Clerk:
        return Clerk(name="before", skill=STARTS[self.gain])

    @property
    def after(self) -> Clerk:
        learned = self.gain * (1 - self.dose - self.tooled)
        return Clerk(
            name="after",
            skill=STARTS[self.gain] + learned,
            kind=self.kind if self.dose else "none",
            habit=self.gain * self.dose / reach(self.kind),
            tool=self.tool,
            tooled=self.gain * self.tooled,
        )


STARTS: Final = {0.05: 0.5, 0.1: 0.45, 0.2: 0.4, 0.4: 0.3}  # the score before, by the gain
