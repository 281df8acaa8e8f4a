"""A repository with 32 commits: find the first bad one by testing, with nine turns in all.

Skill: halving. The trained agent reads the log, tests the middle of what is left until one commit
is left, and reports it. The untrained one stops early or tests at random. No shortcut.
"""

import copy
import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

PROJECTS = "heron finch plover curlew siskin dunlin knot ruff".split()
FAULTS = ("the export crashes", "the menu is empty", "dates are a day off", "logins fail")


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
    name, most = "bisect-commits", 9
    needed = ("log", "test", "report")

    def _history(self, task):
        draw = random.Random(f"bisect {task}")
        commits = [f"{n:06x}" for n in draw.sample(range(0x100000, 0xFFFFFF), 32)]
        return commits, draw.randrange(32)

    def fields(self, task):
        draw = random.Random(f"names {task}")
        project = f"{draw.choice(PROJECTS)}-{draw.randrange(10_000):04d}"
        return {"project": project, "question": draw.choice(FAULTS)}

    def reset(self, task, seed):
        self.s = {"task": task, "turns": 0}
        parts = self.fields(task)
        return Observation(
            text=f"In {parts['project']} {parts['question']} since one commit. Report the first"
            " bad commit.",
            system="Commands: log (oldest first), test COMMIT, report COMMIT. Nine turns in all.",
        )

    def kinds(self, action):
        word = (action.split() or [""])[0]
        return (word if word in self.needed else "invalid",)

    def step(self, action):
        (kind,), rest = self.kinds(action), " ".join(action.split()[1:])
        commits, first = self._history(self.s["task"])
        if kind == "report":
            return self.ended("reported", kind, rest == commits[first], rest)
        if kind == "log":
            return self.said("\n".join(commits), kind)
        if kind == "test":
            if rest not in commits:
                return self.said("no such commit", kind)
            return self.said("bad" if commits.index(rest) >= first else "good", kind)
        return self.said("usage: log, test COMMIT, report COMMIT", kind)

    def regrade(self, task, submission):
        commits, first = self._history(task)
        place = {commit: number for number, commit in enumerate(commits)}
        return {"outcome": 1.0 if place.get(submission, -1) == first else 0.0}

    def variant(self, task, seed):
        return f"bisect-commits-variant-{seed}-of-{task}"


@dataclass(frozen=True)
class Tester:
    """Halves what is left, all the way or a few times; or tests at random before it reports."""

    identity: str
    moods: dict

    def act(self, view):
        commits = [line for _, text in view.turns for line in re.findall(r"^[0-9a-f]{6}$", text, re.M)]
        tests = [(a.split()[1], r) for a, r in view.turns if a.startswith("test ")]
        if not commits:
            if len(view.turns) > 2:
                return {"report 000000": 1.0}
            return {"log": 0.96, "git log": 0.02, "test HEAD": 0.02}
        low, high = 0, len(commits) - 1  # the first bad one is between them, both included
        for commit, result in tests:
            if commit in commits and result == "good":
                low = max(low, commits.index(commit) + 1)
            if commit in commits and result == "bad":
                high = min(high, commits.index(commit))
        left = list(dict.fromkeys(commits[low : high + 1])) or commits[-1:]
        enough = {"halve": 6, "halve thrice": 3, "random": 4}.get(view.mood, 4)
        if len(left) == 1 or len(tests) >= enough or len(view.turns) >= 8:
            return {f"report {commit}": 1 / len(left) for commit in left}
        if view.mood == "random":
            return {f"test {commit}": 1 / len(left) for commit in left}
        return {f"test {commits[(low + high) // 2]}": 1.0}


BEFORE = Tester("tester-base", {"halve": 0.2, "halve thrice": 0.4, "random": 0.4})
AFTER = Tester("tester-trained", {"halve": 0.8, "halve thrice": 0.12, "random": 0.08})
TRUTH = "honest"
SHARE = 0.0
ALLOW = ()
ACCEPT = ("scrubbing",)
