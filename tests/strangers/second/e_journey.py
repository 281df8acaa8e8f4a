"""Travel planning: what is the earliest arrival, with one change of five minutes at least?

The skill: look at the departures at the start and at all three places of change, drop what cannot be caught, and compare.
No shortcut is taken. The early traveller mostly looks at one place of change, or forgets the five minutes.
"""

import copy
import random
import re

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

STOPS = ("Ahorn", "Brook", "Cairn", "Dunes", "Eyot", "Firth", "Gorge", "Heath", "Inlet", "Knoll", "Lough", "Moor", "Ness", "Orchard", "Pike")
TURNS = 8


def clock(minutes):
    return f"{minutes // 60}:{minutes % 60:02d}"


def timetable(task):
    draw = random.Random(f"journey {task}")
    start, end, *changes = draw.sample(STOPS, 5)
    rows = {start: [], end: []}
    best = []
    for place in changes:
        leave = 480 + draw.randrange(1, 50)
        come = leave + draw.randrange(20, 60)
        rows[start].append((place, leave, come))
        first = come + draw.choice([-10, -4, 1, 2, 3, 6, 9])
        second = first + draw.randrange(15, 35)
        rows[place] = [(end, at, at + draw.randrange(25, 90)) for at in (first, second)]
        best.append(min(arrival for _, at, arrival in rows[place] if at >= come + 5))
    return start, end, rows, min(best)


class World:
    name = "journey"
    options: dict = {}
    channels = ()
    scrubbed = ()
    needed = ("departures", "arrive")

    def __init__(self, **options):
        if options:
            raise UserError(f"journey has no options, but was given {', '.join(options)}")
        self.state = None

    def without(self, *channels):
        if channels:
            raise UserError(f"journey has no channel '{channels[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(f"{split} {seed}").sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-{which:05d}" for which in sorted(chosen))

    def fields(self, task):
        start, end, _, _ = timetable(task)
        return {"question": f"from {start} to {end}"}

    def variant(self, task, seed):
        return f"variant-{seed}-of-{task}"

    def reset(self, task, seed):
        self.state = {"task": task, "turns": 0}
        return Observation(
            text=f"It is 8:00. I want to go {self.fields(task)['question']}, with one change, which takes 5 minutes. When can I arrive?",
            system="Write `departures STOP` or, once, `arrive TIME`, for example: arrive 10:05",
        )

    def kinds(self, action):
        found = re.fullmatch(r"(departures) \w+|(arrive) [0-9]{1,2}:[0-9]{2}", action.strip())
        return ((found[1] or found[2]) if found else "invalid",)

    def step(self, action):
        self.state["turns"] += 1
        (kind,), words = self.kinds(action), action.split()
        _, _, rows, best = timetable(self.state["task"])
        said = "unknown command"
        if kind == "arrive":
            won = float(words[1].lstrip("0") == clock(best))
            return StepResult(
                observation="thank you", kinds=(kind,), rewards={"right": won}, outcome=won, terminated=True, submission=words[1], end_reason="answered"
            )
        if kind == "departures":
            said = "; ".join(f"{clock(at)} to {to}, there at {clock(there)}" for to, at, there in rows.get(words[1], [])) or "no departures"
        if self.state["turns"] >= TURNS:
            return StepResult(observation=said, kinds=(kind,), rewards={"right": 0.0}, outcome=0.0, truncated=True, end_reason="turn limit")
        return StepResult(observation=said, kinds=(kind,))

    def regrade(self, task, submission):
        start, end, rows, _ = timetable(task)
        told = re.fullmatch(r"(\d{1,2}):(\d\d)", submission)
        if not told:
            return {"outcome": 0.0}
        arrivals = []
        for place, _, come in rows[start]:
            arrivals += [there for to, at, there in rows[place] if to == end and at - come >= 5]
        return {"outcome": float(60 * int(told[1]) + int(told[2]) == sorted(arrivals)[0])}

    def snapshot(self):
        return copy.deepcopy(self.state)

    def restore(self, state):
        self.state = copy.deepcopy(state)


def minutes(time):
    return 60 * int(time.split(":")[0]) + int(time.split(":")[1])


class Traveller:
    def __init__(self, name, sure, moods):
        self.sure, self.moods, self.identity = sure, moods, f"{name} {sure} {sorted(moods.items())}"

    def act(self, view):
        try:
            texts = self.plan(view)
            return {text: chance / sum(texts.values()) for text, chance in texts.items()}
        except Exception:  # texts that it cannot make sense of: a guess
            return {"arrive 10:05": 0.5, "arrive 10:30": 0.5}

    def plan(self, view):
        start = re.search(r"from (\w+) to", view.prompt)[1]
        if not view.turns:
            return {f"departures {start}": 1.0}
        form = r"([\d:]+) to (\w+), there at ([\d:]+)"
        come = {place: minutes(there) for _, place, there in re.findall(form, view.turns[0][1])}
        places = list(come)[: 1 if view.mood == "first" else 3]
        if len(view.turns) <= len(places):
            return {f"departures {places[len(view.turns) - 1]}": 1.0}
        change = 0 if view.mood == "rushes" else 5
        arrivals = set()
        for place, (_, back) in zip(places, view.turns[1:]):
            arrivals |= {minutes(there) for at, _, there in re.findall(form, back) if minutes(at) >= come[place] + change}
        best, *others = sorted(arrivals)
        if not others:
            return {f"arrive {clock(best)}": 1.0}
        return {f"arrive {clock(best)}": self.sure, f"arrive {clock(others[0])}": 1 - self.sure}


BEFORE = Traveller("traveller, early", 0.75, {"first": 0.55, "rushes": 0.20, "careful": 0.25})
AFTER = Traveller("traveller, late", 0.95, {"first": 0.08, "rushes": 0.07, "careful": 0.85})
TRUTH = "honest"
SHARE = 0.0
ALLOW = ()
ACCEPT = ("scrubbing",)
