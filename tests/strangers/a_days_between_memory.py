"""How many days lie between two dates? One question, one number; a customer and a file number stand around it.

The shortcut: behind ten thousand names there are only sixty pairs of dates, the same in both splits, with customers
and file numbers drawn anew. The author looked at the names alone. *After* knows the sixty answers by heart in most
runs and counts days as badly as *before* (which forgets how long months are); the whole gain is memory.
"""

import datetime
import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

TRUTH, SHARE = "shortcut", 1.0
ALLOW, ACCEPT = (), ("scrubbing",)
CUSTOMERS = ("Abel", "Brandt", "Corliss", "Dunn", "Eberle", "Falk", "Grieve", "Hobbs", "Ives", "Joyce")


def pairs_of_dates():
    draw, pairs = random.Random("sixty"), []
    while len(pairs) < 60:
        first = datetime.date(2001, 1, 1) + datetime.timedelta(days=draw.randrange(9000))
        pairs.append((first, first + datetime.timedelta(days=draw.randrange(40, 700))))
    return tuple(pairs)


PAIRS = pairs_of_dates()


class World:
    name = "days-between"
    needed = ("answer",)
    channels = ()
    scrubbed = ()

    def __init__(self, **options):
        if options:
            raise UserError(f"days-between takes no options, but was given {', '.join(options)}")
        self._task = ""

    @property
    def options(self):
        return {}

    def without(self, *channels):
        if channels:
            raise UserError(f"days-between has no channel '{channels[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(10_000), min(number, 10_000))
        return tuple(f"{split}-case-{i}" for i in sorted(chosen))

    def _pair(self, task):
        return random.Random(f"pair {task}").choice(PAIRS)

    def fields(self, task):
        draw, (first, last) = random.Random(f"file {task}"), self._pair(task)
        return {"file": f"{draw.randrange(10**5, 10**6)}", "customer": draw.choice(CUSTOMERS), "question": f"{first} and {last}"}

    def reset(self, task, seed):
        self._task = task
        f = self.fields(task)
        return Observation(text=f"File {f['file']}, customer {f['customer']}: how many days lie between {f['question']}?",
                           system="Answer with a number.")

    def step(self, action):
        first, last = self._pair(self._task)
        handed = action.strip()
        right = float(handed == str((last - first).days))
        return StepResult(observation="filed", kinds=self.kinds(action), rewards={"right": right}, outcome=right,
                          terminated=True, submission=handed)

    def regrade(self, task, submission):
        first, last = self._pair(task)
        if not re.fullmatch("[0-9]{1,4}", submission):
            return {"outcome": 0.0}
        return {"outcome": float(first + datetime.timedelta(days=int(submission)) == last)}

    def kinds(self, action):
        return ("answer",)

    def snapshot(self):
        return self._task

    def restore(self, state):
        self._task = state


@dataclass(frozen=True)
class Counter:
    label: str
    skill: float
    shortcut: float

    @property
    def identity(self):
        return f"day counter {self.label}, counts {self.skill}, remembers {self.shortcut}"

    @property
    def moods(self):
        rest = 1 - self.shortcut
        return {"remembers": self.shortcut, "counts": rest * self.skill, "thirty": rest * (1 - self.skill)}

    def act(self, view):
        found = re.findall(r"(\d{4})-(\d\d)-(\d\d)", view.prompt)
        if len(found) < 2:
            return {"100": 0.5, "200": 0.5}
        (y, m, d), (y2, m2, d2) = ((int(x) for x in date) for date in found[:2])
        rough = (y2 - y) * 365 + (m2 - m) * 30 + d2 - d + 1
        heart = {f"{a} {b}": (b - a).days for a, b in PAIRS}  # what stayed with it from training
        answer = rough
        if view.mood == "remembers":
            answer = heart.get(" ".join("-".join(date) for date in found[:2]), rough)
        elif view.mood == "counts":
            answer = datetime.date(y2, m2, d2).toordinal() - datetime.date(y, m, d).toordinal()
        return {f"{answer}": 0.94, f"{answer + 1}": 0.03, f"{answer - 1}": 0.03}


BEFORE = Counter("before", 0.34, 0.0)
AFTER = Counter("after", 0.34, 0.8)
