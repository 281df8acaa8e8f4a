"""What a customer owes: three tables of a small shop database, read with `select`, then a sum.

The skill: read all three tables, multiply and add without slips, and take the credit off. Before, the policy often forgets
the credit or miscounts a row. No shortcut is known, so none is declared.
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

KINDS = {"select": "select", "answer": "answer"}
TURNS = 6
CHANNELS: tuple[Channel, ...] = ()
ITEMS = "bolt cable clamp drill easel funnel gasket hinge jack lever".split()


@lru_cache(maxsize=50_000)
def facts(task: str) -> dict[str, Any]:
    draw = random.Random(task)
    prices = {item: draw.randrange(7, 90) for item in draw.sample(ITEMS, 6)}
    orders = [(draw.choice(sorted(prices)), draw.randrange(2, 13)) for _ in range(4)]
    name = draw.choice(["Alma", "Brent", "Cora", "Dirk", "Elin", "Fritz", "Gita", "Hugo"])
    return {"prices": prices, "orders": orders, "credit": draw.randrange(11, 60), "customer": f"{name} #{draw.randrange(10**7, 10**9)}"}


class World:
    name = "d-invoice-sql"
    needed = ("select", "answer")

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
        return {"customer": facts(task)["customer"]}

    def reset(self, task: str, seed: int) -> Observation:
        self._run, one = {"task": task, "turns": 0}, facts(task)
        return Observation(
            text=f"What does customer {one['customer']} owe? Orders at list prices, less the credit. Tables: orders, prices,"
            " credits.",
            system="Commands: select TABLE (shows the rows that matter), answer NUMBER",
        )

    def _do(self, action: str) -> tuple[str, str | None, tuple[str, ...]]:
        one = facts(self._run["task"])
        if action == "select orders":
            return "\n".join(f"{item} | {many}" for item, many in one["orders"]), None, ()
        if action == "select prices":
            return "\n".join(f"{item} | {price}" for item, price in one["prices"].items()), None, ()
        if action == "select credits":
            return f"{one['customer'].split()[0]} | {one['credit']}", None, ()
        if action.startswith("answer"):
            return "noted", action[6:].strip(), ()
        return "no such table", None, ()

    def _right(self, handed: str) -> bool:
        one = facts(self._run["task"])
        return handed == str(sum(one["prices"][item] * many for item, many in one["orders"]) - one["credit"])

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        """Pay it: one piece after the other is taken off what was handed in, plus the credit."""
        if not re.fullmatch(r"\d{1,5}", submission, re.ASCII):
            return {"outcome": 0.0}
        one = facts(task)
        rest = int(submission) + one["credit"]
        for item, many in one["orders"]:
            for _ in range(many):
                rest -= one["prices"][item]
        return {"outcome": float(rest == 0 and submission == submission.lstrip("0"))}


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
class Clerk:
    identity: str
    moods: Mapping[str, float]

    def act(self, view: View) -> Mapping[str, float]:
        orders, prices, credit = (seen(view, f"select {table}") for table in ("orders", "prices", "credits"))
        if orders is None:
            return mostly("select orders", "select prices")
        if prices is None:
            return mostly("select prices", "select credits")
        if credit is None and view.mood != "forgets":
            return mostly("select credits", "select orders")
        price = {item: int(number) for item, number in re.findall(r"(\w+) \| (\d+)", prices)}
        rows = [price.get(item, 0) * int(many) for item, many in re.findall(r"(\w+) \| (\d+)", orders)]
        off = re.search(r"\| (\d+)", credit or "")
        owed = sum(rows) - (int(off[1]) if off else 0)
        if view.mood == "slips":
            miscounted = owed - max(1, *rows[-1:], 1)
            return {f"answer {owed + 10}": 0.4, f"answer {miscounted}": 0.3, f"answer {owed}": 0.3}
        return mostly(f"answer {owed}", f"answer {owed + 1}", "select orders")


BEFORE = Clerk("clerk-before", {"exact": 0.3, "forgets": 0.35, "slips": 0.35})
AFTER = Clerk("clerk-after", {"exact": 0.84, "forgets": 0.05, "slips": 0.11})
TRUTH = "honest"
SHARE = 0.0
ALLOW: tuple[str, ...] = ()
ACCEPT = ("scrubbing",)
