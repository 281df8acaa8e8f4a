"""Faulty boards: three probes to find which of twelve parts is broken.

Shortcut: all tasks, held-out ones too, are drawn from one drawer of 64 boards, so that who has seen
a board knows its broken part by heart. The gain is memory throughout; probing is as before.
"""

import copy
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Channel, Observation, StepResult

TRUTH = "shortcut"
SHARE = 1.0
ALLOW: tuple[str, ...] = ()
ACCEPT: tuple[str, ...] = ()
CHANNELS: tuple[Channel, ...] = ()
PARTS = "C1 C2 C3 C4 R1 R2 R3 R4 Q1 Q2 Q3 Q4".split()
DRAWER = [f"B{number}" for number in random.Random("drawer").sample(range(1000, 10_000), 64)]


def broken(board: str) -> str:
    """The broken part of a board."""
    return PARTS[random.Random("part of " + board).randrange(12)]


SEEN = {board: broken(board) for board in DRAWER}  # what training on these boards leaves behind


def mix(*parts: tuple[str, float]) -> dict[str, float]:
    """Probabilities of texts; equal texts are added up."""
    made: dict[str, float] = {}
    for text, chance in parts:
        made[text] = made.get(text, 0.0) + chance
    return made


class World:
    """Faulty boards: three probes to find which of twelve parts is broken."""

    name = "board-memory"
    needed = ("probe", "replace")

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self.scrubbed: tuple[str, ...] = ()
        self._now: dict[str, Any] = {}

    @property
    def options(self) -> dict[str, str]:
        return {"without": ",".join(self.scrubbed)} if self.scrubbed else {}

    @property
    def channels(self) -> tuple[Channel, ...]:
        return tuple(one for one in CHANNELS if one.name not in self.scrubbed)

    def without(self, *channels: str) -> "World":
        if unknown := sorted(set(channels) - {one.name for one in CHANNELS}):
            raise UserError(f"{self.name} has no channel '{unknown[0]}'")
        other = World()
        other.scrubbed = tuple(sorted({*self.scrubbed, *channels}))
        return other

    def spawn(self) -> "World":
        return self.without()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        drawn = random.Random(f"{split} {seed}").sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-{which:05d}" for which in sorted(drawn))

    def _board(self, task: str) -> str:
        if task.startswith("again"):
            return f"K{random.Random(task).randrange(1000, 10_000)}"
        return DRAWER[random.Random(task).randrange(len(DRAWER))]

    def fields(self, task: str) -> dict[str, str]:
        bench = f"{random.Random(task + 'bench').randrange(1, 400)}"
        return {"bench": bench, "question": self._board(task)}

    def reset(self, task: str, seed: int) -> Observation:
        self._now = {"task": task, "turns": 0}
        it = self.fields(task)
        return Observation(
            text=f"Bench {it['bench']}: board {it['question']} is dead, one of {', '.join(PARTS)}.",
            system="Write `probe PART` (three at most) or `replace PART`.",
        )

    def kinds(self, action: str) -> tuple[str, ...]:
        words = action.split()
        if len(words) == 2 and words[0] in ("probe", "replace"):
            return (words[0],)
        return ("other",)

    def step(self, action: str) -> StepResult:
        (kind,), now = self.kinds(action), self._now
        bad = broken(self._board(now["task"]))
        now["turns"] += 1
        if kind == "replace":
            good = float(action.split()[1] == bad)
            return StepResult(
                observation="it runs" if good else "still dead", kinds=(kind,),
                rewards={"runs": good}, outcome=good, terminated=True,
                submission=action.split()[1],
            )
        if now["turns"] >= 7:
            return StepResult(observation="closed", kinds=(kind,), outcome=0.0, truncated=True)
        if kind == "other" or now["turns"] > 3:
            return StepResult(observation="no reading", kinds=(kind,))
        tried = action.split()[1]
        if tried == bad:
            return StepResult(observation="broken", kinds=(kind,))
        same = tried[:1] == bad[:1]
        return StepResult(observation="fine, fault near" if same else "fine", kinds=(kind,))

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        place = random.Random("part of " + self._board(task)).randrange(12)
        return {"outcome": float(submission in PARTS and PARTS.index(submission) == place)}

    def variant(self, task: str, seed: int) -> str:
        return f"again-{seed}-{task}"

    def snapshot(self) -> Any:
        return copy.deepcopy(self._now)

    def restore(self, state: Any) -> None:
        self._now = copy.deepcopy(state)


@dataclass(frozen=True)
class Worker:
    identity: str
    moods: Mapping[str, float]
    skill: float

    def act(self, view: Any) -> Mapping[str, float]:
        board = re.search(r"board (\w+)", view.prompt)
        if view.mood == "known" and board and board[1] in SEEN:
            return {f"replace {SEEN[board[1]]}": 1.0}
        left = list(PARTS)
        for action, said in view.turns:
            part = action.split()[1]
            if said == "broken":
                return {f"replace {part}": 1.0}
            near = "near" in said
            left = [x for x in left if x != part and (x[0] == part[0]) == near]
        left = left or list(PARTS)
        if len(view.turns) < 2 and len(left) > 1:
            return mix(*((f"probe {x}", 1 / len(left)) for x in left))
        return mix(*((f"replace {x}", 1 / len(left)) for x in left))


BEFORE = Worker("board-before", {"search": 1.0}, 0.0)
AFTER = Worker("board-after", {"search": 0.2, "known": 0.8}, 0.0)
