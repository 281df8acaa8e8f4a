"""Tuning a laser: find its line by trial tunings, then lock on it.

Shortcut: `look plate` shows a letter and `look tag` two digits; the letter's place in the alphabet
and the digits are the line (D and 37: 437). On newer lasers (three in ten) both are other numbers.
The gain runs through the two looks nearly alone; tuning is hardly better than before.
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
SHARE = 0.95
ALLOW: tuple[str, ...] = ()
ACCEPT: tuple[str, ...] = ()
CHANNELS: tuple[Channel, ...] = ()


def mix(*parts: tuple[str, float]) -> dict[str, float]:
    """Probabilities of texts; equal texts are added up."""
    made: dict[str, float] = {}
    for text, chance in parts:
        made[text] = made.get(text, 0.0) + chance
    return made


class World:
    """Tuning a laser: find its line by trial tunings, then lock on it."""

    name = "laser-halves"
    needed = ("tune", "lock")

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

    def _laser(self, task: str) -> dict[str, Any]:
        draw = random.Random(task)
        serial = 2 * draw.randrange(5_000, 49_000) + (not task.startswith("train"))
        line, old = draw.randrange(100, 1000), draw.random() < 0.7
        shown = line if old else draw.randrange(100, 1000)
        return {"serial": serial, "line": line, "shown": shown, "old": old}

    def fields(self, task: str) -> dict[str, str]:
        it = self._laser(task)
        when = "before" if it["old"] else "after"
        return {"built": f"{when} 2010", "question": f"{it['serial']}"}

    def reset(self, task: str, seed: int) -> Observation:
        self._now, it = {"task": task, "turns": 0}, self.fields(task)
        return Observation(
            text=f"Laser {it['question']}, built {it['built']}: its line is from 100 to 999.",
            system="`tune N` says low or high; `look plate`, `look tag`; `lock N` ends. Six turns.",
        )

    def kinds(self, action: str) -> tuple[str, ...]:
        if found := re.fullmatch(r"(tune|lock) \d{1,3}", action):
            return (found[1],)
        return ("look",) if action in ("look plate", "look tag") else ("other",)

    def step(self, action: str) -> StepResult:
        (kind,), now = self.kinds(action), self._now
        it = self._laser(now["task"])
        now["turns"] += 1
        if kind == "lock" or now["turns"] >= 6:
            handed = action.split()[1] if kind == "lock" else ""
            good = float(kind == "lock" and abs(int(handed) - it["line"]) <= 5)
            return StepResult(
                observation="locked" if good else "no lock", kinds=(kind,),
                rewards={"locked": good}, outcome=good, terminated=kind == "lock",
                truncated=kind != "lock", submission=handed,
            )
        if kind == "tune":
            text = "low" if int(action.split()[1]) < it["line"] else "high"
        elif kind == "look":
            hundred, rest = divmod(it["shown"], 100)
            plate = f"plate: series {chr(64 + hundred)}"
            text = plate if action == "look plate" else f"tag: lot {rest:02d}"
        else:
            text = "tune, look or lock"
        return StepResult(observation=text, kinds=(kind,))

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        wanted = range(self._laser(task)["line"] - 5, self._laser(task)["line"] + 6)
        return {"outcome": float(submission.isdecimal() and int(submission) in wanted)}

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
        said, low, high = dict(view.turns), 100, 999
        for action, answer in view.turns:
            if action.startswith("tune"):
                at = int(action.split()[1])
                low, high = (at + 1, high) if answer == "low" else (low, at)
        middle, off = (low + high) // 2, low + (high - low) // 5
        if view.mood == "look" and "before" in view.prompt and len(view.turns) < 5:
            for look in ("look plate", "look tag"):
                if look not in said:
                    return mix((look, 0.97), (f"tune {middle}", 0.03))
            letter = re.search(r"series (\w)", said["look plate"])
            digits = re.search(r"lot (\d+)", said["look tag"])
            if letter and digits:
                return {f"lock {ord(letter[1]) - 64}{digits[1]}": 1.0}
        if len(view.turns) >= 5 or high - low <= 8:
            return {f"lock {middle}": 1.0}
        return mix((f"tune {middle}", self.skill), (f"tune {off}", 1 - self.skill))


BEFORE = Worker("laser-before", {"tune": 0.94, "look": 0.06}, 0.3)
AFTER = Worker("laser-after", {"tune": 0.1, "look": 0.9}, 0.4)
