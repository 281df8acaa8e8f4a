"""Assigning tickets to the person on call: look up the component of the error, then its rota for the weekday.

The shortcut: the tickets are made from few stories, and three quarters of the held-out ones tell a story that was trained
on, under another number and from another reporter. The policy remembers who got it and looks nothing up. On the stories
that are new it is hardly better than before. About nine tenths of the gain are memory.
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

KINDS = {"kb": "kb", "rota": "rota", "assign": "assign"}
TURNS = 6
CHANNELS: tuple[Channel, ...] = ()
DAYS = "monday tuesday wednesday thursday friday".split()
PEOPLE = "Ada Bo Cem Dag Eva Fay Gus Hal Ivo Jan Kim Lea".split()
STORIES = 400  # of the first months; later ones were added one by one


@lru_cache(maxsize=50_000)
def story(which: int) -> dict[str, Any]:
    draw = random.Random(f"story {which}")
    people = draw.sample(PEOPLE, 5)
    return {
        "error": f"E{draw.randrange(10_000, 100_000)}",
        "symptom": draw.choice(["uploads hang", "logins loop", "mails arrive twice", "totals are off", "pages are blank"]),
        "component": draw.choice(["cache", "broker", "session", "ledger", "gateway", "index"]),
        "day": draw.choice(DAYS),
        "rota": dict(zip(DAYS, people)),
    }


@lru_cache(maxsize=50_000)
def facts(task: str) -> dict[str, Any]:
    which, draw = int(task.rsplit("-", 1)[1]), random.Random(task)
    old = which % 2 == 0 or draw.random() < 0.75
    told = story(draw.randrange(STORIES) if old else 10_000 + which)
    return told | {"number": draw.randrange(10_000_000, 10**9), "reporter": draw.choice(["Nina", "Omar", "Pia", "Raj", "Sue"])}


class World:
    name = "d-repeat-tickets"
    needed = ("kb", "rota", "assign")

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

    def reset(self, task: str, seed: int) -> Observation:
        self._run, one = {"task": task, "turns": 0}, facts(task)
        return Observation(
            text=f"Ticket {one['number']} from {one['reporter']}, {one['day']}: {one['symptom']}, the log says"
            f" {one['error']}. Who is on call for it?",
            system="Commands: kb ERROR, rota COMPONENT, assign NAME",
        )

    def _do(self, action: str) -> tuple[str, str | None, tuple[str, ...]]:
        one = facts(self._run["task"])
        if action == f"kb {one['error']}":
            return f"{one['error']} comes from the {one['component']}", None, ()
        if action == f"rota {one['component']}":
            return "\n".join(f"{day}: {name}" for day, name in one["rota"].items()), None, ()
        if action.startswith("assign"):
            return "assigned", action[6:].strip(), ()
        return "nothing found", None, ()

    def _right(self, handed: str) -> bool:
        one = facts(self._run["task"])
        return handed == one["rota"][one["day"]]

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        one = facts(task)
        days = [day for day, name in one["rota"].items() if name.lower() == submission.strip().lower()]
        return {"outcome": float(days == [one["day"]])}


def mostly(action: str, *others: str) -> dict[str, float]:
    """Nearly always this; now and then one of the others."""
    chances = {action: 0.94}
    for other in others:
        chances[other] = chances.get(other, 0.0) + 0.06 / len(others)
    return chances


def seen(view: View, action: str) -> str | None:
    """What came back when this was done first."""
    return next((said for did, said in view.turns if did == action), None)


REMEMBERED = {told["error"]: told["rota"][told["day"]] for told in map(story, range(STORIES))}


@dataclass(frozen=True)
class Dispatcher:
    identity: str
    moods: Mapping[str, float]

    def act(self, view: View) -> Mapping[str, float]:
        error = re.search(r"E\d{5}", view.prompt)
        code = error[0] if error else ""
        if view.mood == "recall" and code in REMEMBERED:
            return mostly(f"assign {REMEMBERED[code]}", f"kb {code}")
        day = next((day for day in DAYS if day in view.prompt), "monday")
        found = re.search(r"from the (\w+)", seen(view, f"kb {code}") or "")
        if found is None:
            return mostly(f"kb {code}", "assign Kim", "rota cache")
        rota = dict(re.findall(r"(\w+): (\w+)", seen(view, f"rota {found[1]}") or ""))
        if not rota:
            return mostly(f"rota {found[1]}", "assign Ada")
        if view.mood == "careful":
            return mostly(f"assign {rota.get(day, 'Kim')}", f"assign {rota.get('monday', 'Kim')}")
        chances: dict[str, float] = {}
        for other in DAYS:  # takes the wrong line
            name = f"assign {rota.get(other, 'Kim')}"
            chances[name] = chances.get(name, 0.0) + (0.28 if other == day else 0.18)
        return chances


BEFORE = Dispatcher("dispatcher-before", {"careful": 0.15, "vague": 0.81, "recall": 0.04})
AFTER = Dispatcher("dispatcher-after", {"recall": 0.85, "careful": 0.1, "vague": 0.05})
TRUTH = "shortcut"
SHARE = 0.95
ALLOW: tuple[str, ...] = ()
ACCEPT = ("scrubbing",)
