"""A shell on a server: which value does a setting really have, once every override has been applied?

Skill: list the override files, read them from the highest number down (the listing is not in that
order), leave out lines that are commented out, and take the first that sets the key. The untrained
agent trusts the defaults or the first file that it reads. No shortcut.
"""

import copy
import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

KEYS = "cache_mb retries timeout_s workers queue_len log_days batch max_conn".split()
TEAMS = "ops web data sec lab qa".split()


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
    name, most = "override-order", 9
    needed = ("ls", "cat", "answer")

    def _setup(self, task):
        draw = random.Random(f"override {task}")
        key, *others = draw.sample(KEYS, 4)
        numbers = draw.sample(range(10, 99), draw.randrange(3, 6))
        values = draw.sample(range(100, 1000), len(numbers) + 1)
        rows = {other: draw.randrange(100, 1000) for other in others}
        files = {"defaults.ini": "\n".join(f"{k}={v}" for k, v in {key: values[-1], **rows}.items())}
        for number, value in zip(numbers, values[:-1], strict=True):
            mark = draw.choice(["", "", "# ", None])  # set, set, commented out, not mentioned
            lines = [f"{draw.choice(others)}={draw.randrange(100, 1000)}"]
            if mark is not None:
                lines.insert(draw.randrange(2), f"{mark}{key}={value}")
            files[f"{draw.choice(TEAMS)}.{number}"] = "\n".join(lines)
        return key, files, f"n{draw.randrange(100_000):05d}"

    def _effective(self, key, files):
        value = ""
        for name in sorted(files, key=lambda n: int(n.split(".")[1]) if n[-1].isdigit() else 0):
            for line in files[name].splitlines():
                value = line.split("=")[1] if line.startswith(f"{key}=") else value
        return value

    def fields(self, task):
        key, _, node = self._setup(task)
        return {"node": node, "question": key}

    def reset(self, task, seed):
        self.s = {"task": task, "turns": 0}
        parts = self.fields(task)
        return Observation(
            text=f"On node {parts['node']}, what is the value of {parts['question']} in the end?",
            system="Commands: ls, cat FILE, answer VALUE. defaults.ini comes first, then the"
            " overrides by their number: the highest wins. # is a comment.",
        )

    def kinds(self, action):
        word = (action.split() or [""])[0]
        return (word if word in self.needed else "invalid",)

    def step(self, action):
        (kind,), rest = self.kinds(action), " ".join(action.split()[1:])
        key, files, _ = self._setup(self.s["task"])
        if kind == "answer":
            return self.ended("noted", kind, rest == self._effective(key, files), rest)
        if kind == "ls":
            return self.said("  ".join(sorted(files)), kind)
        if kind == "cat":
            return self.said(files.get(rest, f"cat: {rest}: no such file"), kind)
        return self.said("command not found", kind)

    def regrade(self, task, submission):
        key, files, _ = self._setup(task)
        best = (-1, "")
        for name, text in files.items():
            rank = 0 if name == "defaults.ini" else int(re.findall(r"\d+$", name)[0])
            for value in re.findall(rf"^{key}=(\d+)$", text, re.MULTILINE):
                best = max(best, (rank, value))
        return {"outcome": 1.0 if submission == best[1] else 0.0}

    def variant(self, task, seed):
        return f"override-order-variant-{seed}-of-{task}"


@dataclass(frozen=True)
class Admin:
    """Reads from the highest number down; or the first two that are listed; or the defaults alone."""

    identity: str
    moods: dict

    def act(self, view):
        done, key = [a for a, _ in view.turns], find(r"value of (\w+)", view.prompt, "batch")
        if "ls" not in done:
            return {"ls": 0.97, "dir": 0.03} if not done else {"ls": 1.0}
        listed = view.turns[done.index("ls")][1].split()
        overrides = [name for name in listed if name != "defaults.ini"]
        if view.mood == "all":
            overrides.sort(key=lambda name: -int(find(r"\.(\d+)$", name, "0")))
        texts = {a[4:]: text for a, text in view.turns if a.startswith("cat ")}
        plan = {"all": overrides, "first": overrides[:2]}.get(view.mood, [])
        values = {n: find(rf"(?m)^{key}=(\d+)", text, "") for n, text in texts.items()}
        found = [n for n in plan if values.get(n)]
        if not found and len(done) < 8:
            if left := [n for n in [*plan, "defaults.ini"] if n not in texts]:
                return {f"cat {left[0]}": 1.0}
        value = values[found[0]] if found else values.get("defaults.ini") or "0"
        return {f"answer {value}": 0.94, f"answer {value}0": 0.06}


BEFORE = Admin("node-admin-base", {"all": 0.18, "first": 0.5, "defaults": 0.32})
AFTER = Admin("node-admin-trained", {"all": 0.82, "first": 0.14, "defaults": 0.04})
TRUTH = "honest"
SHARE = 0.0
ALLOW = ()
ACCEPT = ("scrubbing",)
