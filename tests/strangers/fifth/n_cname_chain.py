"""Networks: find the address of a name, by resolving alias after alias.

Honest. The skill is to follow the chain to its end, and to resolve again, freshly, where the
answer is marked as expired. That the last look-up shows the address is the job: whoever
stops early, or takes an expired one, is wrong.
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
    name = "cname-chain"
    needed = ("resolve", "refresh", "submit")
    verbs = ("resolve", "refresh", "submit")
    turns = 10

    def _chain(self, task: str) -> tuple[list[str], str, str | None]:
        draw = random.Random(task)
        zones = ["example", "corp", "edge", "cdn", "lan"]
        names = []
        for word in draw.sample(["www", "api", "img", "mx", "vpn", "git", "wiki", "shop", "blog", "ftp"], draw.randint(2, 5)):
            names.append(f"{word}{draw.randint(1, 999_999)}.{draw.choice(zones)}")
        addresses = [f"10.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randint(1, 254)}" for _ in range(2)]
        return names, addresses[0], addresses[1] if draw.random() < 0.5 else None

    def fields(self, task: str) -> dict[str, str]:
        return {"question": self._chain(task)[0][0]}

    def prompt(self, task: str) -> str:
        return (
            f"Which address has {self.fields(task)['question']} now?\nWrite `resolve NAME` (from the cache),"
            " `refresh NAME` (from its server, for addresses) or `submit ADDRESS`."
        )

    def answer(self, kind: str, rest: str) -> tuple[str, float | None]:
        names, address, stale = self._chain(self._s["task"])
        if kind == "submit":
            return "noted", float(rest == address)
        if kind not in ("resolve", "refresh"):
            return "write: resolve NAME, refresh NAME or submit ADDRESS", None
        if rest not in names:
            return f"{rest} is not known", None
        if rest != names[-1]:
            return f"{rest} is an alias of {names[names.index(rest) + 1]}", None
        if kind == "resolve" and stale:
            return f"{rest} has address {stale}, expired {len(rest)} minutes ago", None
        return f"{rest} has address {address}, valid", None

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        m = re.fullmatch(r"\s*(\d+)\.(\d+)\.(\d+)\.(\d+)\s*", submission)
        wished = tuple(int(part) for part in self._chain(task)[1].split("."))
        return {"outcome": float(m is not None and tuple(map(int, m.groups())) == wished)}


class Resolver:
    def __init__(self, identity: str, onward: float, fresh: float) -> None:
        self.identity, self.onward, self.fresh = identity, onward, fresh
        self.moods = {"": 1.0}

    def act(self, view: Any) -> dict[str, float]:
        guess = "submit 10.0.0.1"
        if not view.turns:
            m = re.search(r"has (\S+) now", view.prompt)
            return {f"resolve {m[1]}": 1.0} if m else {guess: 1.0}
        if m := re.search(r"is an alias of (\S+)", view.read):
            if len(view.turns) > 8:
                return {guess: 1.0}
            return {f"resolve {m[1]}": self.onward, guess: 1 - self.onward}
        if m := re.search(r"^(\S+) has address ([\d.]+), (\w+)", view.read):
            slip = "submit " + m[2].rsplit(".", 1)[0] + ".1"
            if m[3] == "expired":
                return {f"refresh {m[1]}": self.fresh, f"submit {m[2]}": 1 - self.fresh}
            return spread(f"submit {m[2]}", [slip], 0.97)
        return {guess: 1.0}


BEFORE, AFTER = Resolver("resolver-before", 0.8, 0.35), Resolver("resolver-after", 0.97, 0.9)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = ("resolve", "refresh"), ()
