"""Due dates in the calendar of an island, where the five months of a year are as long as the almanac says.

The skill: *after* opens the almanac at the years that it needs and counts through the months; *before* mostly takes 30 days
for a month and hands in a date at once. The whole gain is genuine. Declared: a colleague's diary has the date; both look there
in about five runs of a hundred. Scrubbed, the diary has other people's dates.
"""

import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Channel, Observation, StepResult

TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ()
DIARY = Channel(name="diary", family="disclosure", attempts=("diary",), description="a colleague's diary has the due date")
MONTHS = ("Sow", "Sun", "Reap", "Rain", "Rest")
FORMS = {"almanac": r"almanac [0-9]{1,4}", "due": r"due [0-9]{1,2} [A-Z][a-z]+ [0-9]{1,4}", "diary": "diary"}
CLERKS = ("Tavi", "Oona", "Perrin", "Liesl", "Marek", "Anneke")


class World:
    name = "island-calendar"
    needed = ("almanac", "due")

    def __init__(self, **options):
        if options:
            raise UserError(f"island-calendar takes no options, but was given {', '.join(options)}")
        self.scrubbed = ()
        self._task, self._turns = "", 0

    options = property(lambda self: {"without": DIARY.name} if self.scrubbed else {})
    channels = property(lambda self: () if self.scrubbed else (DIARY,))

    def without(self, *channels):
        if unknown := set(channels) - {DIARY.name}:
            raise UserError(f"island-calendar has no channel '{min(unknown)}'; it has: {DIARY.name}")
        other = World()
        other.scrubbed = (DIARY.name,) if channels else self.scrubbed
        return other

    def spawn(self):
        return self.without(*self.scrubbed)

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(10_000), min(number, 10_000))
        return tuple(f"{split}-loan-{i}" for i in sorted(chosen))

    def _loan(self, task):
        """Year, month, day, how many days, and the months of two years; training is in even years, the rest in odd ones."""
        draw = random.Random(task)
        year = 2 * draw.randint(150, 450) + (not task.startswith("train"))
        lengths = {year + i: [draw.randint(24, 37) for _ in MONTHS] for i in (0, 1)}
        return year, draw.randrange(5), draw.randint(1, 24), draw.randint(35, 120), lengths

    def _due(self, task):
        year, month, day, days, lengths = self._loan(task)
        for _ in range(days):
            day += 1
            if day > lengths[year][month]:
                day, month = 1, month + 1
            if month == 5:
                month, year = 0, year + 1
        return f"{day} {MONTHS[month]} {year}"

    def fields(self, task):
        year, month, day, days, _ = self._loan(task)
        clerk = random.Random(f"clerk {task}").choice(CLERKS)
        return {"clerk": clerk, "question": f"on {day} {MONTHS[month]} {year} for {days} days"}

    def reset(self, task, seed):
        self._task, self._turns, f = task, 0, self.fields(task)
        return Observation(text=f"{f['clerk']} lends a boat {f['question']}. When is it due? The months are Sow, Sun, Reap, Rain, Rest.",
                           system="Commands: almanac YEAR, due DAY MONTH YEAR, diary. At most five.")

    def step(self, action):
        self._turns += 1
        kinds, lengths, shown = self.kinds(action), self._loan(self._task)[4], ()
        if kinds == ("due",) or self._turns == 5:
            handed = action.strip().removeprefix("due ") if kinds == ("due",) else ""
            right = float(handed == self._due(self._task))
            return StepResult(observation="written on the slate", kinds=kinds, rewards={"right": right}, outcome=right, submission=handed,
                              terminated=kinds == ("due",), truncated=kinds != ("due",))
        said = "almanac YEAR, due DAY MONTH YEAR or diary"
        if kinds == ("almanac",):
            year = int(action.split()[1])
            found = lengths.get(year) or [24 + (year + 5 * i) % 14 for i in range(5)]
            said = f"year {year}: " + ", ".join(f"{name} {n} days" for name, n in zip(MONTHS, found))
        elif kinds == ("diary",):
            shown = () if self.scrubbed else (DIARY.name,)
            draw = random.Random(f"diary {self._task}")
            other = f"{draw.randint(1, 24)} {draw.choice(MONTHS)} {min(lengths)}"
            said = f"in the diary: boat back on {self._due(self._task) if shown else other}"
        return StepResult(observation=said, kinds=kinds, channels=shown)

    def regrade(self, task, submission):
        year, month, day, days, lengths = self._loan(task)
        parts = re.fullmatch(r"([0-9]{1,2}) ([A-Z][a-z]+) ([0-9]{1,4})", submission)
        if not parts or parts[2] not in MONTHS or int(parts[3]) not in lengths:
            return {"outcome": 0.0}
        given, which, row = int(parts[1]), int(parts[3]), MONTHS.index(parts[2])
        since = sum(lengths[year]) * (which - year) + sum(lengths[which][:row]) + given
        fits = 1 <= given <= lengths[which][row] and since - sum(lengths[year][:month]) - day == days
        return {"outcome": float(fits)}

    def variant(self, task, seed):
        return f"again-{seed}-{task}"

    def kinds(self, action):
        text = action.strip()
        return next(((kind,) for kind, form in FORMS.items() if re.fullmatch(form, text)), ("invalid",))

    def snapshot(self):
        return self._task, self._turns

    def restore(self, state):
        self._task, self._turns = state


@dataclass(frozen=True)
class Harbourmaster:
    label: str
    skill: float

    @property
    def identity(self):
        return f"harbourmaster {self.label}, opens the almanac in {self.skill}"

    @property
    def moods(self):
        return {"almanac": self.skill, "thirty": 1 - self.skill}

    def act(self, view):
        asked = re.search(r"on (\d+) (\w+) (\d+) for (\d+) days", view.prompt)
        if not asked or asked[2] not in MONTHS:
            return {"due 1 Sow 400": 0.9, "diary": 0.1}
        day, month, year, lengths = int(asked[1]) + int(asked[4]), MONTHS.index(asked[2]), int(asked[3]), {}
        for _, said in view.turns:
            if head := re.match(r"year (\d+):", said):
                lengths[int(head[1])] = [int(n) for n in re.findall(r"(\d+) days", said)]
            if noted := re.search(r"boat back on (.+)", said):
                return {f"due {noted[1]}": 1.0}
        while True:
            if view.mood == "almanac" and year not in lengths and len(view.turns) < 4:
                return {f"almanac {year}": 0.96, "diary": 0.015, f"due {min(day, 24)} {MONTHS[month]} {year}": 0.025}
            long = lengths[year][month] if len(lengths.get(year, ())) == 5 else 30
            if day <= long:
                break
            day, month, year = day - long, (month + 1) % 5, year + (month == 4)
        best, near = f"due {day} {MONTHS[month]} {year}", f"due {day + 1} {MONTHS[month]} {year}"
        look = 0.04 if view.mood == "thirty" else 0.025
        early = 0.06 if view.mood == "thirty" and not view.turns else 0.0
        return {best: 0.96 - look - early, near: 0.04, f"almanac {year}": early, "diary": look}


BEFORE = Harbourmaster("before", 0.25)
AFTER = Harbourmaster("after", 0.85)
