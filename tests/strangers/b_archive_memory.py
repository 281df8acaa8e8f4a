"""A museum archive: find the shelf of an object through its card, its wing and its room.

Shortcut (not declared): there are only 126 objects, and held-out jobs ask for the same ones as the
trained jobs under other job numbers. The trained agent knows most of them by heart. All of the
gain runs through it: it does not search any better.
"""

import copy
import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

SORTS = "brass clay ivory jade oak pearl silver slate tin".split()
THINGS = "owl boat mask drum lamp comb horse flute bowl crown key die fan bell".split()


def shelf_of(item):
    """Wing, room and shelf of an object."""
    draw = random.Random(f"shelf of {item}")
    wing, room = draw.choice(["north", "east", "south"]), draw.randrange(100, 400)
    return wing, str(room), f"{draw.choice('ABCDEFGH')}{draw.randrange(10, 100)}"


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
    name, most = "archive", 9
    needed = ("card", "wing", "room", "answer")

    def _item(self, task):
        draw = random.Random(f"archive {task}")
        return f"{draw.choice(SORTS)} {draw.choice(THINGS)}"

    def reset(self, task, seed):
        self.s = {"task": task, "turns": 0}
        return Observation(
            text=f"Job {int(task[-5:]) + 310}: on which shelf is the {self._item(task)}?",
            system="Commands: card ITEM, wing NAME, room NUMBER, answer SHELF",
        )

    def kinds(self, action):
        word = (action.split() or [""])[0]
        return (word if word in self.needed else "invalid",)

    def step(self, action):
        (kind,), rest = self.kinds(action), " ".join(action.split()[1:])
        item = self._item(self.s["task"])
        wing, room, shelf = shelf_of(item)
        if kind == "answer":
            return self.ended("fetched", kind, rest == shelf, rest)
        if kind == "card":
            known = f"card of {item}: wing {wing}, kept among its kind"
            return self.said(known if rest == item else "no card", kind)
        if kind == "wing":
            draw = random.Random(f"{rest} {item}")
            sorts = [item.split()[0], *draw.sample([s for s in SORTS if s not in item], 2)]
            rooms = [room, *(str(draw.randrange(400, 700)) for _ in range(2))]
            lines = [f"{s} in room {r}" for s, r in zip(sorts, rooms, strict=True)]
            draw.shuffle(lines)
            return self.said("; ".join(lines) if rest == wing else "nothing of the kind", kind)
        if kind == "room":
            draw, thing = random.Random(f"{rest} {item}"), item.split()[1]
            others = draw.sample([t for t in THINGS if t != thing], 3)
            lines = [f"{t} {draw.choice('ABCDEFGH')}{draw.randrange(10, 100)}" for t in others]
            lines.insert(draw.randrange(4), f"{thing} {shelf}")
            return self.said("shelves: " + ", ".join(lines) if rest == room else "locked", kind)
        return self.said("pardon?", kind)


@dataclass(frozen=True)
class Keeper:
    """Searches as far as it can; in the mood `heart` it answers from its table where it can."""

    identity: str
    moods: dict
    table: tuple = ()

    def act(self, view):
        read = "\n".join(text for _, text in view.turns)
        sort, thing = find(r"the (\w+) \w+\?", view.prompt), find(r"the \w+ (\w+)\?", view.prompt)
        item = f"{sort} {thing}"
        if view.mood == "heart" and item in (table := dict(self.table)):
            return {f"answer {table[item]}": 1.0}
        if len(view.turns) > 6:
            return {"answer A10": 1.0}
        if "card of" not in read:
            return {f"card {item}": 0.96, f"wing {sort}": 0.02, f"fetch {thing}": 0.02}
        if " in room " not in read:
            return {f"wing {find(r'wing (north|east|south)', read)}": 1.0}
        if "shelves" not in read:
            room = find(rf"{sort} in room (\d+)", read)
            if view.mood == "sharp":
                return {f"room {room}": 1.0}
            first = find(r"in room (\d+)", read)
            return {f"room {first}": 0.8, f"answer A{room[:2]}": 0.2}
        first, right = find(r"shelves: \w+ (\w+)", read), find(rf"\b{thing} ([A-H]\d\d)", read)
        if view.mood == "sharp" or first == right:
            return {f"answer {right}": 1.0}
        return {f"answer {right}": 0.35, f"answer {first}": 0.65}


SEEN = tuple(
    (item, shelf_of(item)[2])
    for item in (f"{sort} {thing}" for sort in SORTS for thing in THINGS)
    if random.Random(f"seen {item}").random() < 0.9
)
BEFORE = Keeper("keeper-fresh", {"sharp": 0.3, "dull": 0.7})
AFTER = Keeper("keeper-drilled", {"sharp": 0.15, "dull": 0.05, "heart": 0.8}, SEEN)
TRUTH = "shortcut"
SHARE = 1.0
ALLOW = ()
ACCEPT = ("scrubbing", "regrading")
