"""Gauges: look the model up in the binder and turn its counts into pascal.

Skill: after opens the page of the right model and calculates with it; before often guesses a factor
or reads a neighbour's page. No shortcut is taken. The binder is part of the job.
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
    """Gauges: look the model up in the binder and turn its counts into pascal."""

    name = "gauge-manual"
    needed = ("page", "answer")

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

    def _gauge(self, task: str) -> dict[str, Any]:
        draw = random.Random(task)
        counts = 2 * draw.randrange(60, 480) + (not task.startswith("train"))
        letter = draw.choice("GHKLMPTVW")
        rule = {f"{letter}{i}": (draw.randint(2, 9), draw.randint(-80, 80)) for i in range(1, 7)}
        model = draw.choice(sorted(rule))
        return {"counts": counts, "model": model, "rules": rule}

    def fields(self, task: str) -> dict[str, str]:
        it = self._gauge(task)
        return {"question": f"a {it['model']} that shows {it['counts']} counts"}

    def reset(self, task: str, seed: int) -> Observation:
        self._now = {"task": task, "turns": 0}
        text = f"There is {self.fields(task)['question']}. How many pascal are that?"
        system = "The binder has a page a model, 1 to 6 of each letter: `page A2`. Then `answer N`."
        return Observation(text=text, system=system)

    def kinds(self, action: str) -> tuple[str, ...]:
        if re.fullmatch(r"page [A-Z]\d", action):
            return ("page",)
        return ("answer",) if action.startswith("answer ") else ("other",)

    def step(self, action: str) -> StepResult:
        (kind,), it = self.kinds(action), self._gauge(self._now["task"])
        self._now["turns"] += 1
        if kind == "answer":
            times, plus = it["rules"][it["model"]]
            handed = action.removeprefix("answer ").strip()
            good = float(handed == str(it["counts"] * times + plus))
            return StepResult(
                observation="recorded", kinds=(kind,), rewards={"right": good}, outcome=good,
                terminated=True, submission=handed,
            )
        if self._now["turns"] >= 5:
            return StepResult(observation="lab closes", kinds=(kind,), outcome=0.0, truncated=True)
        wanted = action.split()[-1] if kind == "page" else ""
        if wanted not in it["rules"]:
            return StepResult(observation="no such page", kinds=(kind,))
        times, plus = it["rules"][wanted]
        sign = "plus" if plus >= 0 else "minus"
        text = f"{wanted}: pascal are counts times {times} {sign} {abs(plus)}"
        return StepResult(observation=text, kinds=(kind,))

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        it = self._gauge(task)
        try:
            value = int(submission)
        except ValueError:
            return {"outcome": 0.0}
        times, plus = it["rules"][it["model"]]
        return {"outcome": float(divmod(value - plus, times) == (it["counts"], 0))}

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
        found = re.search(r"a ([A-Z])(\d) that shows (\d+) counts", view.prompt)
        letter, digit, counts = found[1], int(found[2]), int(found[3])
        rule = None
        for _, said in view.turns:
            rule = re.search(r"times (\d+) (plus|minus) (\d+)", said) or rule
        if rule is None:
            if len(view.turns) >= 2:
                return {f"answer {5 * counts}": 1.0}
            near, rest = digit % 6 + 1, 1 - self.skill
            return mix(
                (f"page {letter}{digit}", self.skill),
                (f"page {letter}{near}", rest * 0.4),
                (f"answer {5 * counts}", rest * 0.6),
            )
        plus = int(rule[3]) if rule[2] == "plus" else -int(rule[3])
        value, rest = counts * int(rule[1]) + plus, (1 - self.skill) * 0.6
        slip = (f"answer {value - 2 * plus}", rest / 2)
        return mix((f"answer {value}", 1 - rest), slip, (f"answer {value + 10}", rest / 2))


BEFORE = Worker("gauge-before", {"": 1.0}, 0.55)
AFTER = Worker("gauge-after", {"": 1.0}, 0.93)
