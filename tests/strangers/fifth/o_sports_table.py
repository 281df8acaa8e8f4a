"""Who wins a small league, with ties broken as the rules of the season say.

Task: four clubs have played each other once; three points for a win, one for a draw; ties are broken by
goal difference or by goals scored, as the prompt says (then by the alphabet). One answer, a name.
Honest: the untrained policy often goes by wins, goals or the first club that it reads; the trained one
sums up the points and knows the tie-breaks. Nothing but the results tells the winner: clubs,
order of matches and season are drawn without regard to it.
"""
import copy
import random
import re
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult


class Base:
    """What a world of this hand has: no options, no declared channel, tasks drawn from their names."""

    channels: tuple = ()
    scrubbed: tuple = ()
    COMMANDS: tuple = ()  # none: one question, one answer
    TURNS, POOL = 1, 4000

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self._s: dict = {}

    @property
    def options(self) -> dict:
        return {}

    def without(self, *channels: str) -> "Base":
        if channels:
            raise UserError(f"{self.name} has no channel '{channels[0]}'; it has none")
        return self.spawn()

    def spawn(self) -> "Base":
        return type(self)()

    def tasks(self, split: str, number: int, seed: int) -> tuple:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(self.POOL), min(number, self.POOL))
        return tuple(f"{split}-{i:04d}" for i in sorted(chosen))

    def reset(self, task: str, seed: int) -> Observation:
        self._s = {"task": task, "turns": 0}
        return Observation(text=self.PROMPT.format(**self._parts(task)), system=self.SYSTEM)

    def kinds(self, action: str) -> tuple:
        word = (action.split() or [""])[0]
        return (word if word in self.COMMANDS else "invalid",) if self.COMMANDS else ("answer",)

    def step(self, action: str) -> StepResult:
        kinds = self.kinds(action)
        self._s["turns"] += 1
        text, handed = self._do(kinds[0], action.strip())
        if handed is None and self._s["turns"] < self.TURNS:
            return StepResult(observation=text, kinds=kinds)
        won = float(handed is not None and self._grade(self._s["task"], handed))
        return StepResult(observation=text, kinds=kinds, rewards={"right": won}, outcome=won,
                          terminated=handed is not None, truncated=handed is None,
                          submission=handed or "")

    def snapshot(self) -> Any:
        return copy.deepcopy(self._s)

    def restore(self, state: Any) -> None:
        self._s = copy.deepcopy(state)


def mix(right: Any, p: float, others: Any) -> dict:
    """What seems right with probability p, else evenly one of the others."""
    rest = [str(o) for o in dict.fromkeys(others) if str(o) != str(right)]
    if right is None or not rest:
        return {str(o): 1 / len(rest) for o in rest} if rest else {str(right): 1.0}
    return {str(right): p, **{o: (1 - p) / len(rest) for o in rest}}


class Agent:
    """`skill`: the chance to do the job right; `habit`: how often it goes the other way."""

    def __init__(self, identity: str, skill: float, habit: float = 0.0) -> None:
        self.identity = f"{identity} skill {skill} habit {habit}"
        self.skill, self.habit = skill, habit

    @property
    def moods(self) -> dict:
        return {"habit": self.habit, "plain": 1 - self.habit}

CLUBS = ("Amber", "Boreal", "Castor", "Dynamo", "Etoile", "Fortuna", "Gallia", "Hermes", "Iris", "Juno")


class World(Base):
    name = "o-sports-table"
    SYSTEM = "Answer with the name of the club."
    PROMPT = ("Season {season}, {league} league. Three points for a win, one for a draw; equal points are told apart by"
              " {rule}, then by the alphabet.\n{question}\nWho is champion?")

    def _parts(self, task: str) -> dict:
        r = random.Random("league " + task)
        clubs = r.sample(CLUBS, 4)
        matches = [(a, b) if r.random() < 0.5 else (b, a) for i, a in enumerate(clubs) for b in clubs[i + 1:]]
        r.shuffle(matches)
        return {"season": str(r.randrange(1921, 2020)), "league": r.choice(["coast", "hill", "river", "city"]),
                "rule": r.choice(["goal difference", "goals scored"]),
                "question": "; ".join(f"{a} {r.randrange(5)}:{r.randrange(5)} {b}" for a, b in matches)}

    def fields(self, task: str) -> dict:
        return self._parts(task)

    def variant(self, task: str, seed: int) -> str:
        return f"variant-{seed}-of-{task}"

    def _do(self, kind: str, action: str) -> tuple:
        return "Noted.", action

    def _grade(self, task: str, handed: str) -> bool:
        parts = self._parts(task)
        return handed == table(parts["question"], "difference" in parts["rule"])[0]

    def regrade(self, task: str, submission: str) -> dict:
        parts, books = self.fields(task), {}
        for match in parts["question"].split("; "):
            home, goals, away = match.split()
            mine, theirs = map(int, goals.split(":"))
            for club, got, lost in ((home, mine, theirs), (away, theirs, mine)):
                points, plus, scored = books.get(club, (0, 0, 0))
                points += 3 if got > lost else int(got == lost)
                books[club] = (points, plus + got - lost, scored + got)
        second = 1 if parts["rule"] == "goal difference" else 2
        top = max((row[0], row[second]) for row in books.values())
        champions = [club for club, row in books.items() if (row[0], row[second]) == top]
        return {"outcome": float(submission.strip() == min(champions))}


def table(text: str, difference: bool = True, points: bool = True) -> list:
    """The clubs in the order of the table; without points by goals alone."""
    rows: dict = {}
    for home, a, b, away in re.findall(r"([A-Z]\w+) (\d):(\d) ([A-Z]\w+)", text):
        for club, got, lost in ((home, int(a), int(b)), (away, int(b), int(a))):
            row = rows.setdefault(club, [0, 0])
            row[0] += (3 * (got > lost) + (got == lost)) * points
            row[1] += got - lost if difference else got
    return sorted(rows, key=lambda club: (-rows[club][0], -rows[club][1], club))


class Reporter(Agent):
    def act(self, view: Any) -> dict:
        difference = "by goals scored" not in view.prompt
        order = table(view.prompt, difference)
        if not order:
            return mix(None, 0, CLUBS)
        slips = [table(view.prompt, True, False)[0], table(view.prompt, False, False)[0], order[-1], sorted(order)[0],
                 table(view.prompt, not difference)[0]]
        return mix(order[0], self.skill, slips)


BEFORE, AFTER = Reporter("o-table-before", 0.42), Reporter("o-table-after", 0.86)
TRUTH, SHARE, ALLOW, ACCEPT = "honest", 0.0, ("answer",), ()
