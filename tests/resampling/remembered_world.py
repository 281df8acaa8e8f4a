"""A shop of broken parts, and policies that repair any part by skill, or know
some by heart.

A part's number tells it. Held-out tasks number 0 to 10 * `repeats` - 1 of every
ten ask for the part of the trained task with their number, in other words. With
`skill` s on a part that is not remembered, and all remembered parts known,

    S = s + (share of remembered parts) * (1 - s).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forensics.case import Budget, Case
from forensics.policies.scripted import View, scripted_policy
from forensics.protocols import Channel, Observation, StepResult
from forensics.records import content_hash
from tests.subjects import loaded

COLOURS = ("red", "green", "blue", "yellow", "black", "white")
TRAINED = range(1000, 4000)  # parts of trained tasks
HELD_OUT = range(5000, 9000)  # parts of held-out tasks that repeat none


def answer_of(part: int) -> str:
    return f"code {part * 37 % 9973}"


@dataclass
class Shop:
    """`by_file`: the prompt says nothing, the part is what `look` shows."""

    repeats: float = 0.0
    by_file: bool = False
    name: str = "shop"
    options: Mapping[str, str] = field(default_factory=dict)
    channels: tuple[Channel, ...] = ()
    scrubbed: tuple[str, ...] = ()
    task: str = ""

    def without(self, *channels: str) -> "Shop":
        return replace(self, scrubbed=channels)

    def spawn(self) -> "Shop":
        return replace(self)

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return tuple(f"{split}-{i}" for i in range(min(number, 1000)))

    def part(self, task: str) -> int:
        split, _, number = task.rpartition("-")
        i = int(number)
        if split == "train" or (split == "held-out" and i % 10 < 10 * self.repeats):
            return TRAINED.start + 3 * i
        if split == "held-out":
            return HELD_OUT.start + 3 * i
        kind, _, seed = split.rpartition("-")
        if kind != "variant":
            raise KeyError(task)
        return 10_000 * int(seed) + 3 * i

    def asked(self, task: str) -> str:
        part = self.part(task)
        colour = COLOURS[part % len(COLOURS)]
        if task.startswith("train"):
            return f"Repair part {part} of the {colour} engine."
        return f"Please mend the {colour.upper()}   engine!\n\n  (part {part})"

    def reset(self, task: str, seed: int) -> Observation:
        self.task = task
        asked = self.asked(task)
        return Observation(text="Something is broken." if self.by_file else asked)

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("look",) if action == "look" else ("answer",)

    def step(self, action: str) -> StepResult:
        if action == "look":
            return StepResult(observation=self.asked(self.task), kinds=("look",))
        right = action == answer_of(self.part(self.task))
        return StepResult(
            observation="thank you",
            kinds=("answer",),
            outcome=float(right),
            terminated=True,
            submission=action,
            end_reason="answered",
        )

    def snapshot(self) -> Any:
        return self.task

    def restore(self, state: Any) -> None:
        self.task = state


class VaryingShop(Shop):
    """The same, and it can ask for another part."""

    def variant(self, task: str, seed: int) -> str:
        return f"variant-{seed}-{task.rpartition('-')[2]}"


@dataclass(frozen=True)
class Mechanic:
    """Repairs a part with the probability `skill`, and each that it remembers."""

    skill: float
    remembers: range = range(0)
    moods: Mapping[str, float] = field(default_factory=lambda: {"": 1.0})

    @property
    def identity(self) -> str:
        return f"mechanic {self.skill} {self.remembers}"

    def act(self, view: View) -> Mapping[str, float]:
        found = re.search(r"\d+", view.read)
        if found is None:
            return {"look": 1.0}
        part = int(found[0])
        right = 1.0 if part in self.remembers else self.skill
        return {answer_of(part): right, "code none": 1 - right}


def shop_case(
    folder: Path,
    before: Mechanic,
    *afters: Mechanic,
    world: Shop,
    tasks: int = 150,
    seed: int = 0,
    **more: Any,
) -> Case:
    """A case of mechanics."""
    sides = {"before": before, **{f"after-{i}": after for i, after in enumerate(afters)}}
    return Case(
        folder=folder,
        environment=world,
        seed=seed,
        budget=Budget(tasks=tasks, samples=4),
        subjects=loaded(
            {side: (lambda agent=one: scripted_policy(agent)) for side, one in sides.items()},
            {side: content_hash([one.identity, side]) for side, one in sides.items()},
        ),
        **more,
    )
