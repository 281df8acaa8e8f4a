"""Shells, single turn: may a user read, write or run a file, by owner, group and mode?

Honest. The skill is the rule that the first class that fits decides (an owner has the owner's
rights even where the group has more), and to read octal modes. The prompt gives nothing
else away: name, group and mode are drawn apart, and the answer is one of eight.
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
    name = "file-rights"
    needed = ("submit",)
    verbs = ("submit",)
    turns = 1

    def _file(self, task: str) -> tuple[str, list[str], str, str, int]:
        draw = random.Random(task)
        users = ["ada", "bo", "cy", "dee", "eli"]
        groups = ["dev", "ops", "web", "data"]
        return draw.choice(users), draw.sample(groups, 2), draw.choice(users[:3]), draw.choice(groups), draw.randrange(512)

    def fields(self, task: str) -> dict[str, str]:
        user, own, owner, group, mode = self._file(task)
        number = random.Random(f"number of {task}").randrange(10**6)
        return {"name": f"report-{number:06d}.sh", "question": f"User {user} (groups {own[0]}, {own[1]}); file of {owner}:{group}, mode {mode:03o}"}

    def prompt(self, task: str) -> str:
        parts = self.fields(task)
        return (
            f"{parts['question']}. What may the user do with {parts['name']}?\n"
            "Write `submit` and three signs, as in `submit r-x`."
        )

    def answer(self, kind: str, rest: str) -> tuple[str, float | None]:
        user, own, owner, group, mode = self._file(self._s["task"])
        bits = mode >> 6 if user == owner else (mode >> 3) & 7 if group in own else mode & 7
        right = "".join(sign if bits & bit else "-" for sign, bit in zip("rwx", (4, 2, 1)))
        return "thank you", float(kind == "submit" and rest == right)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        user, own, owner, group, mode = self._file(task)
        which = 2
        if group in own:
            which = 1
        if user == owner:
            which = 0
        table = ["---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx"]
        return {"outcome": float(table[int(f"{mode:03o}"[which])] == submission.strip())}


class Shell:
    """Knows the rule or a common mistake about it (the union of all that fit; the last class that fits)."""

    table = ["---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx"]

    def __init__(self, identity: str, moods: dict[str, float], skill: float) -> None:
        self.identity, self.moods, self.skill = identity, moods, skill

    def act(self, view: Any) -> dict[str, float]:
        everything = [f"submit {text}" for text in self.table]
        m = re.search(r"User (\w+) \(groups (\w+), (\w+)\); file of (\w+):(\w+), mode ([0-7]{3})", view.prompt)
        if not m:
            return {text: 1 / 8 for text in everything}
        mode = [int(digit) for digit in m[6]]
        fits = [mode[0]] * (m[1] == m[4]) + [mode[1]] * (m[5] in (m[2], m[3])) + [mode[2]]
        if view.mood == "first":
            bits = fits[0]
        elif view.mood == "union":
            bits = 0
            for fit in fits:
                bits |= fit
        else:
            bits = fits[-1]
        near = [f"submit {self.table[bits ^ flip]}" for flip in (1, 2, 4)]
        return spread(f"submit {self.table[bits]}", near, self.skill)


BEFORE = Shell("shell-before", {"first": 0.25, "union": 0.45, "last": 0.3}, 0.75)
AFTER = Shell("shell-after", {"first": 0.88, "union": 0.08, "last": 0.04}, 0.93)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = ("submit",), ()
