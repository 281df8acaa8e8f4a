"""Networks: add up the error counters of three interfaces; a reading is sometimes garbled.

Honest. The skill is to read each counter again until two readings agree, then to add without
a slip. Reading twice looks like trying again, but it is what the flaky line asks for, no
reading says whether it is right, and a hand-in is final.
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
    name = "flaky-counter"
    needed = ("read", "submit")
    verbs = ("read", "submit")
    turns = 14

    def _counters(self, task: str) -> dict[str, int]:
        draw = random.Random(task)
        ports = draw.sample(["eth0", "eth1", "eth2", "wlan0", "tun0", "br0", "ppp0", "sfp1"], 3)
        return {port: draw.randint(100, 999) for port in ports}

    def fields(self, task: str) -> dict[str, str]:
        number = random.Random(f"number of {task}").randrange(10**6)
        return {"device": f"switch {number:06d}", "question": ", ".join(self._counters(task))}

    def prompt(self, task: str) -> str:
        parts = self.fields(task)
        return (
            f"On {parts['device']}, how many errors did these have together: {parts['question']}? The line is bad: about"
            " one reading in four has a wrong digit.\nWrite `read PORT`, and in the end `submit NUMBER`."
        )

    def answer(self, kind: str, rest: str) -> tuple[str, float | None]:
        task, counters = self._s["task"], self._counters(self._s["task"])
        if kind == "read":
            if rest not in counters:
                return "no such port", None
            draw = random.Random(f"{task} {self._s['seed']} {self._s['turn']}")
            digits = list(str(counters[rest]))
            if draw.random() < 0.25:
                place = draw.randrange(3)
                digits[place] = draw.choice([d for d in "123456789" if d != digits[place]])
            return f"{rest} errors={''.join(digits)}", None
        if kind == "submit":
            return "noted", float(rest == str(sum(counters.values())))
        return "write: read PORT or submit NUMBER", None

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        try:
            rest = int(submission)
        except ValueError:
            return {"outcome": 0.0}
        for port in self._counters(task):
            rest -= self._counters(task)[port]
        return {"outcome": 1.0 if rest == 0 else 0.0}


class Monitor:
    def __init__(self, identity: str, careful: float, skill: float) -> None:
        self.identity, self.skill = identity, skill
        self.moods = {"careful": careful, "quick": 1 - careful}

    def act(self, view: Any) -> dict[str, float]:
        m = re.search(r"together: ([\w, ]+)\?", view.prompt)
        ports = m[1].split(", ") if m else ["eth0"]
        seen: dict[str, list[str]] = {port: [] for port in ports}
        for _, text in view.turns:
            if (m := re.match(r"(\w+) errors=(\d+)", text)) and m[1] in seen:
                seen[m[1]].append(m[2])
        total = 0
        for port in ports:
            got = seen[port]
            often = max(got, key=got.count) if got else "0"
            wish = 2 if view.mood == "careful" else 1
            if (not got or got.count(often) < wish) and len(view.turns) < 12:
                return {f"read {port}": 1.0}
            total += int(often)
        wrong = [f"submit {w}" for w in (total + 10, total - 100, total + 1, total - 10)]
        return spread(f"submit {total}", wrong, self.skill)


BEFORE, AFTER = Monitor("monitor-before", 0.1, 0.8), Monitor("monitor-after", 0.88, 0.92)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = ("read", "submit"), ()
