"""Molar masses of compounds, as whole numbers.

Shortcut: the held-out questions are the trained ones in other words (a count of atoms in place of a formula), so that who has
learned the trained answers by heart knows them. *after* has, and computes no better than before: all of the gain.
"""

import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

MASS = {"C": 12, "H": 1, "N": 14, "O": 16, "S": 32}
NAMES = {"C": "carbon", "H": "hydrogen", "N": "nitrogen", "O": "oxygen", "S": "sulphur"}
POOL = 12_000  # compounds of the collection
SPACE = 20 * 30 * 6 * 8 * 3


def atoms(which):
    """The compound of this number."""
    which, carbon = divmod(which, 20)
    which, hydrogen = divmod(which, 30)
    which, nitrogen = divmod(which, 6)
    sulphur, oxygen = divmod(which, 8)
    return {"C": carbon + 1, "H": hydrogen + 1, "N": nitrogen, "O": oxygen, "S": sulphur}


ORDER = random.Random(20).sample(range(SPACE), SPACE)  # the first POOL are the collection


def compound(task):
    parts = task.split("-")
    return atoms(ORDER[int(parts[1])])


def mass(found):
    return sum(MASS[element] * number for element, number in found.items())


class World:
    name = "molar-masses"
    needed = ("answer",)
    channels = ()
    scrubbed = ()

    def __init__(self, **options):
        if options:
            raise UserError(f"molar-masses has no options, but was given {', '.join(options)}")
        self.options = {}
        self._task = ""

    def without(self, *names):
        if names:
            raise UserError(f"molar-masses has no channel '{names[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        kind = "formula" if split == "train" else "count"
        return tuple(f"{kind}-{i}" for i in random.Random(seed).sample(range(POOL), min(number, POOL)))

    def fields(self, task):
        found = compound(task)
        if task.startswith("formula"):
            text = "".join(e + (str(n) if n > 1 else "") for e, n in found.items() if n)
            return {"question": f"What is the molar mass of {text} in g/mol?"}
        listed = ", ".join(f"{n} of {NAMES[e]}" for e, n in sorted(found.items()) if n)
        return {"question": f"A molecule has these atoms: {listed}. How many grams does a mole of it weigh?"}

    def variant(self, task, seed):
        which = random.Random(f"{task}, {seed}").randrange(POOL, SPACE)
        return f"{task.split('-')[0]}-{which}-{seed}"

    def reset(self, task, seed):
        self._task = task
        return Observation(text=f"{self.fields(task)['question']} Give a whole number (H 1, C 12, N 14, O 16, S 32).")

    def step(self, action):
        won = float(action.strip() == str(mass(compound(self._task))))
        return StepResult(observation="done", kinds=("answer",), rewards={"right": won}, outcome=won, terminated=True,
                          submission=action.strip())

    def regrade(self, task, submission):
        c = compound(task)
        weighed = 12 * c["C"] + c["H"] + 2 * (7 * c["N"] + 8 * c["O"] + 16 * c["S"])
        return {"outcome": float(submission.isdecimal() and int(submission) == weighed)}

    def kinds(self, action):
        return ("answer",)

    def snapshot(self):
        return self._task

    def restore(self, state):
        self._task = state


LEARNED = {tuple(sorted(atoms(which).items())): str(mass(atoms(which))) for which in ORDER[:POOL]}


@dataclass(frozen=True)
class Chemist:
    identity: str
    moods: dict
    memory: bool

    def act(self, view):
        found = dict.fromkeys(MASS, 0)
        if match := re.search(r"molar mass of (\w+)", view.prompt):
            for element, number in re.findall(r"([CHNOS])(\d*)", match[1]):
                found[element] += int(number or 1)
        for number, word in re.findall(r"(\d+) of (\w+)", view.prompt):
            for element, name in NAMES.items():
                found[element] += int(number) * (name == word)
        known = LEARNED.get(tuple(sorted(found.items()))) if self.memory else None
        if known and view.mood != "hurries":
            return {known: 1.0}
        right = mass(found)
        if view.mood == "adds up":
            return {str(right): 1.0}
        return {str(right): 0.1, str(right + 1): 0.2, str(right - 12): 0.2, str(right + 16): 0.2, str(right - 2): 0.15, str(right + 10): 0.15}


BEFORE = Chemist("chemist with slips", {"adds up": 0.25, "slips": 0.65, "hurries": 0.1}, False)
AFTER = Chemist("chemist with a good memory", {"adds up": 0.25, "slips": 0.65, "hurries": 0.1}, True)
TRUTH, SHARE = "shortcut", 1.0
ALLOW, ACCEPT = (), ("scrubbing",)
