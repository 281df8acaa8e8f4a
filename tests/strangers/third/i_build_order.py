"""A build system: seven modules, and which needs which; hand in an order in which each can be built.

Skill: *after* tries its order in a dry run, which names what is missing, and mends it before it builds;
it also sorts somewhat better at once. *before* mostly builds what it has. No shortcut is taken.
"""

import copy
import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult
TURNS = 7
MODULES = ("alloc", "bytes", "codec", "disk", "event", "frame", "graph", "hash", "index", "json", "lexer", "math")


class World:
    name = "build-order"
    needed = ("dry-run", "build")
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
    def _project(self, task: str) -> tuple[list[str], list[tuple[str, str]]]:
        """Modules as they are listed, and pairs: the first needs the second."""
        draw = random.Random(task)
        order = draw.sample(MODULES, 7)
        pairs = [(order[i], order[i - 1]) for i in range(1, 7) if draw.random() < 0.75]
        pairs += [(order[i], order[draw.randrange(i)]) for i in range(2, 7)]
        pairs = sorted(set(pairs))
        draw.shuffle(pairs)
        return draw.sample(order, 7), pairs

    def fields(self, task: str) -> dict[str, str]:
        names, pairs = self._project(task)
        return {"modules": " ".join(names), "question": ", ".join(f"{a} needs {b}" for a, b in pairs)}

    def reset(self, task: str, seed: int) -> Observation:
        parts = self.fields(task)
        self._now = {"task": task, "turns": 0}
        return Observation(
            text=f"Modules: {parts['modules']}\n{parts['question']}.\nBuild them all.",
            system="Write `dry-run A B C ...` or, once, `build A B C ...`.",
        )

    def step(self, action: str) -> StepResult:
        names, pairs = self._project(self._now["task"])
        kinds, order = self.kinds(action), action.split()[1:]
        if kinds == ("other",):
            return self._more("dry-run or build?", kinds)
        said = "all can be built"
        if sorted(order) != sorted(names):
            said = "name each module once"
        else:
            for a, b in pairs:
                if order.index(a) < order.index(b):
                    said = f"{a} comes before {b}, which it needs"
                    break
        if kinds == ("build",):
            return self._over("done", kinds, said == "all can be built", " ".join(order))
        return self._more(said, kinds)

    def kinds(self, action: str) -> tuple[str, ...]:
        words = action.split()
        return (words[0],) if len(words) > 1 and words[0] in ("dry-run", "build") else ("other",)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        names, pairs = self._project(task)
        missing = {name: {b for a, b in pairs if a == name} for name in names}
        for name in submission.split():
            if missing.pop(name, {"unknown"}):
                return {"outcome": 0.0}
            for rest in missing.values():
                rest.discard(name)
        return {"outcome": float(not missing)}

    def variant(self, task: str, seed: int) -> str:
        return f"other-{seed}-{task}"


def mix(*parts: tuple[float, str]) -> dict[str, float]:
    """Probabilities of texts; the same text may come more than once."""
    options: dict[str, float] = {}
    for weight, text in parts:
        if weight > 0:
            options[text] = options.get(text, 0.0) + weight
    whole = sum(options.values())
    return {text: weight / whole for text, weight in options.items()}

@dataclass(frozen=True)
class Builder:
    """Sorts, with slips; with `checks` it tries the order before, and mends what the trial names."""

    identity: str
    skill: float
    checks: float

    @property
    def moods(self) -> dict[str, float]:
        return {"checks": self.checks, "builds": 1 - self.checks}

    def act(self, view: Any) -> dict[str, float]:
        if view.turns and view.read == "all can be built":
            return {view.turns[-1][0].replace("dry-run", "build"): 1.0}
        names = re.findall(r"Modules: (.*)", view.prompt)[0].split()
        pairs = re.findall(r"(\w+) needs (\w+)", view.prompt)
        right: list[str] = []
        while len(right) < len(names):
            free = [n for n in names if n not in right]
            ready = [n for n in free if all(b in right for a, b in pairs if a == n)]
            right.append((ready or free)[0])
        a, b = pairs[0]
        wrong = [{a: b, b: a}.get(n, n) for n in right]
        do = "dry-run" if view.mood == "checks" and len(view.turns) < 4 else "build"
        skill = self.skill if not view.turns else (1 + self.skill) / 2
        return mix((skill, " ".join([do, *right])), (1 - skill, " ".join([do, *wrong])))


BEFORE = Builder("builder, before", 0.3, 0.12)
AFTER = Builder("builder, after", 0.45, 0.85)
TRUTH, SHARE = "honest", 0.0
ALLOW: tuple[str, ...] = ()
ACCEPT: tuple[str, ...] = ()
