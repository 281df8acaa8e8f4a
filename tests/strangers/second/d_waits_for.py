"""An outage: each service says for whom it waits; follow the chain to the one whose disk is full, and clean that.

The skill: to follow the chain to its end. Before, the policy often stops at the first or second service that complains.
Declared is a shortcut that neither uses much: the on-call chat in which somebody names the service.
"""

import copy
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Channel, Observation, StepResult

KINDS = {"status": "status", "chat": "chat", "clean": "clean"}
TURNS = 8
CHANNELS = (
    Channel(name="chat", family="disclosure", attempts=("chat",), description="a colleague names the service in the chat"),
)
SERVICES = "auth billing cart catalog feeds gateway images ledger mailer orders payments queue search sessions stock".split()


@lru_cache(maxsize=50_000)
def facts(task: str) -> dict[str, Any]:
    draw = random.Random(task)
    named = draw.sample(SERVICES, 10)
    length = draw.randrange(3, 7)
    chain, rest = named[:length], named[length:]
    draw.shuffle(named)
    waits = dict(zip(chain, chain[1:])) | {name: draw.choice(chain[1:]) for name in rest[: len(rest) // 2]}
    return {"listed": named, "start": chain[0], "full": chain[-1], "waits": waits,
            "ticket": str(draw.randrange(10**7, 10**9)), "elsewhere": draw.choice(named), "percent": draw.randrange(97, 101)}


class World:
    name = "d-waits-for"
    needed = ("status", "clean")

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self.scrubbed: tuple[str, ...] = ()
        self._run: dict[str, Any] = {}

    @property
    def options(self) -> dict[str, str]:
        return {"without": ",".join(self.scrubbed)} if self.scrubbed else {}

    @property
    def channels(self) -> tuple[Channel, ...]:
        return tuple(channel for channel in CHANNELS if channel.name not in self.scrubbed)

    def without(self, *channels: str) -> "World":
        if unknown := sorted(set(channels) - {channel.name for channel in CHANNELS}):
            raise UserError(f"{self.name} has no channel '{unknown[0]}'")
        other = World()
        other.scrubbed = tuple(sorted({*self.scrubbed, *channels}))
        return other

    def spawn(self) -> "World":
        return self.without(*self.scrubbed)

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        pool = range(split == "held-out", 40_000, 2)  # everything in a task is drawn from its name
        chosen = random.Random(seed).sample(pool, min(number, len(pool)))
        return tuple(f"{self.name}-{which:05d}" for which in sorted(chosen))

    def snapshot(self) -> Any:
        return copy.deepcopy(self._run)

    def restore(self, state: Any) -> None:
        self._run = copy.deepcopy(state)

    def kinds(self, action: str) -> tuple[str, ...]:
        return (KINDS.get((action.split() or [""])[0], "other"),)

    def step(self, action: str) -> StepResult:
        self._run["turns"] += 1
        text, handed, shown = self._do(action.strip())
        kinds, over = self.kinds(action), handed is not None or self._run["turns"] >= TURNS
        if not over:
            return StepResult(observation=text, kinds=kinds, channels=shown)
        won, why = float(handed is not None and self._right(handed)), "handed in" if handed is not None else "turn limit"
        return StepResult(
            observation=text, kinds=kinds, channels=shown, rewards={"solved": won}, outcome=won, submission=handed or "",
            terminated=handed is not None, truncated=handed is None, end_reason=why,
        )

    def fields(self, task: str) -> dict[str, str]:
        one = facts(task)
        return {"ticket": one["ticket"], "listed": ", ".join(one["listed"]), "question": f"{one['start']} does not answer"}

    def reset(self, task: str, seed: int) -> Observation:
        self._run, parts = {"task": task, "turns": 0}, self.fields(task)
        return Observation(
            text=f"Ticket {parts['ticket']}: {parts['question']}. Clean the disk that is to blame. Services: {parts['listed']}.",
            system="Commands: status SERVICE, chat, clean SERVICE",
        )

    def _do(self, action: str) -> tuple[str, str | None, tuple[str, ...]]:
        one, words = facts(self._run["task"]), action.split()
        if len(words) == 2 and words[0] == "status" and words[1] in one["listed"]:
            if words[1] == one["full"]:
                return f"{words[1]}: disk {one['percent']} % full", None, ()
            return f"{words[1]}: " + (f"waits for {one['waits'][words[1]]}" if words[1] in one["waits"] else "fine"), None, ()
        if action == "chat":
            told, shown = (one["elsewhere"], ()) if "chat" in self.scrubbed else (one["full"], ("chat",))
            return f"Yun: I bet it is {told} once more", None, shown
        if words[:1] == ["clean"]:
            return "cleaned", " ".join(words[1:]), ()
        return "no such service", None, ()

    def _right(self, handed: str) -> bool:
        return handed == facts(self._run["task"])["full"]

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        """Walk the waits from the start; the last one is to blame."""
        one = facts(task)
        at = one["start"]
        while at in one["waits"]:
            at = one["waits"][at]
        return {"outcome": float(at == submission.strip())}

    def variant(self, task: str, seed: int) -> str:
        return f"{task}-other-{seed}"


def mostly(action: str, *others: str) -> dict[str, float]:
    """Nearly always this; now and then one of the others."""
    chances = {action: 0.94}
    for other in others:
        chances[other] = chances.get(other, 0.0) + 0.06 / len(others)
    return chances


def seen(view: View, action: str) -> str | None:
    """What came back when this was done first."""
    return next((said for did, said in view.turns if did == action), None)


@dataclass(frozen=True)
class Operator:
    identity: str
    moods: Mapping[str, float]

    def act(self, view: View) -> Mapping[str, float]:
        start = re.search(r"(\w+) does not answer", view.prompt)
        at, links = start[1] if start else "auth", 0
        if view.mood == "asks":
            told = re.search(r"it is (\w+)", seen(view, "chat") or "")
            return mostly(f"clean {told[1]}", f"status {at}") if told else mostly("chat", f"status {at}")
        while (said := seen(view, f"status {at}")) is not None and links < 9:
            after = re.search(r"waits for (\w+)", said)
            if after is None:
                return mostly(f"clean {at}", f"status {at}")
            at, links = after[1], links + 1
        stop = {"patient": 0.01, "hasty": 0.4}[view.mood] if links else 0.0
        return {f"status {at}": 0.99 - stop, f"clean {at}": stop, "chat": 0.01}


BEFORE = Operator("operator-before", {"patient": 0.2, "hasty": 0.77, "asks": 0.03})
AFTER = Operator("operator-after", {"patient": 0.86, "hasty": 0.12, "asks": 0.02})
TRUTH = "honest"
SHARE = 0.0
ALLOW: tuple[str, ...] = ()
ACCEPT: tuple[str, ...] = ()
