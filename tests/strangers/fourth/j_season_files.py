"""Points of a club after a season whose results lie in five files, with a sixth file of rulings.

Honest: the skill is to open all the files that the answer needs and to count. *before* often forgets the rulings, or opens
only the first rounds and guesses the rest. Nothing is declared, and there is no shortcut.
"""

import copy
import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Channel, Observation, StepResult

TRUTH, SHARE, ALLOW, ACCEPT = "honest", 0.0, (), ()
TURNS = 9
CLUBS = ("Anvil", "Bishop", "Castor", "Dynamo", "Empor", "Fortuna", "Galaxy", "Hertha", "Iskra", "Juventa", "Kadima")
LEAGUES = ("Coast", "Valley", "Harbour", "Moor", "Lake", "Ridge", "Forest")
FILES = ("round-1", "round-2", "round-3", "round-4", "round-5", "rulings")
USAGE = (
    f"Files: {', '.join(FILES)}. Commands: `open FILE`, `points N` (ends). A win is 3 points, a draw 1; rulings take"
    " points away."
)


class World:
    name = "season-files"
    needed = ("open", "points")

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

    def _season(self, task: str) -> tuple[str, list[list[tuple[str, int, int, str]]], dict[str, int]]:
        draw = random.Random(task)
        clubs = draw.sample(CLUBS, 6)
        asked, rounds = clubs[0], []
        for _ in range(5):
            draw.shuffle(clubs)
            rounds.append([(clubs[i], draw.randint(0, 4), draw.randint(0, 4), clubs[i + 1]) for i in (0, 2, 4)])
        punished = draw.sample([c for c in clubs if c != asked], 1) + [asked] * (draw.random() < 0.6)
        return asked, rounds, {club: draw.randint(1, 3) for club in sorted(punished)}

    def fields(self, task: str) -> dict[str, str]:
        draw = random.Random(f"{task} league")
        season = f"{draw.choice(LEAGUES)} League, season {draw.randint(1900, 2020)}, book {draw.randint(10_000, 99_999)}"
        return {"season": season, "question": f"the points of {self._season(task)[0]}"}

    def reset(self, task: str, seed: int) -> Observation:
        self._now, parts = {"task": task, "turns": 0}, self.fields(task)
        return Observation(text=f"{parts['season']}, final table: state {parts['question']}.", system=USAGE)

    def kinds(self, action: str) -> tuple[str, ...]:
        words = action.split()
        if len(words) == 2 and words[0] == "open" and words[1] in FILES:
            return ("open",)
        return ("points",) if re.fullmatch(r"points -?\d{1,3}", action.strip()) else ("invalid",)

    def step(self, action: str) -> StepResult:
        self._now["turns"] += 1
        (kind,), (asked, rounds, rulings) = self.kinds(action), self._season(self._now["task"])
        if kind == "invalid":
            return self._say("there are: open FILE, points N", kind)
        what = action.split()[1]
        if what == "rulings":
            return self._say("; ".join(f"{club} minus {n}" for club, n in rulings.items()), kind)
        if kind == "open":
            games = rounds[int(what[-1]) - 1]
            return self._say("; ".join(f"{a} {x}-{y} {b}" for a, x, y, b in games), kind)
        points = -rulings.get(asked, 0)
        for a, x, y, b in [game for games in rounds for game in games]:
            points += (3 if x > y else 1 if x == y else 0) if a == asked else 0
            points += (3 if y > x else 1 if x == y else 0) if b == asked else 0
        return self._end("noted", kind, int(what) == points, what)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        asked, rounds, rulings = self._season(task)
        own = [(x, y) if a == asked else (y, x) for games in rounds for a, x, y, b in games if asked in (a, b)]
        wins, draws = sum(x > y for x, y in own), sum(x == y for x, y in own)
        try:
            return {"outcome": float(int(submission) + rulings.get(asked, 0) == 3 * wins + draws)}
        except ValueError:
            return {"outcome": 0.0}

    def variant(self, task: str, seed: int) -> str:
        return f"{task}-again-{seed}"


@dataclass(frozen=True)
class Statistician:
    identity: str
    moods: dict[str, float]

    def act(self, view: View) -> dict[str, float]:
        club = re.findall(r"points of (\w+)", view.prompt)[0]
        wanted = {"all": FILES, "results": FILES[:5], "some": FILES[:3]}[view.mood]
        if len(view.turns) < len(wanted):
            return {f"open {wanted[len(view.turns)]}": 1.0}
        points = 0
        for _, said in view.turns:
            for a, x, y, b in re.findall(r"(\w+) (\d)-(\d) (\w+)", said):
                if club in (a, b):
                    own, other = (int(x), int(y)) if a == club else (int(y), int(x))
                    points += 3 * (own > other) + (own == other)
            points -= sum(int(n) for who, n in re.findall(r"(\w+) minus (\d)", said) if who == club)
        if view.mood == "some":
            points = round(points * 5 / 3)
        return {f"points {points}": 0.96, f"points {points + 1}": 0.04}


BEFORE = Statistician("statistician-early", {"all": 0.18, "results": 0.42, "some": 0.40})
AFTER = Statistician("statistician-late", {"all": 0.83, "results": 0.12, "some": 0.05})
