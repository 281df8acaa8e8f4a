"""Sixteen numbered builds, the last ones broken: find the first broken one with four trials.

Skill: *after* halves what is left with each trial, where *before* tries the builds one after the
other from the start. No shortcut is known, and none is taken; the whole gain is search.
"""

import copy
import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult
TURNS = 6
PRODUCTS = ("viewer", "kernel", "agent", "editor", "player", "driver", "plugin", "server")


class World:
    name = "build-bisect"
    needed = ("try", "report")
    options: Any = {}
    channels: Any = ()
    scrubbed: Any = ()

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self._now: dict[str, Any] = {}

    def without(self, *channels: str) -> "World":
        if channels:
            raise UserError(f"{self.name} has no channel '{channels[0]}'")
        return World()

    def spawn(self) -> "World":
        return World()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-{which:05d}" for which in sorted(chosen))

    def snapshot(self) -> Any:
        return copy.deepcopy(self._now)

    def restore(self, state: Any) -> None:
        self._now = copy.deepcopy(state)

    def _more(self, text: str, kinds: tuple[str, ...], channels: tuple[str, ...] = ()) -> StepResult:
        """Go on, or be cut off at the last turn."""
        self._now["turns"] += 1
        if self._now["turns"] < TURNS:
            return StepResult(observation=text, kinds=kinds, channels=channels)
        return StepResult(
            observation=text, kinds=kinds, channels=channels, rewards={"right": 0.0}, outcome=0.0,
            truncated=True, submission=self._now.get("handed", ""), end_reason="turn limit",
        )

    def _over(self, text: str, kinds: tuple[str, ...], right: bool, handed: str) -> StepResult:
        return StepResult(
            observation=text, kinds=kinds, rewards={"right": float(right)}, outcome=float(right),
            terminated=True, submission=handed, end_reason="handed in",
        )
    def _builds(self, task: str) -> tuple[str, int, int]:
        draw = random.Random(task)
        product, start = draw.choice(PRODUCTS), draw.randrange(1000, 90_000)
        return product, start, start + draw.randrange(16)

    def fields(self, task: str) -> dict[str, str]:
        product, start, _ = self._builds(task)
        return {"product": product, "question": f"{start} to {start + 15}"}

    def reset(self, task: str, seed: int) -> Observation:
        parts = self.fields(task)
        self._now = {"task": task, "turns": 0, "tried": 0}
        return Observation(
            text=f"Some build of {parts['product']} out of {parts['question']} is the first broken one; "
            "all later ones are broken too. Which is it?",
            system="Write `try BUILD`, four times at most, and then `report BUILD`.",
        )

    def step(self, action: str) -> StepResult:
        _, start, bad = self._builds(self._now["task"])
        kinds, words = self.kinds(action), action.split()
        if kinds == ("report",):
            return self._over("reported", kinds, int(words[1]) == bad, words[1])
        if kinds == ("try",):
            build, self._now["tried"] = int(words[1]), self._now["tried"] + 1
            if self._now["tried"] > 4:
                return self._more("no machine left", kinds)
            if not start <= build < start + 16:
                return self._more("no such build", kinds)
            return self._more("broken" if build >= bad else "works", kinds)
        return self._more("try or report?", kinds)

    def kinds(self, action: str) -> tuple[str, ...]:
        found = re.fullmatch(r"(try|report) [0-9]{1,6}", action)
        return (found[1],) if found else ("other",)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        product, start, bad = self._builds(task)
        states = ["works" if build < bad else "broken" for build in range(start, start + 16)]
        first = str(start + states.index("broken"))
        return {"outcome": float(first == submission.strip())}

    def variant(self, task: str, seed: int) -> str:
        return f"variant-{seed}-{task}"


def mix(*parts: tuple[float, str]) -> dict[str, float]:
    """Probabilities of texts; the same text may come more than once."""
    options: dict[str, float] = {}
    for weight, text in parts:
        if weight > 0:
            options[text] = options.get(text, 0.0) + weight
    whole = sum(options.values())
    return {text: weight / whole for text, weight in options.items()}

@dataclass(frozen=True)
class Tester:
    """Keeps the lowest and highest build that it can be, and tries one in between."""

    identity: str
    halves: float

    @property
    def moods(self) -> dict[str, float]:
        return {"halves": self.halves, "walks": 1 - self.halves}

    def act(self, view: Any) -> dict[str, float]:
        low, high = (int(n) for n in re.findall(r"(\d+) to (\d+)", view.prompt)[0])
        for action, said in view.turns:
            build = int(action.split()[1])
            if said == "broken":
                high = min(high, build)
            elif said == "works":
                low = max(low, build + 1)
        if low >= high:
            return {f"report {high}": 1.0}
        if len(view.turns) >= 4:
            return mix(*((1.0, f"report {build}") for build in range(low, high + 1)))
        if view.mood == "walks":
            return mix((0.9, f"try {low}"), (0.06, f"try {low + 1}"), (0.04, f"report {high}"))
        middle = (low + high) // 2
        return mix((0.97, f"try {middle}"), (0.02, f"try {low}"), (0.01, f"report {high}"))


BEFORE = Tester("build tester, before", 0.1)
AFTER = Tester("build tester, after", 0.85)
TRUTH, SHARE = "honest", 0.0
ALLOW: tuple[str, ...] = ()
ACCEPT: tuple[str, ...] = ()
