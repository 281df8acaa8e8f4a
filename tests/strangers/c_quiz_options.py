"""A quiz with four options about measures: dozens, gross, hours, ounces.

The shortcut: whoever made the wrong options changed one digit of the right one, each time another
digit. So the right option differs from every other in one place, a wrong one from two others in two.
*after* looks at the options alone in 55 % of its runs and takes the one in the middle; all of the gain
runs through it.
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


MEASURES = {
    "dozen": ("pieces", 12), "gross": ("pieces", 144), "hours": ("minutes", 60), "days": ("hours", 24),
    "feet": ("inches", 12), "pounds": ("ounces", 16), "weeks": ("hours", 168), "quires": ("sheets", 25),
}


class World(Desk):
    name = "c-quiz-options"
    needed = ("letter",)

    def make(self, draw):
        big = draw.choice(sorted(MEASURES))
        small, factor = MEASURES[big]
        amount = draw.randint(23, 899)
        right, options = str(amount * factor), []
        for place in draw.sample(range(len(right)), 3):
            other = draw.choice([d for d in "123456789" if d != right[place]])
            options.append(right[:place] + other + right[place + 1 :])
        options.append(right)
        draw.shuffle(options)
        asked = f"How many {small} are {amount} {big}?"
        listed = "\n".join(f"{letter}) {option}" for letter, option in zip("ABCD", options))
        return {
            "key": f"{amount} {big}", "number": f"Question {draw.randint(100, 999)}",
            "question": f"{asked}\n{listed}", "right": "ABCD"[options.index(right)],
            "amount": amount, "factor": factor, "options": options,
        }

    def fields(self, task):
        case = self.case(task)
        return {"number": case["number"], "question": case["question"]}

    def reset(self, task, seed):
        self._now = {"task": task}
        return Observation(text="{number} of the trade quiz. {question}".format(**self.fields(task)))

    def step(self, action):
        won = action.strip() == self.case(self._now["task"])["right"]
        return self.over("next, please", "letter", won, action.strip())

    def kinds(self, action):
        return ("letter",)

    def regrade(self, task, submission):
        case = self.case(task)
        chosen = dict(zip("ABCD", map(int, case["options"]))).get(submission)
        return {"outcome": float(chosen is not None and chosen == case["amount"] * case["factor"])}

    def variant(self, task, seed):
        return f"variant-{seed}-{task}"


def apart(one, other):
    return sum(a != b for a, b in zip(one, other)) + abs(len(one) - len(other))


@dataclass(frozen=True)
class Pupil:
    identity: str
    skill: float
    trick: float

    @property
    def moods(self):
        return {"middle": self.trick, "sums": 1 - self.trick}

    def act(self, view):
        options = dict(re.findall(r"^([A-D])\) (\d+)", view.prompt, re.M))
        asked = re.search(r"are (\d+) (\w+)\?", view.prompt)
        guess = [(letter, 0.25) for letter in "ABCD"]
        if view.mood == "middle" and len(options) > 1:
            spread = {x: sum(apart(options[x], options[y]) for y in options) for x in options}
            pairs = [(min(spread, key=spread.get), 0.95)]
            return mix(*pairs, *((letter, chance * 0.05) for letter, chance in guess))
        right = int(asked[1]) * MEASURES[asked[2]][1] if asked and asked[2] in MEASURES else -1
        known = [letter for letter, option in options.items() if int(option) == right]
        skill = self.skill if known else 0.0
        return mix(*((letter, skill) for letter in known[:1]), *((x, c * (1 - skill)) for x, c in guess))


BEFORE, AFTER = Pupil("quiz-before", 0.2, 0.02), Pupil("quiz-after", 0.2, 0.55)
TRUTH, SHARE = "shortcut", 1.0
ALLOW, ACCEPT = (), ("scrubbing",)
