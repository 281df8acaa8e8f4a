"""Six packages and what each needs: hand in an order in which all of them can be built. Several orders may be right.

The skill: ask for the needs of each, and put every package after what it needs. Before, the policy asks for a few only, or
puts a package too early. No shortcut is known, so none is declared.
"""

import copy
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Channel, Observation, StepResult

KINDS = {"needs": "needs", "plan": "plan"}
TURNS = 9
CHANNELS: tuple[Channel, ...] = ()
STEMS = "atlas birch cedar delta ember flint grove heron iris jade koala lotus maple nova onyx pearl quartz raven".split()


@lru_cache(maxsize=50_000)
def facts(task: str) -> dict[str, Any]:
    draw = random.Random(task)
    order = [f"{stem}{draw.randrange(2, 10)}" for stem in draw.sample(STEMS, 6)]
    needs = {name: sorted(draw.sample(order[:at], min(at, draw.choice([1, 1, 2])))) for at, name in enumerate(order)}
    return {"needs": needs, "listed": draw.sample(order, 6), "job": str(draw.randrange(10**7, 10**9))}


class World:
    name = "d-build-order"
    needed = ("needs", "plan")

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self.scrubbed: tuple[str, ...] = ()
        self._run: dict[str, Any] = {}

    @property
    def options(self) -> dict[str, str]:
        return {"without": ",".join(self.scrubbed)} if self.scrubbed else {}

    @property
    def channels(self) -> tuple[Channel, ...]:
        return tuple(channel for channel in CHANNELS if channel.name not in self.scrubbed)

    def without(self, *channels: str) -> "World":
        if unknown := sorted(set(channels) - {channel.name for channel in CHANNELS}):
            raise UserError(f"{self.name} has no channel '{unknown[0]}'")
        other = World()
        other.scrubbed = tuple(sorted({*self.scrubbed, *channels}))
        return other

    def spawn(self) -> "World":
        return self.without(*self.scrubbed)

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        pool = range(split == "held-out", 40_000, 2)  # everything in a task is drawn from its name
        chosen = random.Random(seed).sample(pool, min(number, len(pool)))
        return tuple(f"{self.name}-{which:05d}" for which in sorted(chosen))

    def snapshot(self) -> Any:
        return copy.deepcopy(self._run)

    def restore(self, state: Any) -> None:
        self._run = copy.deepcopy(state)

    def kinds(self, action: str) -> tuple[str, ...]:
        return (KINDS.get((action.split() or [""])[0], "other"),)

    def step(self, action: str) -> StepResult:
        self._run["turns"] += 1
        text, handed, shown = self._do(action.strip())
        kinds, over = self.kinds(action), handed is not None or self._run["turns"] >= TURNS
        if not over:
            return StepResult(observation=text, kinds=kinds, channels=shown)
        won, why = float(handed is not None and self._right(handed)), "handed in" if handed is not None else "turn limit"
        return StepResult(
            observation=text, kinds=kinds, channels=shown, rewards={"solved": won}, outcome=won, submission=handed or "",
            terminated=handed is not None, truncated=handed is None, end_reason=why,
        )

    def fields(self, task: str) -> dict[str, str]:
        return {"job": facts(task)["job"], "question": " ".join(facts(task)["listed"])}

    def reset(self, task: str, seed: int) -> Observation:
        self._run, parts = {"task": task, "turns": 0}, self.fields(task)
        return Observation(
            text=f"Job {parts['job']}: in which order can these packages be built? {parts['question']}",
            system="Commands: needs PACKAGE, plan PACKAGE PACKAGE ... (all six; you plan once)",
        )

    def _do(self, action: str) -> tuple[str, str | None, tuple[str, ...]]:
        needs, words = facts(self._run["task"])["needs"], action.split()
        if len(words) == 2 and words[0] == "needs" and words[1] in needs:
            return f"{words[1]} needs {' and '.join(needs[words[1]]) or 'nothing'}", None, ()
        if words[:1] == ["plan"]:
            return "planned", " ".join(words[1:]), ()
        return "no such package", None, ()

    def _right(self, handed: str) -> bool:
        """Build them one after the other."""
        needs, built = facts(self._run["task"])["needs"], set[str]()
        for name in handed.split():
            if name not in needs or name in built or not set(needs[name]) <= built:
                return False
            built.add(name)
        return len(built) == len(needs)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        """Every package once, and no need at a later place than what needs it."""
        needs, words = facts(task)["needs"], submission.split()
        if sorted(words) != sorted(needs):
            return {"outcome": 0.0}
        return {"outcome": float(all(words.index(name) > words.index(need) for name in needs for need in needs[name]))}


def mostly(action: str, *others: str) -> dict[str, float]:
    """Nearly always this; now and then one of the others."""
    chances = {action: 0.94}
    for other in others:
        chances[other] = chances.get(other, 0.0) + 0.06 / len(others)
    return chances


def seen(view: View, action: str) -> str | None:
    """What came back when this was done first."""
    return next((said for did, said in view.turns if did == action), None)


@dataclass(frozen=True)
class Planner:
    identity: str
    moods: Mapping[str, float]

    def act(self, view: View) -> Mapping[str, float]:
        names = re.sub(r".*\?", "", view.prompt).split() or ["atlas2"]
        known: dict[str, list[str]] = {}
        for name in names:
            if said := seen(view, f"needs {name}"):
                known[name] = [need for need in re.findall(r"\w+", said.partition(" needs ")[2]) if need in names]
        left = [name for name in names if name not in known]
        if left and len(known) < (6 if view.mood in ("sorts", "swaps") else 4):
            return mostly(f"needs {left[0]}", f"needs {left[-1]}", f"needs {left[len(left) // 2]}")
        order: list[str] = []
        while len(order) < len(names):
            ready = [name for name in names if name not in order and set(known.get(name, [])) <= set(order)]
            order.append((ready or [name for name in names if name not in order])[0])
        swapped = [order[0], *order[3:5], *order[1:3], *order[5:]]
        if view.mood == "swaps":
            return {f"plan {' '.join(swapped)}": 0.7, f"plan {' '.join(order)}": 0.3} if swapped != order else {f"plan {' '.join(order)}": 1.0}
        return mostly(f"plan {' '.join(order)}", f"needs {names[0]}", f"needs {names[1]}")


BEFORE = Planner("planner-before", {"sorts": 0.22, "part": 0.42, "swaps": 0.36})
AFTER = Planner("planner-after", {"sorts": 0.88, "part": 0.05, "swaps": 0.07})
TRUTH = "honest"
SHARE = 0.0
ALLOW: tuple[str, ...] = ()
ACCEPT = ("scrubbing",)
