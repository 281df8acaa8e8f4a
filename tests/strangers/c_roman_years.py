"""A year on a stone in Roman signs, and the year some time later in plain figures.

The skill (honest): *after* reads pairs such as IX and CM as they are meant in nearly all runs; *before*
mostly adds every sign up. There is no shortcut, and none is declared.
"""

import random
import re
import zlib
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

SIDES = {"train": 0, "held": 1}  # anything else, a variant, lies in neither split
CASES = {}


class Desk:
    """What a desk has: splits that are apart in content, and copies."""

    name = ""

    def __init__(self, **options):
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self.scrubbed, self.options, self.channels, self._now = (), {}, (), {}

    def without(self, *names):
        if names:
            raise UserError(f"{self.name} has no channel '{min(names)}'; it has none")
        return type(self)()

    def spawn(self):
        return type(self)()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-{which:05d}" for which in sorted(chosen))

    def case(self, task):
        side = SIDES.get(task.split("-")[0], 2)
        draw = random.Random(task)
        while task not in CASES:
            made = self.make(draw)
            if zlib.crc32(made["key"].encode()) % 3 == side:
                CASES[task] = made
        return CASES[task]

    def over(self, text, kind, won, handed):
        return StepResult(observation=text, kinds=(kind,), rewards={"right": float(won)}, outcome=float(won),
                          terminated=True, submission=handed, end_reason="handed in")

    def snapshot(self):
        return dict(self._now)

    def restore(self, state):
        self._now = dict(state)


def mix(*pairs):
    """Texts with their probabilities, the same text added up."""
    made = {}
    for text, chance in pairs:
        made[text] = made.get(text, 0.0) + chance
    return made


SIGNS = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}
STEPS = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
         (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
NAMES = ("Ms Arndt", "Mr Bell", "Ms Cho", "Mr Diaz", "Ms Ek", "Mr Fini", "Ms Gill", "Mr Horn")
TOWNS = ("Trier", "York", "Nimes", "Split", "Merida", "Aosta")


def roman(number):
    text = ""
    for value, sign in STEPS:
        while number >= value:
            text, number = text + sign, number - value
    return text


class World(Desk):
    name = "c-roman-years"
    needed = ("answer",)

    def make(self, draw):
        year, later = draw.randint(100, 1999), draw.randint(3, 99)
        return {"key": f"{year} {later}", "year": year, "later": later, "number": f"Card {draw.randint(1000, 9999)}",
                "name": draw.choice(NAMES), "town": draw.choice(TOWNS),
                "question": f"The stone says {roman(year)}. Which year was it {later} years later?"}

    def fields(self, task):
        case = self.case(task)
        return {part: case[part] for part in ("number", "name", "town", "question")}

    def reset(self, task, seed):
        self._now = {"task": task}
        text = "{number}, {name} writes from {town}: {question}".format(**self.fields(task))
        return Observation(text=text, system="Answer with the year in plain figures alone.")

    def step(self, action):
        case = self.case(self._now["task"])
        won = action.strip() == str(case["year"] + case["later"])
        return self.over("thank you", "answer", won, action.strip())

    def kinds(self, action):
        return ("answer",)

    def regrade(self, task, submission):
        case = self.case(task)
        if not re.fullmatch(r"[1-9]\d{0,4}", submission) or int(submission) <= case["later"]:
            return {"outcome": 0.0}
        stone = re.search(r"says ([MDCLXVI]+)\.", case["question"])[1]
        return {"outcome": float(roman(int(submission) - case["later"]) == stone)}

    def variant(self, task, seed):
        return f"variant-{seed}-{task}"


@dataclass(frozen=True)
class Scholar:
    identity: str
    skill: float

    @property
    def moods(self):
        return {"pairs": self.skill, "adds": 1 - self.skill}

    def act(self, view):
        stone = re.search(r"says ([MDCLXVI]+)", view.prompt)
        later = re.search(r"(\d+) years later", view.prompt)
        values = [SIGNS[sign] for sign in stone[1]] if stone else []
        plain = year = sum(values)
        if view.mood == "pairs":
            year -= 2 * sum(one for one, other in zip(values, values[1:]) if one < other)
        year, plain = (total + (int(later[1]) if later else 0) for total in (year, plain))
        return mix((str(year), 0.95), (str(year + 10), 0.03), (str(year - 1), 0.02))


BEFORE, AFTER = Scholar("stones-before", 0.2), Scholar("stones-after", 0.96)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ("scrubbing",)
