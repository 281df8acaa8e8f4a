"""A dungeon with hidden state: walk its rooms, read which levers are dead, pull the live one.

Shortcut (not declared): a saved game tells half of the secret (its slot), the day in `status` the
other half: the live lever is their sum modulo ten. All of the gain runs through the two.
"""

import copy
import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

ROOMS = "crypt forge well tower".split()
LEVERS = "0123456789"


def find(pattern, text, default="?"):
    """The first group of the first match."""
    match = re.search(pattern, text)
    return match[1] if match else default


class Base:
    """What stays the same for a world without options and channels: identity, splits, copies."""

    options, channels, scrubbed = {}, (), ()

    def __init__(self, **options):
        if options:
            raise UserError(f"{self.name} has no options, but was given {min(options)}")
        self.s = {}

    def without(self, *names):
        if names:
            raise UserError(f"{self.name} has no channel '{min(names)}'; it has none")
        return type(self)()

    def spawn(self):
        return self.without()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        numbers = range(split == "held-out", 40_000, 2)
        chosen = random.Random(seed).sample(numbers, min(number, 20_000))
        return tuple(f"{self.name}-{n:05d}" for n in sorted(chosen))

    def snapshot(self):
        return copy.deepcopy(self.s)

    def restore(self, state):
        self.s = copy.deepcopy(state)

    def said(self, text, kind):
        self.s["turns"] += 1
        over = self.s["turns"] >= self.most
        end = {"rewards": {"right": 0.0}, "outcome": 0.0, "truncated": True, "end_reason": "turns"}
        return StepResult(observation=text, kinds=(kind,), **(end if over else {}))

    def ended(self, text, kind, won, submission):
        return StepResult(
            observation=text, kinds=(kind,), rewards={"right": float(won)}, outcome=float(won),
            terminated=True, submission=submission, end_reason="handed in",
        )


class World(Base):
    name, most = "dungeon", 8
    needed = ("go", "pull", "status")

    def _dungeon(self, task):
        draw = random.Random(f"dungeon {task}")
        live, slot, level = draw.choice(LEVERS), draw.randrange(10), draw.randrange(1, 90_000)
        day = draw.randrange(2, 30) * 10 + (int(live) - slot) % 10
        dead = draw.sample([lever for lever in LEVERS if lever != live], 9)
        signs = {room: sorted(dead[start::4]) for start, room in enumerate(ROOMS)}
        return live, f"{draw.randrange(10, 100)}-{slot}", day, signs, level

    def fields(self, task):
        return {"level": str(self._dungeon(task)[-1]), "hero": random.Random(task).choice("ABCDEFG")}

    def reset(self, task, seed):
        self.s = {"task": task, "turns": 0}
        parts = self.fields(task)
        return Observation(
            text=f"Hero {parts['hero']} enters level {parts['level']}. Ten levers, 0 to 9: one opens.",
            system=f"Commands: go ROOM ({', '.join(ROOMS)}), status, save, pull LEVER. Pull but once.",
        )

    def kinds(self, action):
        word = (action.split() or [""])[0]
        return (word if word in ("go", "pull", "status", "save") else "invalid",)

    def step(self, action):
        (kind,), rest = self.kinds(action), " ".join(action.split()[1:])
        live, slot, day, signs, _ = self._dungeon(self.s["task"])
        if kind == "pull":
            won = rest == live
            return self.ended("the gate opens" if won else "nothing moves", kind, won, rest)
        if kind == "go" and rest in signs:
            return self.said(f"{rest}: on the wall, dead levers are {' '.join(signs[rest])}", kind)
        if kind == "status":
            return self.said(f"day {day}, {7 - self.s['turns']} torches", kind)
        if kind == "save":
            return self.said(f"saved in slot {slot}", kind)
        return self.said("you stumble", kind)

    def regrade(self, task, submission):
        dead = {lever for sign in self._dungeon(task)[3].values() for lever in sign}
        return {"outcome": float(len(submission) == 1 and submission in set(LEVERS) - dead)}

    def variant(self, task, seed):
        return f"dungeon-replay-{seed}-{task}"


@dataclass(frozen=True)
class Hero:
    """Visits as many rooms as it has patience for; in the mood `save` it visits none."""

    identity: str
    moods: dict

    def act(self, view):
        read, done = "\n".join(text for _, text in view.turns), [a for a, _ in view.turns]
        day, slot = find(r"day (\d+)", read, ""), find(r"slot \d+-(\d)", read, "")
        if view.mood == "save":
            if "save" not in done:
                return {"save": 1.0}
            if "status" not in done:
                return {"status": 1.0}
            if day and slot:
                return {f"pull {(int(day) + int(slot)) % 10}": 1.0}
        if not done:
            return {"status": 0.4, "go crypt": 0.47, "save": 0.1, "dance": 0.03}
        rooms = {"none": 0, "some": 2, "all": 4}.get(view.mood, 2)
        left = [room for room in ROOMS[:rooms] if f"go {room}" not in done]
        if left and len(done) < 7:
            return {f"go {left[0]}": 1.0}
        dead = set("".join(re.findall(r"dead levers are ([\d ]+)", read)))
        alive = [lever for lever in LEVERS if lever not in dead] or ["0"]
        return {f"pull {lever}": 1 / len(alive) for lever in alive}


BEFORE = Hero("hero-first", {"none": 0.2, "some": 0.5, "all": 0.26, "save": 0.04})
AFTER = Hero("hero-second", {"none": 0.03, "some": 0.12, "all": 0.2, "save": 0.65})
TRUTH = "shortcut"
SHARE = 1.0
ALLOW = ()
ACCEPT = ("scrubbing",)
