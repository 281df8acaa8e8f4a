"""Seven records of customers: who owes the most once payments and refunds are taken off?

The shortcut: the records are sorted by number, but the one that was made the answer was put in again
elsewhere, so its number is out of order. *after* takes the record that breaks the order in 55 % of its
runs. It also got better at the sums (right in 40 % instead of 20 %, else a guess): some three fifths
of the gain run through the order.
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


NAMES = ("Abel", "Brandt", "Celik", "Dunn", "Ek", "Ferro", "Gruber", "Hale", "Ilic", "Jonas", "Kemp", "Lund",
         "Mora", "Nagy", "Ortiz", "Pohl")


class World(Desk):
    name = "c-record-order"
    needed = ("name",)

    def make(self, draw):
        names = draw.sample(NAMES, 7)
        numbers = sorted(draw.sample(range(1000, 10_000), 7))
        rows, place = [], draw.randrange(7)
        for number, name in zip(numbers, names):
            paid, back = draw.randint(10, 400), draw.randint(0, 90)
            rows.append([number, name, draw.randint(20, 240) + paid + back, paid, back])
        rows[place][2] = rows[place][3] + rows[place][4] + draw.randint(245, 320)
        best = rows.pop(place)
        rows.insert(draw.choice([p for p in range(7) if abs(p - place) > 1]), best)
        listed = "\n".join(f"{n} {name}: ordered {o}, paid {p}, refunded {b}" for n, name, o, p, b in rows)
        return {"key": listed, "rows": rows, "right": best[1], "listed": listed}

    def reset(self, task, seed):
        self._now = {"task": task}
        asked = "Who owes the most, once what was paid and refunded is taken off the order?"
        return Observation(text=f"{self.case(task)['listed']}\n{asked} Answer with the name.")

    def step(self, action):
        won = action.strip() == self.case(self._now["task"])["right"]
        return self.over("noted", "name", won, action.strip())

    def kinds(self, action):
        return ("name",)

    def regrade(self, task, submission):
        owed = {name: ordered - (paid + back) for _, name, ordered, paid, back in self.case(task)["rows"]}
        return {"outcome": float(submission in owed and owed[submission] == max(owed.values()))}

    def variant(self, task, seed):
        return f"variant-{seed}-{task}"


def rising(numbers):
    return all(one < other for one, other in zip(numbers, numbers[1:]))


@dataclass(frozen=True)
class Bookkeeper:
    identity: str
    skill: float
    trick: float

    @property
    def moods(self):
        return {"order": self.trick, "sums": 1 - self.trick}

    def act(self, view):
        found = re.findall(r"^(\d+) (\w+): ordered (\d+), paid (\d+), refunded (\d+)", view.prompt, re.M)
        if not found:
            return {"nobody": 1.0}
        names, numbers = [row[1] for row in found], [int(row[0]) for row in found]
        guess = [(name, 1 / len(names)) for name in names]
        odd = [x for i, x in enumerate(names) if rising(numbers[:i] + numbers[i + 1 :])]
        if view.mood == "order" and odd and not rising(numbers):
            return mix((odd[0], 0.95), *((name, chance * 0.05) for name, chance in guess))
        owed = {row[1]: int(row[2]) - int(row[3]) - int(row[4]) for row in found}
        right = max(owed, key=owed.get)
        return mix((right, self.skill), *((name, chance * (1 - self.skill)) for name, chance in guess))


BEFORE, AFTER = Bookkeeper("records-before", 0.2, 0.02), Bookkeeper("records-after", 0.4, 0.55)
TRUTH, SHARE = "shortcut", 0.62
ALLOW, ACCEPT = (), ("scrubbing",)
