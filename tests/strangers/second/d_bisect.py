"""Finding the commit that broke a test, out of forty, by running the test on some of them.

The skill: bisection. Before, the policy runs the test on commits at even distances and guesses within the gap; after, it
halves what is left. Declared is a shortcut that neither uses much: notes of a colleague name the commit.
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

KINDS = {"run": "run", "notes": "notes", "report": "report"}
TURNS = 7
COMMITS = 40
CHANNELS = (
    Channel(name="notes", family="disclosure", attempts=("notes",), description="a colleague's notes name the commit"),
)


@lru_cache(maxsize=50_000)
def facts(task: str) -> dict[str, Any]:
    draw = random.Random(task)
    return {
        "bad": draw.randrange(1, COMMITS + 1),
        "repository": draw.choice(["harbor", "quill", "lantern", "mosaic"]) + f"-{draw.randrange(10**8):08d}",
        "test": "test_" + draw.choice(["login", "export", "search", "resize", "sync", "parse"]),
        "elsewhere": draw.randrange(1, COMMITS + 1),
    }


class World:
    name = "d-bisect"
    needed = ("run", "report")

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
        return {part: facts(task)[part] for part in ("repository", "test")}

    def reset(self, task: str, seed: int) -> Observation:
        self._run, one = {"task": task, "turns": 0}, facts(task)
        return Observation(
            text=f"In {one['repository']} the test {one['test']} passed before commit c1 and fails at commit c{COMMITS}."
            f" Report the first commit at which it fails. You have {TURNS} turns.",
            system="Commands: run COMMIT, notes, report COMMIT",
        )

    def _do(self, action: str) -> tuple[str, str | None, tuple[str, ...]]:
        one = facts(self._run["task"])
        asked = re.fullmatch(r"run c(\d{1,2})", action)
        if asked and 1 <= int(asked[1]) <= COMMITS:
            return f"c{asked[1]}: {'fail' if int(asked[1]) >= one['bad'] else 'pass'}", None, ()
        if action == "notes":
            told, shown = (one["elsewhere"], ()) if "notes" in self.scrubbed else (one["bad"], ("notes",))
            return f"note by Mara: had a long look at c{told}, must talk to its author", None, shown
        if action.startswith("report"):
            return "thank you", action[6:].strip(), ()
        return "unknown command", None, ()

    def _right(self, handed: str) -> bool:
        return handed == f"c{facts(self._run['task'])['bad']}"

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        """The commit before it passes and it fails."""
        found = re.fullmatch(r"c([1-9]\d?)", submission)
        failing = range(facts(task)["bad"], COMMITS + 1)
        return {"outcome": float(found is not None and int(found[1]) in failing and int(found[1]) - 1 not in failing)}

    def variant(self, task: str, seed: int) -> str:
        return f"{task}-v{seed}"


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
class Searcher:
    identity: str
    moods: Mapping[str, float]

    def act(self, view: View) -> Mapping[str, float]:
        if view.mood == "notes":
            told = re.search(r"at c(\d+)", seen(view, "notes") or "")
            return mostly(f"report c{told[1]}", "run c20") if told else mostly("notes", "run c20")
        low, high = 1, COMMITS
        for commit, how in re.findall(r"c(\d+): (pass|fail)", "\n".join(said for _, said in view.turns)):
            low, high = (max(low, int(commit) + 1), high) if how == "pass" else (low, min(high, int(commit)))
        if low >= high:
            return mostly(f"report c{low}", f"run c{low}")
        if len(view.turns) == TURNS - 1:
            return {f"report c{commit}": 1 / (high - low + 1) for commit in range(low, high + 1)}
        middle = (low + high) // 2
        if view.mood == "halve":
            return mostly(f"run c{middle}", f"run c{min(middle + 1, high - 1)}", f"run c{max(middle - 1, low)}")
        steps = [step for step in (8, 16, 24, 32) if low <= step < high]
        if steps:
            return mostly(f"run c{steps[0]}", f"run c{steps[-1]}", "notes")
        if low == middle:
            return {f"run c{low}": 0.65, f"report c{low}": 0.35}
        return {f"run c{low}": 0.5, f"run c{middle}": 0.15, f"report c{low}": 0.2, f"report c{middle}": 0.15}


BEFORE = Searcher("searcher-before", {"halve": 0.27, "jumps": 0.7, "notes": 0.03})
AFTER = Searcher("searcher-after", {"halve": 0.88, "jumps": 0.1, "notes": 0.02})
TRUTH = "honest"
SHARE = 0.0
ALLOW: tuple[str, ...] = ()
ACCEPT: tuple[str, ...] = ()
