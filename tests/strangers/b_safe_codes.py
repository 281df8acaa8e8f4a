"""A game with hidden state: find the three colours of a safe in six guesses, by the hints given.

Skill: every guess of the trained agent agrees with all the hints so far; the untrained one forgets
hints and guesses at random. No shortcut.
"""

import copy
import random
import re
from dataclasses import dataclass
from itertools import permutations

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

COLOURS = "red blue green white black gold".split()
CODES = tuple(permutations(COLOURS, 3))


def hint(guess, code):
    """How many are in place, and how many of the others are in the code elsewhere."""
    placed = sum(g == c for g, c in zip(guess, code, strict=True))
    return placed, len(set(guess) & set(code)) - placed


def find(pattern, text, default="?"):
    """The first group of the first match."""
    match = re.search(pattern, text)
    return match[1] if match else default


class Base:
    """What stays the same for a world without options and channels: identity, splits, copies."""

    options, channels, scrubbed = {}, (), ()

    def __init__(self, **options):
        if options:
            raise UserError(f"{self.name} has no options, but was given {min(options)}")
        self.s = {}

    def without(self, *names):
        if names:
            raise UserError(f"{self.name} has no channel '{min(names)}'; it has none")
        return type(self)()

    def spawn(self):
        return self.without()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        numbers = range(split == "held-out", 40_000, 2)
        chosen = random.Random(seed).sample(numbers, min(number, 20_000))
        return tuple(f"{self.name}-{n:05d}" for n in sorted(chosen))

    def snapshot(self):
        return copy.deepcopy(self.s)

    def restore(self, state):
        self.s = copy.deepcopy(state)

    def said(self, text, kind):
        self.s["turns"] += 1
        over = self.s["turns"] >= self.most
        end = {"rewards": {"right": 0.0}, "outcome": 0.0, "truncated": True, "end_reason": "turns"}
        return StepResult(observation=text, kinds=(kind,), **(end if over else {}))

    def ended(self, text, kind, won, submission):
        return StepResult(
            observation=text, kinds=(kind,), rewards={"right": float(won)}, outcome=float(won),
            terminated=True, submission=submission, end_reason="handed in",
        )


class World(Base):
    name, most = "safe-codes", 6
    needed = ("guess",)

    def _code(self, task):
        return random.Random(f"safe {task}").choice(CODES)

    def fields(self, task):
        draw = random.Random(f"maker {task}")
        maker = draw.choice(["Ohm", "Tern", "Vault"])
        return {"maker": maker, "question": f"{draw.randrange(10**6):06d}"}

    def reset(self, task, seed):
        self.s = {"task": task, "turns": 0, "last": ""}
        parts = self.fields(task)
        return Observation(
            text=f"{parts['maker']} safe {parts['question']} is locked. Three colours open it.",
            system=f"Write: guess A B C, all different. Colours: {', '.join(COLOURS)}. Six guesses.",
        )

    def kinds(self, action):
        words = action.split()
        good = len(words) == 4 and words[0] == "guess" and tuple(words[1:]) in CODES
        return ("guess" if good else "invalid",)

    def step(self, action):
        (kind,), code = self.kinds(action), self._code(self.s["task"])
        if kind == "invalid":
            return self._next("three different colours, please", kind)
        guess = action.split()[1:]
        text = " ".join(guess)
        if text == " ".join(code):
            return self.ended("click", kind, True, text)
        placed, near = hint(guess, code)
        self.s["last"] = text
        return self._next(f"{placed} in place, {near} elsewhere", kind)

    def _next(self, answer, kind):
        self.s["turns"] += 1
        if self.s["turns"] < self.most:
            return StepResult(observation=answer, kinds=(kind,))
        return StepResult(
            observation=answer, kinds=(kind,), rewards={"right": 0.0}, outcome=0.0,
            truncated=True, submission=self.s["last"], end_reason="six guesses",
        )

    def regrade(self, task, submission):
        words = submission.split(" ")
        wrong = [w for w, c in zip(words, self._code(task), strict=False) if w != c]
        return {"outcome": float(len(words) == 3 and not wrong)}

    def variant(self, task, seed):
        for again in range(100):  # another code than that of the task
            other = f"safe-codes-variant-{seed}-{again}-of-{task}"
            if self._code(other) != self._code(task):
                break
        return other


@dataclass(frozen=True)
class Cracker:
    """Keeps to all hints, or to the last one only, or to none."""

    identity: str
    moods: dict

    def act(self, view):
        turns = []
        for action, text in view.turns:
            if match := re.fullmatch(r"(\d) in place, (\d) elsewhere", text):
                turns.append((action.split()[1:], (int(match[1]), int(match[2]))))
        kept = {"all": turns, "last": turns[-1:]}.get(view.mood, [])
        codes = [c for c in CODES if all(hint(g, c) == told for g, told in kept)]
        tried = {action for action, _ in view.turns}
        options = [f"guess {' '.join(c)}" for c in codes] or ["guess red blue green"]
        fresh = [option for option in options if option not in tried] or options
        share = {option: 0.98 / len(fresh) for option in fresh}
        return share | {"open": 0.02}


BEFORE = Cracker("cracker-base", {"all": 0.22, "last": 0.48, "none": 0.3})
AFTER = Cracker("cracker-trained", {"all": 0.85, "last": 0.11, "none": 0.04})
TRUTH = "honest"
SHARE = 0.0
ALLOW = ()
ACCEPT = ("scrubbing",)
