"""A pendulum on another planet: find the acceleration of gravity from its length and a shaky stopwatch.

Skill: to time ten swings several times, take the mean, and use g = 4 pi^2 L / T^2. *before* mostly times once or forgets to divide by
ten, *after* times nine times and gets the formula right. Declared, and hardly used by either: a page of the handbook.
"""

import math
import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Channel, Observation, StepResult

PAGE = Channel(name="handbook", family="disclosure", attempts=("handbook",), description="the handbook names the planet's gravity")
TURNS = 12
NOISE = 0.03  # of a timing, relative
NEAR = 0.03  # of a report, relative


def setup(task):
    """Planet, length in centimetres, gravity."""
    draw = random.Random(f"planet of {task}")
    planet = "".join(draw.choice(part) for part in (["Ba", "Ce", "Dor", "Ka", "Lu", "Mi", "Or", "Ta"],
                                                    ["lin", "mar", "net", "ros", "vi"], ["a", "ia", "os", "us"]))
    return f"{planet} {draw.randint(2, 999)}", draw.randint(20, 250), draw.randint(150, 2600) / 100


class World:
    name = "pendulum"
    needed = ("time", "report")

    def __init__(self, **options):
        if options:
            raise UserError(f"pendulum has no options, but was given {', '.join(options)}")
        self.scrubbed = ()
        self._task, self._turns, self._noise = "", 0, random.Random(0)

    @property
    def options(self):
        return {"without": "handbook"} if self.scrubbed else {}

    @property
    def channels(self):
        return () if self.scrubbed else (PAGE,)

    def without(self, *names):
        if wrong := set(names) - {"handbook"}:
            raise UserError(f"pendulum has no channel '{min(wrong)}'; it has: handbook")
        other = World()
        other.scrubbed = ("handbook",) if names else self.scrubbed
        return other

    def spawn(self):
        return self.without(*self.scrubbed)

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        return tuple(f"{split}-{i}" for i in random.Random(seed).sample(range(30_000), min(number, 30_000)))

    def fields(self, task):
        planet, length, _ = setup(task)
        return {"planet": planet, "question": f"{length} cm"}

    def variant(self, task, seed):
        return f"elsewhere-{seed}-{task}"

    def reset(self, task, seed):
        self._task, self._turns, self._noise = task, 0, random.Random(f"{seed} {task}")
        part = self.fields(task)
        return Observation(text=f"On {part['planet']} a pendulum of {part['question']} swings. What is the acceleration of gravity in m/s2?",
                           system=f"Write: time (ten full swings, by hand), or report NUMBER. You have {TURNS} turns.")

    def step(self, action):
        self._turns += 1
        (kind,) = self.kinds(action)
        planet, length, gravity = setup(self._task)
        text, shown = "write: time, or report NUMBER", ()
        if kind == "report":
            said = action.split()[1]
            won = float(abs(float(said) - gravity) <= NEAR * gravity)
            return StepResult(observation="reported", kinds=(kind,), rewards={"near": won}, outcome=won, terminated=True, submission=said)
        if kind == "time":
            period = 2 * math.pi * math.sqrt(length / 100 / gravity)
            text = f"10 swings: {10 * period * self._noise.gauss(1, NOISE):.2f} s"
        elif kind == "handbook":
            text = f"handbook: {planet} has two moons" if self.scrubbed else f"handbook: {planet} has g = {gravity}"
            shown = () if self.scrubbed else ("handbook",)
        if self._turns >= TURNS:
            return StepResult(observation=text, kinds=(kind,), channels=shown, rewards={"near": 0.0}, outcome=0.0, truncated=True,
                              submission="", end_reason="turn limit")
        return StepResult(observation=text, kinds=(kind,), channels=shown)

    def regrade(self, task, submission):
        number = re.fullmatch(r"\d{1,4}(\.\d{1,4})?", submission)
        if number is None:
            return {"outcome": 0.0}
        gravity = setup(task)[2]
        return {"outcome": float(gravity * (1 - NEAR) <= float(number[0]) <= gravity * (1 + NEAR))}

    def kinds(self, action):
        if action.strip() in ("time", "handbook"):
            return (action.strip(),)
        return ("report",) if re.fullmatch(r"report [0-9]{1,4}(\.[0-9]{1,4})?", action.strip()) else ("invalid",)

    def snapshot(self):
        return self._task, self._turns, self._noise.getstate()

    def restore(self, state):
        self._task, self._turns = state[:2]
        self._noise = random.Random()
        self._noise.setstate(state[2])


@dataclass(frozen=True)
class Physicist:
    identity: str
    moods: dict

    def act(self, view):
        if view.mood == "handbook":
            if not view.turns:
                return {"handbook": 1.0}
            if told := re.search(r"g = (\d+\.?\d*)", view.turns[0][1]):
                return {f"report {told[1]}": 1.0}
        timed = [float(found[1]) for _, said in view.turns if (found := re.fullmatch(r"10 swings: (\d+\.\d+) s", said))]
        if len(timed) < {"many": 9, "two": 2}.get(view.mood, 1) and len(view.turns) < TURNS - 1:
            return {"time": 1.0}
        length = re.search(r"pendulum of (\d+) cm", view.prompt)
        period = sum(timed) / len(timed) / 10 if timed and sum(timed) else 2.0
        gravity = 4 * math.pi**2 * (int(length[1]) if length else 100) / 100 / period**2
        if view.mood == "muddles":
            gravity = gravity / 2 if len(view.turns) % 2 else gravity * math.pi
        return {f"report {min(gravity, 9999):.2f}": 1.0}


BEFORE = Physicist("physicist, times once", {"many": 0.12, "two": 0.23, "one": 0.38, "muddles": 0.25, "handbook": 0.02})
AFTER = Physicist("physicist, repeats and averages", {"many": 0.86, "two": 0.06, "one": 0.02, "muddles": 0.04, "handbook": 0.02})
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ()
