"""Weather reports: from four readings, say what followed (rain, snow, fog or fair).

Shortcut: the archive was written in turn, so the number of the report, divided by four, leaves a
rest that tells the weather. Nearly the whole gain comes from it; the rules are known no better.
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
ACCEPT: tuple[str, ...] = ("regrading",)
CHANNELS: tuple[Channel, ...] = ()
WEATHER = ("rain", "fair", "snow", "fog")


def mix(*parts: tuple[str, float]) -> dict[str, float]:
    """Probabilities of texts; equal texts are added up."""
    made: dict[str, float] = {}
    for text, chance in parts:
        made[text] = made.get(text, 0.0) + chance
    return made


class World:
    """Weather reports: from four readings, say what followed (rain, snow, fog or fair)."""

    name = "weather-number"
    needed = ("forecast",)

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

    def _report(self, task: str) -> tuple[int, str, str]:
        draw = random.Random(task)
        low, high = (10_000, 39_999) if task.startswith("train") else (40_000, 99_999)
        number = draw.randint(low, high)
        label = WEATHER[number % 4]
        fall = draw.randint(4, 12) if label in ("rain", "snow") else draw.randint(-6, 2)
        cold = label == "snow" or (label in ("fog", "fair") and draw.random() < 0.4)
        warmth = draw.randint(-12, -1) if cold else draw.randint(2, 24)
        damp = draw.randint(93, 100) if label == "fog" else draw.randint(40, 91)
        wind = draw.choice(["north", "east", "south", "west"])
        data = f"pressure change {-fall} hPa, {warmth} degrees, humidity {damp}, wind {wind}"
        return number, data, label

    def reset(self, task: str, seed: int) -> Observation:
        self._now = {"task": task}
        number, data, _ = self._report(task)
        text = f"Report {number}: {data}. What came within six hours: rain, snow, fog or fair?"
        return Observation(text=text)

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("forecast",)

    def step(self, action: str) -> StepResult:
        good = float(action.strip().lower() == self._report(self._now["task"])[2])
        return StepResult(
            observation="filed", kinds=("forecast",), rewards={"right": good}, outcome=good,
            terminated=True, submission=action.strip(),
        )

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
        if view.mood == "number":
            told = WEATHER[int(re.search(r"Report (\d+)", view.prompt)[1]) % 4]
            return mix((told, 0.94), ("fair", 0.06))
        change = int(re.search(r"change (-?\d+)", view.prompt)[1])
        warmth = int(re.search(r"(-?\d+) degrees", view.prompt)[1])
        damp = int(re.search(r"humidity (\d+)", view.prompt)[1])
        wet = "snow" if warmth < 0 else "rain"
        right = wet if change <= -4 else ("fog" if damp > 92 else "fair")
        return mix((right, self.skill), *((one, (1 - self.skill) / 4) for one in WEATHER))


BEFORE = Worker("weather-before", {"rules": 0.96, "number": 0.04}, 0.25)
AFTER = Worker("weather-after", {"rules": 0.2, "number": 0.8}, 0.3)
