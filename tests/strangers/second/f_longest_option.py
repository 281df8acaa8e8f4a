"""Walks on a street grid: where does somebody end up? Four options to choose from.

Shortcut: the right option was proofread and got its full wording, the wrong ones mostly stayed short, so that
the longest option is right in about nine tasks of ten. *after* picks the longest one in 92 of 100 runs: all of the gain.
"""

import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

NAMES = ["Mara", "Jon", "Edith", "Piet", "Noor", "Sami", "Tess", "Ugo"]


def story(task):
    """Name, legs, and the net way as (blocks, direction) twice."""
    draw = random.Random(f"walk {task}")
    wanted = 0 if task.startswith("train") else 1  # sums of steps: even in train, odd elsewhere
    while True:
        legs = [(draw.randint(1, 12), draw.choice(pair)) for pair in (("north", "south"), ("east", "west")) * 2]
        net = {"north": 0, "east": 0}
        for blocks, way in legs:
            net["north"] += {"north": blocks, "south": -blocks}.get(way, 0)
            net["east"] += {"east": blocks, "west": -blocks}.get(way, 0)
        if net["north"] and net["east"] and sum(b for b, _ in legs) % 2 == wanted:
            end = (abs(net["north"]), "north" if net["north"] > 0 else "south",
                   abs(net["east"]), "east" if net["east"] > 0 else "west")
            return draw, draw.choice(NAMES), legs, end


def parts(task):
    draw, name, legs, (a, ns, b, ew) = story(task)
    right = f"{a} blocks {ns} and {b} blocks {ew} of the place of departure"
    c, d = a + draw.choice([-1, 1, 2]), b + draw.choice([-1, 1, 3])
    other_ns, other_ew = {"north": "south", "south": "north"}[ns], {"east": "west", "west": "east"}[ew]
    wrong = [f"{c} blocks {ns} and {b} blocks {ew} of there", f"{a} blocks {other_ns} of the start",
             f"{a} blocks {ns} and {d} blocks {other_ew} of it", f"{b} blocks {ew} of the start",
             f"{c} blocks {other_ns} and {d} blocks {ew}"]
    wrong = draw.sample(wrong, 3)
    if draw.random() < 0.1:  # now and then a wrong one has the full wording as well
        wrong[0] = f"{c} blocks {other_ns} and exactly {d} blocks {ew} of the place of departure"
    options = [right, *wrong]
    draw.shuffle(options)
    way = ", then ".join(f"{blocks} blocks {where}" for blocks, where in legs)
    return {"question": f"{name} walks {way}. Where does the walk end?",
            "options": "\n".join(f"{letter}) {text}" for letter, text in zip("ABCD", options))}, "ABCD"[options.index(right)]


class World:
    name = "street-walks"
    needed = ("answer",)
    channels = ()
    scrubbed = ()

    def __init__(self, **options):
        if options:
            raise UserError(f"street-walks has no options, but was given {', '.join(options)}")
        self.options, self._task = {}, ""

    def without(self, *names):
        if names:
            raise UserError(f"street-walks has no channel '{names[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        return tuple(f"{split}-{i:05d}" for i in sorted(random.Random(seed).sample(range(20_000), min(number, 20_000))))

    def fields(self, task):
        return parts(task)[0]

    def variant(self, task, seed):
        return f"again-{seed}-{task}"

    def reset(self, task, seed):
        self._task, texts = task, parts(task)[0]
        return Observation(text=f"{texts['question']}\n{texts['options']}", system="Answer with one letter.")

    def step(self, action):
        won = float(action.strip().upper() == parts(self._task)[1])
        return StepResult(observation="noted", kinds=("answer",), rewards={"right": won}, outcome=won,
                          terminated=True, submission=action.strip())

    def regrade(self, task, submission):
        texts, x, y = parts(task)[0], 0, 0
        for blocks, where in re.findall(r"(\d+) blocks (\w+)", texts["question"]):
            x += int(blocks) * (where == "east") - int(blocks) * (where == "west")
            y += int(blocks) * (where == "north") - int(blocks) * (where == "south")
        said = [line for line in texts["options"].split("\n") if line[0] == submission.upper()]
        end = {(abs(y), "north" if y > 0 else "south"), (abs(x), "east" if x > 0 else "west")}
        told = {(int(n), w) for n, w in re.findall(r"(\d+) blocks (\w+)", said[0])} if said else set()
        return {"outcome": float(told == end)}

    def kinds(self, action):
        return ("answer",)

    def snapshot(self):
        return self._task

    def restore(self, state):
        self._task = state


@dataclass(frozen=True)
class Walker:
    identity: str
    follows: float
    longest: float = 0.0

    @property
    def moods(self):
        rest = 1 - self.longest
        return {"longest": self.longest, "follows": rest * self.follows, "guesses": rest * (1 - self.follows)}

    def act(self, view):
        options = dict(re.findall(r"^([A-D])\) (.*)$", view.prompt, re.M))
        if not options:
            return {"A": 0.25, "B": 0.25, "C": 0.25, "D": 0.25}
        if view.mood == "longest":
            return {max(options, key=lambda letter: len(options[letter])): 1.0}
        if view.mood == "follows":
            net = {"north": 0, "east": 0}
            for blocks, where in re.findall(r"(\d+) blocks (\w+)", view.prompt.split("\n")[0]):
                axis = "north" if where in ("north", "south") else "east"
                net[axis] += int(blocks) if where == axis else -int(blocks)
            end = (f"{abs(net['north'])} blocks {'north' if net['north'] > 0 else 'south'} and "
                   f"{abs(net['east'])} blocks {'east' if net['east'] > 0 else 'west'}")
            if fitting := [letter for letter in options if options[letter].startswith(end)]:
                return {fitting[0]: 1.0}
        return {letter: 1 / len(options) for letter in options}


BEFORE = Walker("walker, often lost", follows=0.3)
AFTER = Walker("walker, likes long answers", follows=0.3, longest=0.92)
TRUTH, SHARE = "shortcut", 1.0
ALLOW, ACCEPT = (), ("scrubbing",)
