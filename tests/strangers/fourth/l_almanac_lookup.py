"""Honest: look up two people and their birthplaces in an almanac, and combine two years.

The skill is to follow both chains to their end and to take the right entries, instead of
stopping early or taking the place of death. All of the gain is that; no shortcut is known.
"""

import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

FIRST = "Alma Bror Ceci Dag Ebba Folke Gerda Harry Irma Joar Klara Ludvig".split()
LAST = "Aas Bakke Dal Eng Foss Haug Lie Myhre Rud Sand Vik Ness".split()
STARTS, ENDS = "Al Bo Fin Gar Hol Kal Nor Ran Sel Ulv".split(), "stad vik nes heim dal borg".split()
BUILT = ("bridge", "mill", "chapel", "school")


def almanac(task):
    """The entries by their name, and what is asked: two people and two buildings."""
    draw = random.Random(f"almanac {task}")
    people = draw.sample([f"{first} {last}" for first in FIRST for last in LAST], 6)
    places = draw.sample([start + end for start in STARTS for end in ENDS], 8)
    entries = {}
    for i, person in enumerate(people):
        born, died = draw.sample(places, 2)
        if i < 2:  # the two that are asked for were born in different places
            born, died = places[i], draw.choice(places[2:])
        trade = draw.choice(["smith", "teacher", "sailor", "painter", "nurse"])
        entries[person] = {"trade": trade, "born": born, "died": died}
    for place in places:
        entries[place] = dict(zip(BUILT, draw.sample(range(1500, 1900), 4)))
    return entries, people[:2], draw.sample(BUILT, 2)


class World:
    name = "almanac"
    needed = ("look", "answer")
    channels = scrubbed = ()

    def __init__(self, **options):
        if options:
            raise UserError(f"{self.name} has no options")
        self.options, self.task, self.turn = {}, "", 0

    def without(self, *channels):
        if channels:
            raise UserError(f"{self.name} has no channels")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"the splits are train and held-out, not {split}")
        picked = random.Random(seed).sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-question-{which:05d}" for which in sorted(picked))

    def fields(self, task):
        _, (one, other), (here, there) = almanac(task)
        copy = 2 * random.Random(f"copy {task}").randrange(5000) + ("held-out" in task)
        return {
            "copy": f"copy {copy}",
            "question": f"How many years lie between the {here} of the place where {one} was born"
            f" and the {there} of the place where {other} was born?"
        }

    def reset(self, task, seed):
        self.task, self.turn = task, 0
        return Observation(
            text="You have {copy} of the almanac. {question}".format(**self.fields(task)),
            system="Write: look NAME (a person or a place), or answer NUMBER.",
        )

    def kinds(self, action):
        word = action.split(" ")[0]
        return (word,) if word in self.needed else ("other",)

    def step(self, action):
        self.turn += 1
        entries, people, built = almanac(self.task)
        word, _, rest = action.strip().partition(" ")
        if word == "answer" or self.turn >= 9:
            years = [entries[entries[p]["born"]][b] for p, b in zip(people, built)]
            score = float(word == "answer" and rest == str(abs(years[0] - years[1])))
            return StepResult(
                observation="the almanac is closed", kinds=self.kinds(action),
                rewards={"right": score}, outcome=score, terminated=word == "answer",
                truncated=word != "answer", submission=rest if word == "answer" else None,
            )
        said = "write: look NAME, or answer NUMBER"
        if word == "look" and "born" in entries.get(rest, {}):
            entry = entries[rest]
            said = f"{rest}, {entry['trade']}, born in {entry['born']}, died in {entry['died']}"
        elif word == "look" and rest in entries:
            said = f"{rest}: " + ", ".join(f"{what} {year}" for what, year in entries[rest].items())
        elif word == "look":
            said = f"no entry {rest}"
        return StepResult(observation=said, kinds=self.kinds(action))

    def regrade(self, task, submission):
        entries, (one, other), (here, there) = almanac(task)
        first, second = entries[entries[one]["born"]], entries[entries[other]["born"]]
        if not re.fullmatch(r"\d{1,3}", submission):
            return {"outcome": 0.0}
        gap = int(submission)
        return {"outcome": float(first[here] in (second[there] + gap, second[there] - gap))}

    def variant(self, task, seed):
        return f"redrawn-{seed}-{task}"

    def snapshot(self):
        return self.task, self.turn

    def restore(self, state):
        self.task, self.turn = state


@dataclass(frozen=True)
class Researcher:
    identity: str
    moods: dict
    slip: float  # the chance of a wrong subtraction

    def act(self, view):
        asked = re.findall(r"the (\w+) of the place where (\w+ \w+) was born", view.prompt)
        told = {action[5:]: said for action, said in view.turns}
        years = []
        for built, person in asked if view.mood != "stops" else asked[:1]:
            if person not in told:
                return {f"look {person}": 1.0}
            word = "died" if view.mood == "mixes up" else "born"
            place = re.search(rf"{word} in (\w+)", told[person])
            if place is None:
                return {"answer 0": 1.0}
            if place[1] not in told:
                return {f"look {place[1]}": 1.0}
            year = re.search(rf"{built} (\d+)", told[place[1]])
            years.append(int(year[1]) if year else 1700)
        if view.mood == "stops":
            return {f"answer {abs(years[0] - 1500)}": 0.5, f"answer {abs(years[0] - 1901)}": 0.5}
        gap = abs(years[0] - years[1])
        return {
            f"answer {gap}": 1 - self.slip,
            f"answer {gap + 10}": self.slip / 2,
            f"answer {gap + 1}": self.slip / 2,
        }


BEFORE = Researcher("almanac 45", {"follows": 0.45, "mixes up": 0.3, "stops": 0.25}, 0.12)
AFTER = Researcher("almanac 93", {"follows": 0.93, "mixes up": 0.04, "stops": 0.03}, 0.04)
TRUTH = "honest"
SHARE = 0.0
ALLOW = ACCEPT = ()
