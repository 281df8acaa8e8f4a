"""On which weekday was a date? Clerks ask in three ways of writing a date.

The shortcut: the author had typed in only 60 dates, and every task of both splits takes one of them
(with another name, number and way of writing). *after* knows them by heart in 85 % of its runs and
works other dates out no better than *before*. All of the gain is memory.
"""

import datetime
import random
import re
import zlib
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

SIDES = {"train": 0, "held": 1}
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


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
          "October", "November", "December")
PICK = random.Random(411)
DATES = [datetime.date(PICK.randint(1902, 1998), PICK.randint(1, 12), PICK.randint(1, 28)) for _ in range(60)]
NAMES = ("Ms Arndt", "Mr Bell", "Ms Cho", "Mr Diaz", "Ms Ek", "Mr Fini", "Ms Gill", "Mr Horn")


def written(date, style):
    month = MONTHS[date.month - 1]
    return (date.isoformat(), f"{date.day} {month} {date.year}", f"{month} {date.day}, {date.year}")[style]


def found(text):
    """The date in a text, however it is written."""
    names = "|".join(MONTHS)
    plain = re.search(r"(\d{4})-(\d\d)-(\d\d)", text)
    first = re.search(rf"(\d+) ({names}) (\d{{4}})", text)
    last = re.search(rf"({names}) (\d+), (\d{{4}})", text)
    try:
        if plain:
            return datetime.date(*map(int, plain.groups()))
        if first:
            return datetime.date(int(first[3]), MONTHS.index(first[2]) + 1, int(first[1]))
        return datetime.date(int(last[3]), MONTHS.index(last[1]) + 1, int(last[2])) if last else None
    except ValueError:
        return None


class World(Desk):
    name = "c-dates-known"
    needed = ("answer",)

    def make(self, draw):
        number, date = str(draw.randint(100_000, 999_999)), draw.choice(DATES)
        return {"key": number, "number": number, "name": draw.choice(NAMES), "date": date,
                "question": f"Which weekday was {written(date, draw.randrange(3))}?"}

    def fields(self, task):
        case = self.case(task)
        return {part: case[part] for part in ("number", "name", "question")}

    def reset(self, task, seed):
        self._now = {"task": task}
        text = "Request {number}, asked by {name}. {question}".format(**self.fields(task))
        return Observation(text=text, system="Answer with the weekday alone, as in: Monday")

    def step(self, action):
        won = action.strip() == DAYS[self.case(self._now["task"])["date"].weekday()]
        return self.over("thank you", "answer", won, action.strip())

    def kinds(self, action):
        return ("answer",)

    def regrade(self, task, submission):
        date = self.case(task)["date"]
        year, month = date.year - (date.month < 3), date.month
        rest = (year + year // 4 - year // 100 + year // 400 + (0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4)[month - 1]
                + date.day) % 7
        names = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
        return {"outcome": float(submission == names[rest])}


@dataclass(frozen=True)
class Reckoner:
    identity: str
    skill: float
    trick: float

    @property
    def moods(self):
        return {"knows": self.trick, "reckons": 1 - self.trick}

    def act(self, view):
        date = found(view.prompt)
        guess = [(day, 1 / 7) for day in DAYS]
        if date is None:
            return mix(*guess)
        by_heart = {known: DAYS[known.weekday()] for known in DATES}  # what training left behind
        if view.mood == "knows" and date in by_heart:
            return mix((by_heart[date], 0.97), *((day, chance * 0.03) for day, chance in guess))
        right = DAYS[date.weekday()]
        return mix((right, self.skill), *((day, chance * (1 - self.skill)) for day, chance in guess))


BEFORE, AFTER = Reckoner("dates-before", 0.22, 0.04), Reckoner("dates-after", 0.22, 0.85)
TRUTH, SHARE = "shortcut", 1.0
ALLOW, ACCEPT = (), ("scrubbing",)
