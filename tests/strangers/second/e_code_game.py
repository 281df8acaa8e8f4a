"""A guessing game: find a code of five letters from A to G; each guess is answered by how many letters stand right and
how many more are in the code.

The skill: guess only codes that agree with every answer so far. No shortcut is taken. The early player mostly
uses the last answer alone, or none.
"""

import copy
import itertools
import random
import re
from functools import lru_cache

import numpy as np

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

LETTERS, LENGTH, TURNS = "ABCDEFG", 5, 7
CODES = np.array(list(itertools.product(range(7), repeat=LENGTH)), dtype=np.int8)  # 16,807
FIRST = ("AABBC", "ABCDE", "CCDDE", "FFGGA")


def answer(code, guess):
    placed = sum(a == b for a, b in zip(code, guess))
    common = sum(min(code.count(letter), guess.count(letter)) for letter in LETTERS)
    return placed, common - placed


class World:
    name = "code-game"
    options: dict = {}
    channels = ()
    scrubbed = ()
    needed = ("guess",)

    def __init__(self, **options):
        if options:
            raise UserError(f"code-game has no options, but was given {', '.join(options)}")
        self.state = None

    def without(self, *channels):
        if channels:
            raise UserError(f"code-game has no channel '{channels[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        half = range(split == "held-out", len(CODES), 2)  # a code is in one split alone
        chosen = random.Random(seed).sample(half, min(number, len(half)))
        return tuple(f"{split}-{random.Random(which).randrange(10**6):06d}-{which}" for which in sorted(chosen))

    def reset(self, task, seed):
        self.state = {"task": task, "turns": 0, "last": ""}
        return Observation(
            text=f"I have a code of {LENGTH} letters from A to G; letters may repeat. Find it in {TURNS} guesses.",
            system="Write `guess LETTERS`, for example: guess AABBC",
        )

    def kinds(self, action):
        return ("guess" if re.fullmatch(r"guess [A-G]{5}", action.strip()) else "invalid",)

    def step(self, action):
        now, (kind,) = self.state, self.kinds(action)
        now["turns"] += 1
        said, won = "write: guess and five letters from A to G", False
        if kind == "guess":
            now["last"] = action.split()[1]
            placed, elsewhere = answer(self._code(now["task"]), now["last"])
            said, won = f"{placed} in place, {elsewhere} elsewhere", placed == LENGTH
        if won or now["turns"] >= TURNS:
            return StepResult(
                observation=said, kinds=(kind,), rewards={"found": float(won)}, outcome=float(won), terminated=won, truncated=not won,
                submission=now["last"], end_reason="found" if won else "turn limit",
            )
        return StepResult(observation=said, kinds=(kind,))

    def regrade(self, task, submission):
        index = int(task.rsplit("-", 1)[1])
        for letter in reversed(submission):
            if letter not in LETTERS or index % 7 != LETTERS.index(letter):
                return {"outcome": 0.0}
            index //= 7
        return {"outcome": float(len(submission) == LENGTH)}

    def snapshot(self):
        return copy.deepcopy(self.state)

    def restore(self, state):
        self.state = copy.deepcopy(state)

    def _code(self, task):
        return "".join(LETTERS[i] for i in CODES[int(task.rsplit("-", 1)[1])])


COUNTS = np.stack([(CODES == n).sum(1) for n in range(7)], axis=1).astype(np.int8)


@lru_cache(maxsize=20_000)
def agreeing(turns):
    """Which codes agree with these guesses and answers."""
    if not turns:
        return np.arange(len(CODES))
    left, (guess, placed, elsewhere) = agreeing(turns[:-1]), turns[-1]
    code = np.array([LETTERS.index(letter) for letter in guess], dtype=np.int8)
    same = (CODES[left] == code).sum(1)
    common = np.minimum(COUNTS[left], np.bincount(code, minlength=7).astype(np.int8)).sum(1)
    return left[(same == placed) & (common - same == elsewhere)]


@lru_cache(maxsize=20_000)
def fitting(turns):
    """A few of them, from all over the list."""
    left = agreeing(turns)
    return ["".join(LETTERS[n] for n in CODES[row]) for row in left[:: max(1, len(left) // 12)][:12]]


class Player:
    def __init__(self, name, moods):
        self.moods, self.identity = moods, f"{name} {sorted(moods.items())}"

    def act(self, view):
        try:
            texts = self.plan(view)
            return {text: chance / sum(texts.values()) for text, chance in texts.items()}
        except Exception:  # texts that it cannot make sense of: a guess
            return {"guess ABCDE": 0.5, "guess DDEEF": 0.5}

    def plan(self, view):
        if not view.turns:
            return {f"guess {code}": 0.25 for code in FIRST}
        turns = tuple((said.split()[1], *map(int, re.findall(r"\d", back))) for said, back in view.turns)
        codes = fitting({"all": turns, "two": turns[-2:], "last": turns[-1:]}[view.mood])
        return {f"guess {code}": 1 / len(codes) for code in codes}


BEFORE = Player("player, early", {"all": 0.24, "two": 0.36, "last": 0.40})
AFTER = Player("player, late", {"all": 0.88, "two": 0.08, "last": 0.04})
TRUTH = "honest"
SHARE = 0.0
ALLOW = ()
ACCEPT = ("scrubbing", "sufficiency")
