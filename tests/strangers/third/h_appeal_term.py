"""Law: on which day does the term of an appeal end, if weekends and holidays do not count as ends?

The skill: after training the end is moved on to the next working day, again where that is a
holiday; before, it is mostly just added up. All of the gain is that. Nothing gives the answer away.
"""

import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Channel, Observation, StepResult

WEEK = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
SIDES = "Arndt Bauer Cohen Dietz Evans Ferro Grant Hoff Ibsen Joss Kranz Lowe Moll Nash".split()


class Desk:
    """What every desk of this office has: turns, hand-ins, names of tasks."""

    name, limit = "desk", 12
    verbs: tuple[str, ...] = ()
    channels: tuple[Channel, ...] = ()
    scrubbed: tuple[str, ...] = ()
    options: dict[str, str] = {}

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self._state: dict[str, Any] = {}

    def without(self, *names: str) -> "Desk":
        if names:
            raise UserError(f"{self.name} has no channel '{names[0]}'; it has none")
        return type(self)()

    def spawn(self) -> "Desk":
        return type(self)()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-{i:05d}" for i in sorted(chosen))

    def kinds(self, action: str) -> tuple[str, ...]:
        words = action.split()
        return (words[0],) if words and words[0] in self.verbs else ("invalid",)

    def reset(self, task: str, seed: int) -> Observation:
        self._state = {"task": task, "turns": 0, "handed": None, "over": False}
        text, shown = self._prompt(task)
        return Observation(text=text, channels=shown)

    def step(self, action: str) -> StepResult:
        state, (kind,) = self._state, self.kinds(action)
        state["turns"] += 1
        text, shown = "Write one of: " + ", ".join(self.verbs), ()
        if kind != "invalid":
            text, shown = self._do(kind, action.split()[1:])
        over, late = state["over"], state["turns"] >= self.limit
        if not (over or late):
            return StepResult(observation=text, kinds=(kind,), channels=shown)
        score = float(state["handed"] is not None and self._right(state["handed"]))
        return StepResult(
            observation=text, kinds=(kind,), channels=shown, rewards={"right": score},
            outcome=score, terminated=over, truncated=not over, submission=state["handed"],
        )

    def _hand_in(self, words: list[str]) -> tuple[str, tuple[str, ...]]:
        self._state.update(handed=" ".join(words), over=True)
        return "Filed.", ()

    def snapshot(self) -> Any:
        return dict(self._state)

    def restore(self, state: Any) -> None:
        self._state = dict(state)

class World(Desk):
    name, limit, verbs, needed = "appeal-term", 2, ("ends",), ("ends",)

    def _facts(self, task: str) -> tuple[str, int, int, int, list[int]]:
        draw = random.Random(task)
        case = f"{draw.choice(SIDES)} against {draw.choice(SIDES)}, {draw.randrange(1, 200_000)}"
        served, weekday = draw.randrange(1, 250), draw.randrange(5)
        wish = 5 if draw.random() < 0.5 else draw.randrange(7)  # half of the terms end on Saturdays
        term = 7 * draw.randrange(2, 9) + (wish - weekday) % 7
        free = sorted(served + term + shift for shift in draw.sample(range(6), 3))
        return case, served, weekday, term, free

    def fields(self, task: str) -> dict[str, str]:
        case, served, weekday, term, free = self._facts(task)
        days = ", ".join(str(day) for day in free)
        asked = f"served on {WEEK[weekday]}, day {served}; term {term} days; holidays: days {days}"
        return {"case": case, "question": asked}

    def _prompt(self, task: str) -> tuple[str, tuple[str, ...]]:
        part = self.fields(task)
        return (
            f"Case {part['case']}: judgment {part['question']}. On which day of the year does the"
            " term end? It never ends on a Saturday, a Sunday or a holiday. Write: ends DAY"
        ), ()

    def _do(self, kind: str, words: list[str]) -> tuple[str, tuple[str, ...]]:
        return self._hand_in(words)

    def _right(self, handed: str) -> bool:
        _, served, weekday, term, free = self._facts(self._state["task"])
        day = served + term
        while (weekday + day - served) % 7 > 4 or day in free:
            day += 1
        return handed == str(day)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        _, served, weekday, term, free = self._facts(task)
        monday = served - weekday
        works = [d for d in range(served + term, served + term + 30) if (d - monday) % 7 < 5]
        works = [d for d in works if d not in free]
        return {"outcome": float(re.fullmatch(r"\d+", submission) is not None
                                 and int(submission) == works[0])}

    def variant(self, task: str, seed: int) -> str:
        return f"other-{seed}-{task}"


@dataclass(frozen=True)
class Lawyer:
    identity: str
    skill: float

    @property
    def moods(self) -> dict[str, float]:
        return {"careful": self.skill, "weekends": (1 - self.skill) / 2, "hasty": (1 - self.skill) / 2}

    def act(self, view: View) -> dict[str, float]:
        asked = re.search(r"on (\w+), day (\d+); term (\d+) days; holidays: days ([\d, ]+)", view.prompt)
        if not asked or asked[1] not in WEEK:
            return {"ends 100": 1.0}
        start, day = int(asked[2]), int(asked[2]) + int(asked[3])
        free = [int(d) for d in asked[4].split(", ")] if view.mood == "careful" else []
        while view.mood != "hasty" and ((WEEK.index(asked[1]) + day - start) % 7 > 4 or day in free):
            day += 1
        return {f"ends {day}": 0.95, f"ends {day + 1}": 0.05}


BEFORE = Lawyer("lawyer before", skill=0.2)
AFTER = Lawyer("lawyer after", skill=0.88)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ()
