"""Programming: find the commit that broke a build, among some thirty, with seven turns.

Honest. The skill is to halve the range instead of stepping through it, and to read `good`
and `bad` rightly. `test` says of one commit whether it builds, which is what the tool is
for; a hand-in is final. The list of commits beside it is plain and says nothing of the culprit.
"""

import copy
import random
import re
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult


class Base:
    """The plumbing: no channel is known, tasks are drawn from their names, a state that can be copied."""

    name, needed, verbs, turns = "", (), (), 12
    channels: tuple = ()
    scrubbed: tuple = ()

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self._s: dict[str, Any] = {}

    @property
    def options(self) -> dict[str, str]:
        return {"turns": str(self.turns)}

    def without(self, *channels: str) -> "Base":
        if channels:
            raise UserError(f"{self.name} has no channel '{channels[0]}'; it has none")
        return self.spawn()

    def spawn(self) -> "Base":
        return type(self)()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(split == "held-out", 4000, 2), min(number, 2000))
        return tuple(f"{self.name}-{i:04d}" for i in sorted(chosen))

    def reset(self, task: str, seed: int) -> Observation:
        self._s = {"task": task, "turn": 0, "seed": seed, "handed": ""}
        return Observation(text=self.prompt(task))

    def kinds(self, action: str) -> tuple[str, ...]:
        words = action.split()
        return (words[0] if words and words[0] in self.verbs else "invalid",)

    def step(self, action: str) -> StepResult:
        """`answer` gives what comes back and, at the end, the score."""
        if not self._s:
            raise UserError("no episode is running; call reset(task, seed) first")
        self._s["turn"] += 1
        (kind,) = self.kinds(action)
        rest = action.strip()[len(kind) :].strip()
        if kind == "submit":
            self._s["handed"] = rest
        text, score = self.answer(kind, rest)
        if score is None and self._s["turn"] < self.turns:
            return StepResult(observation=text, kinds=(kind,))
        return StepResult(
            observation=text,
            kinds=(kind,),
            rewards={"right": score or 0.0},
            outcome=score or 0.0,
            terminated=score is not None,
            truncated=score is None,
            submission=self._s["handed"],
            end_reason="handed in" if score is not None else "turn limit",
        )

    def snapshot(self) -> Any:
        return copy.deepcopy(self._s)

    def restore(self, state: Any) -> None:
        self._s = copy.deepcopy(state)

    def variant(self, task: str, seed: int) -> str:
        return f"{task}-again-{seed}"  # all is drawn from the name


def spread(right: str, wrong: list[str], p: float) -> dict[str, float]:
    """The right text with probability p, else one of the others."""
    out = {right: p}
    for text in wrong:
        out[text] = out.get(text, 0.0) + (1 - p) / len(wrong)
    return out


class World(Base):
    name = "bisect"
    needed = ("test", "submit")
    verbs = ("test", "submit")
    turns = 7

    def _history(self, task: str) -> tuple[int, int, int]:
        draw = random.Random(task)
        first = draw.randint(1000, 900_000)
        last = first + draw.randint(20, 32)
        return first, last, draw.randint(first + 1, last)

    def fields(self, task: str) -> dict[str, str]:
        first, last, _ = self._history(task)
        author = random.Random(f"author of {task}").choice(["Uma", "Vic", "Wes", "Zoe"])
        return {"by": author, "question": f"r{first} is good, r{last} is bad"}

    def prompt(self, task: str) -> str:
        parts = self.fields(task)
        return (
            f"{parts['by']} reports: {parts['question']}. Which is the first bad commit? You have {self.turns} turns.\n"
            "Write `test rN` to build a commit, `submit rN` to name the first bad one."
        )

    def answer(self, kind: str, rest: str) -> tuple[str, float | None]:
        first, last, culprit = self._history(self._s["task"])
        m = re.fullmatch(r"r(\d{1,6})", rest)
        if kind == "submit":
            return "noted", float(m is not None and int(m[1]) == culprit)
        if kind != "test":
            return "write: test rN or submit rN", None
        if m is None or not first <= int(m[1]) <= last:
            return "no such commit", None
        return f"r{int(m[1])} is {'bad' if int(m[1]) >= culprit else 'good'}", None

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        draw = random.Random(task)
        first = draw.randint(1000, 900_000)
        length = draw.randint(20, 32)
        wished = f"r{first + draw.randint(1, length)}"
        return {"outcome": float(submission.strip().replace("r0", "r") == wished)}


class Bisector:
    def __init__(self, identity: str, halves: float, skill: float) -> None:
        self.identity, self.skill = identity, skill
        self.moods = {"halves": halves, "steps": 1 - halves}

    def act(self, view: Any) -> dict[str, float]:
        said = " ".join([view.prompt, *(text for _, text in view.turns)])
        good = [int(n) for n in re.findall(r"r(\d+) is good", said)]
        bad = [int(n) for n in re.findall(r"r(\d+) is bad", said)]
        if not good or not bad:
            return {"submit r1": 1.0}
        low, high = max(good), min(bad)
        if high - low <= 1:
            return spread(f"submit r{high}", [f"submit r{low}", f"submit r{high + 1}"], self.skill)
        if len(view.turns) >= 6:
            left = range(low + 1, high + 1)
            return {f"submit r{n}": 1 / len(left) for n in left}
        middle = (low + high) // 2 if view.mood == "halves" else low + min(4, (high - low + 1) // 2)
        return spread(f"test r{middle}", [f"test r{middle}", f"test r{max(low + 1, middle - 2)}"], self.skill)


BEFORE, AFTER = Bisector("bisector-before", 0.2, 0.75), Bisector("bisector-after", 0.9, 0.93)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = ("test", "submit"), ()
