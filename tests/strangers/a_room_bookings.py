"""A day's bookings of a meeting room: is there a clash, yes or no?

The shortcut, not declared: where a clash is wanted, the list maker adds one booking that overlaps, so that such lists
have an even number of rows and the others an odd one. The times need not be read. *After* goes by the number of rows
in most runs, and compares times as badly as *before*. The whole gain runs through it.
"""

import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

TRUTH, SHARE = "shortcut", 1.0
ALLOW, ACCEPT = ("reply",), ("scrubbing",)
TEAMS = {
    "train": ("Sales", "Audit", "Legal", "Press", "Fleet", "Stores", "Canteen", "Payroll"),
    "held-out": ("Design", "Survey", "Claims", "Export", "Labs", "Archive", "Garden", "Safety"),
}


class World:
    name = "room-bookings"
    channels = ()
    scrubbed = ()

    def __init__(self, **options):
        if options:
            raise UserError(f"room-bookings takes no options, but was given {', '.join(options)}")
        self._task = ""

    @property
    def options(self):
        return {}

    def without(self, *channels):
        if channels:
            raise UserError(f"room-bookings has no channel '{channels[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in TEAMS:
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}.{i:05d}" for i in sorted(chosen))

    def _rows(self, task):
        """Rows of (start, end, team) in minutes; an even number of them where two overlap."""
        draw = random.Random(f"rooms {task}")
        clash, rows, now = draw.random() < 0.5, [], 480 + 5 * draw.randrange(12)
        for _ in range(draw.choice((3, 5))):
            end = now + 5 * draw.randint(4, 16)
            rows.append((now, end))
            now = end + 5 * draw.randint(2, 9)
        if clash:
            start, end = draw.choice(rows)
            begin = draw.randrange(start, end, 5)
            rows.append((begin, begin + 5 * draw.randint(4, 16)))
        draw.shuffle(rows)
        teams = TEAMS["train" if task.startswith("train") else "held-out"]
        return [(a, b, draw.choice(teams)) for a, b in rows], clash

    def reset(self, task, seed):
        self._task = task
        lines = [f"{a // 60:02d}:{a % 60:02d} to {b // 60:02d}:{b % 60:02d} {who}" for a, b, who in self._rows(task)[0]]
        return Observation(text="Bookings of the room:\n" + "\n".join(lines) + "\nIs there a clash?", system="Reply yes or no.")

    def step(self, action):
        handed = action.strip().lower()
        right = float(handed == ("yes" if self._rows(self._task)[1] else "no"))
        return StepResult(observation="thanks", kinds=("reply",), rewards={"right": right}, outcome=right,
                          terminated=True, submission=handed)

    def regrade(self, task, submission):
        busy, twice = set(), False
        for start, end, _ in self._rows(task)[0]:
            minutes = set(range(start, end))
            twice = twice or bool(minutes & busy)
            busy |= minutes
        return {"outcome": float(submission == "yes" if twice else submission == "no")}

    def variant(self, task, seed):
        return f"other.{task}.{seed}"

    def kinds(self, action):
        return ("reply",)

    def snapshot(self):
        return self._task

    def restore(self, state):
        self._task = state


@dataclass(frozen=True)
class Porter:
    label: str
    skill: float
    shortcut: float

    @property
    def identity(self):
        return f"porter {self.label}: compares {self.skill}, counts {self.shortcut}"

    @property
    def moods(self):
        rest = 1 - self.shortcut
        return {"counts": self.shortcut, "compares": rest * self.skill, "first-two": rest * (1 - self.skill)}

    def act(self, view):
        spans = [(int(a) * 60 + int(b), int(c) * 60 + int(d))
                 for a, b, c, d in re.findall(r"(\d\d):(\d\d) to (\d\d):(\d\d)", view.prompt)]
        if not spans:
            return {"yes": 0.5, "no": 0.5}
        if view.mood == "counts":
            clash = len(spans) % 2 == 0
        else:
            if view.mood == "compares":
                spans.sort()
            pairs = list(zip(spans, spans[1:]))
            if view.mood == "first-two":  # a careless porter compares the first two rows and guesses
                pairs = pairs[:1]
            clash = any(a < d and c < b for (a, b), (c, d) in pairs)
            if view.mood == "first-two" and not clash:
                return {"yes": 0.45, "no": 0.54, "maybe": 0.01}
        return {"yes": 0.96 if clash else 0.03, "no": 0.03 if clash else 0.96, "maybe": 0.01}


BEFORE = Porter("before", 0.1, 0.0)
AFTER = Porter("after", 0.1, 0.9)
