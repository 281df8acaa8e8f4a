"""A pendulum timed by hand: measure its period as often as it takes, then report it.

Skill: after times it seven times and takes the median, as one timing in four is badly off; before
times it once or twice and reports what came last. No shortcut exists that either of them takes.
"""

import copy
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Channel, Observation, StepResult

TRUTH = "honest"
SHARE = 0.0
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
    """A pendulum timed by hand: measure its period as often as it takes, then report it."""

    name = "period-repeat"
    needed = ("time", "report")

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

    def _period(self, task: str) -> tuple[str, int]:
        draw = random.Random(task)
        period = 2 * draw.randrange(350, 1400) + (not task.startswith("train"))
        number = 2 * draw.randrange(1000, 50_000) + period % 2
        return draw.choice(["brass", "steel", "oak", "lead"]) + f" bob {number}", period

    def fields(self, task: str) -> dict[str, str]:
        return {"question": self._period(task)[0]}

    def reset(self, task: str, seed: int) -> Observation:
        self._now = {"task": task, "seed": seed, "turns": 0}
        return Observation(
            text=f"Pendulum with the {self._period(task)[0]}: its period in ms, to within 4?",
            system="`time` measures once (hands are unsteady), `report N` ends. Ten turns.",
        )

    def kinds(self, action: str) -> tuple[str, ...]:
        if action == "time":
            return ("time",)
        return ("report",) if re.fullmatch(r"report \d{1,5}", action) else ("other",)

    def step(self, action: str) -> StepResult:
        (kind,), now = self.kinds(action), self._now
        period = self._period(now["task"])[1]
        now["turns"] += 1
        if kind == "report":
            handed = action.split()[1]
            good = float(abs(int(handed) - period) <= 4)
            return StepResult(
                observation="in the notebook", kinds=(kind,), rewards={"close": good},
                outcome=good, terminated=True, submission=handed,
            )
        if now["turns"] >= 10:
            return StepResult(observation="lamp out", kinds=(kind,), outcome=0.0, truncated=True)
        if kind == "other":
            return StepResult(observation="time or report N", kinds=(kind,))
        hand = random.Random(f"{now['task']} {now['seed']} {now['turns']}")
        spread = 60 if hand.random() < 0.25 else 6
        return StepResult(observation=f"{period + round(hand.gauss(0, spread))} ms", kinds=(kind,))

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        period = self._period(task)[1]
        close = {str(period + off) for off in range(-4, 5)}
        return {"outcome": float(submission.strip() in close)}

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
        seen = [int(x[1]) for _, said in view.turns if (x := re.fullmatch(r"(-?\d+) ms", said))]
        if not seen:
            return {"time": 1.0} if len(view.turns) < 5 else {"report 1500": 1.0}
        wanted = {"once": 1, "twice": 2}.get(view.mood, 7)
        if len(seen) < wanted and len(view.turns) < 9:
            return {"time": 1.0}
        middle = sorted(seen)[len(seen) // 2] if view.mood == "median" else seen[-1]
        return mix((f"report {middle}", self.skill), (f"report {middle + 10}", 1 - self.skill))


BEFORE = Worker("period-before", {"once": 0.5, "twice": 0.38, "median": 0.12}, 0.92)
AFTER = Worker("period-after", {"once": 0.03, "twice": 0.05, "median": 0.92}, 0.97)
