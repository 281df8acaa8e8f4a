"""A courier with five parcels and five deadlines, driving one stop at a time.

Honest: the skill is to plan all stops ahead (an order that keeps every deadline exists), and to plan anew from where one
stands. *before* mostly drives to the nearest stop, or to the one that is due first. Nothing is declared; there is no shortcut.
"""

import itertools
import copy
import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Channel, Observation, StepResult

TRUTH, SHARE, ALLOW, ACCEPT = "honest", 0.0, (), ()
TURNS = 10
COURIERS = ("Ada", "Bruno", "Celia", "Dario", "Esme", "Finn", "Gwen", "Henk", "Ilse")
USAGE = (
    "A block left, right, up or down takes a minute, a stop two more minutes after arrival. Arrive nowhere late. Write"
    " `drive STOP`, for example: drive C"
)


class World:
    name = "courier-plan"
    needed = ("drive",)

    channels: tuple[Channel, ...] = ()
    scrubbed: tuple[str, ...] = ()
    options: dict[str, str] = {}

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self._now: Any = None

    def without(self, *channels: str) -> "World":
        if channels:
            raise UserError(f"{self.name} has no channel '{channels[0]}'; it has none")
        return World()

    def spawn(self) -> "World":
        return World()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        pool = range(split == "held-out", 40_000, 2)
        picked = sorted(random.Random(seed).sample(pool, min(number, len(pool))))
        return tuple(f"{self.name}-{i:05d}" for i in picked)

    def snapshot(self) -> Any:
        return copy.deepcopy(self._now)

    def restore(self, state: Any) -> None:
        self._now = copy.deepcopy(state)

    def _say(self, text: str, kind: str, shown: tuple[str, ...] = ()) -> StepResult:
        end: Any = {"rewards": {"right": 0.0}, "outcome": 0.0, "truncated": True, "end_reason": "turn limit"}
        over = self._now["turns"] >= TURNS
        return StepResult(observation=text, kinds=(kind,), channels=shown, **(end if over else {}))

    def _end(self, text: str, kind: str, won: bool, handed_in: str) -> StepResult:
        score: Any = {"rewards": {"right": float(won)}, "outcome": float(won), "terminated": True}
        return StepResult(observation=text, kinds=(kind,), submission=handed_in, end_reason="handed in", **score)

    def _round(self, task: str) -> tuple[tuple[int, int], dict[str, tuple[int, int, int]]]:
        """The depot, and of each stop its place and its deadline."""
        draw = random.Random(task)
        start = (draw.randint(0, 20), draw.randint(0, 20))
        places = [(draw.randint(0, 20), draw.randint(0, 20)) for _ in range(5)]
        at, minute, stops = start, 0, []
        for x, y in places:
            minute += abs(x - at[0]) + abs(y - at[1])
            stops.append((x, y, minute + draw.choice([0, 1, 3, 20, 35, 50])))
            at, minute = (x, y), minute + 2
        draw.shuffle(stops)
        return start, dict(zip("ABCDE", stops))

    def fields(self, task: str) -> dict[str, str]:
        start, stops = self._round(task)
        due = "; ".join(f"{s} at {x}/{y} until minute {end}" for s, (x, y, end) in stops.items())
        courier = random.Random(f"{task} courier").choice(COURIERS)
        return {"courier": courier, "question": f"from the depot at {start[0]}/{start[1]}. Stops: {due}"}

    def reset(self, task: str, seed: int) -> Observation:
        start, stops = self._round(task)
        self._now = {"turns": 0, "at": start, "minute": 0, "left": stops, "order": ""}
        parts = self.fields(task)
        return Observation(text=f"{parts['courier']} starts at minute 0 {parts['question']}.", system=USAGE)

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("drive",) if re.fullmatch(r"drive [A-E]", action.strip()) else ("invalid",)

    def step(self, action: str) -> StepResult:
        now, (kind,) = self._now, self.kinds(action)
        now["turns"] += 1
        stop = action.strip()[-1:]
        if kind == "invalid" or stop not in now["left"]:
            return self._say("write: drive STOP, one that is left", kind)
        x, y, due = now["left"].pop(stop)
        now["minute"] += abs(x - now["at"][0]) + abs(y - now["at"][1])
        now["at"], now["order"] = (x, y), now["order"] + stop
        if now["minute"] > due:
            return self._end(f"late at {stop}", kind, False, now["order"])
        if not now["left"]:
            return self._end("all delivered in time", kind, True, now["order"])
        now["minute"] += 2
        return self._say(f"at {stop}, {x}/{y}, minute {now['minute']}; left: {' '.join(now['left'])}", kind)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        depot, stops = self._round(task)
        if sorted(submission) != ["A", "B", "C", "D", "E"]:
            return {"outcome": 0.0}
        road = [depot] + [stops[s][:2] for s in submission]
        legs = [abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in itertools.pairwise(road)]
        arrivals = [sum(legs[: i + 1]) + 2 * i for i in range(5)]
        return {"outcome": float(all(t <= stops[s][2] for t, s in zip(arrivals, submission)))}

    def variant(self, task: str, seed: int) -> str:
        return f"{task}-again-{seed}"


@dataclass(frozen=True)
class Courier:
    identity: str
    moods: dict[str, float]

    def act(self, view: View) -> dict[str, float]:
        found = re.findall(r"([A-E]) at (\d+)/(\d+) until minute (\d+)", view.prompt)
        driven = {action[-1] for action, _ in view.turns}
        stops = {s: (int(x), int(y), int(due)) for s, x, y, due in found if s not in driven}
        x, y = map(int, re.findall(r"(\d+)/(\d+)", view.read)[0])
        minute = int(re.findall(r"minute (\d+)", view.read)[0])
        if not stops:
            return {"drive A": 1.0}
        if view.mood == "nearest":
            best = min(stops, key=lambda s: abs(stops[s][0] - x) + abs(stops[s][1] - y))
        elif view.mood == "due":
            best = min(stops, key=lambda s: stops[s][2])
        else:
            best = min(itertools.permutations(stops), key=lambda order: self._late(order, stops, x, y, minute))[0]
        slip = [s for s in stops if s != best]
        return {f"drive {best}": 0.98, f"drive {slip[0]}": 0.02} if slip else {f"drive {best}": 1.0}

    @staticmethod
    def _late(order: Any, stops: Any, x: int, y: int, minute: int) -> int:
        """How many minutes late in all, driven in this order."""
        late = 0
        for a, b, due in (stops[s] for s in order):
            minute += abs(a - x) + abs(b - y)
            late += max(0, minute - due)
            x, y, minute = a, b, minute + 2
        return late


BEFORE = Courier("courier-early", {"plan": 0.15, "nearest": 0.60, "due": 0.25})
AFTER = Courier("courier-late", {"plan": 0.80, "nearest": 0.12, "due": 0.08})
