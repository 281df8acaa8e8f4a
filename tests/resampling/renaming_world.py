"""A world with names in its prompts, and policies that read it: each looks up
what a module holds, or infers the answer from a cue, or guesses.

A policy is right by skill with the probability `skill`; else it goes by the
cue with the probability `cued`; else it guesses one of the 20 values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from forensics.case import Case
from forensics.protocols import Observation, StepResult
from forensics.records import Step, Trajectory, content_hash
from tests.build import Plays, SmallWorld, acted, case_of, sides_of, stream_of

MODULES = ("parser", "lexer", "router", "cache", "logger", "mailer", "timer", "queue", "store")
BUILDS = ("amber", "violet", "indigo", "scarlet", "teal", "olive", "ochre", "ivory")
VALUES = tuple(range(10, 30))


def value_of(*key: object) -> int:
    """The value that goes with a task, or with a cue."""
    return VALUES[int(content_hash(list(key), 8), 16) % len(VALUES)]


@dataclass(frozen=True)
class Drawn:
    """A task: the module that is asked for, and the build that is told beside."""

    module: str
    build: str
    commit: str
    value: int


@lru_cache(maxsize=4096)  # a run asks for it at every step
def drawn(task: str, cue: str) -> Drawn:
    stream = np.random.default_rng(int(content_hash(["named", task], 12), 16))
    module, build = str(stream.choice(MODULES)), str(stream.choice(BUILDS))
    commit = "c0" + content_hash(["commit", task], 9)
    one = Drawn(module, build, commit, 0)
    return replace(one, value=value_of(cue, getattr(one, cue, task)))


@dataclass
class NamedWorld(SmallWorld):
    """`read MODULE` shows the module's value and its commit, `submit MODULE VALUE`
    hands in. `cue`: what the value follows from (`none`, or a field of the task).
    """

    cue: str = "none"
    question: str | None = None
    name: str = "named"
    needed: tuple[str, ...] = ("read", "submit")
    drawn: Drawn = field(default=Drawn("", "", "", 0))
    changing: ClassVar[tuple[str, ...]] = ("drawn",)

    @property
    def options(self) -> Mapping[str, str]:
        return {"cue": self.cue, "question": str(self.question)}

    def draw(self, task: str) -> Drawn:
        return drawn(task, self.cue)

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return tuple(f"task-{seed}-{i}" for i in range(number))

    def reset(self, task: str, seed: int) -> Observation:
        self.drawn = self.draw(task)
        one = self.drawn
        return Observation(
            text=f"fix module {one.module} at commit {one.commit}\nbuild : {one.build}"
        )

    def kinds(self, action: str) -> tuple[str, ...]:
        return (action.split()[0],)

    def step(self, action: str) -> StepResult:
        head, *words = action.split()
        one = self.drawn
        if head == "read":
            known = words == [one.module]
            text = f"test_{one.module} : {one.value} since {one.commit}" if known else "no such"
            return StepResult(observation=text, kinds=(head,))
        handed = " ".join(words)
        return StepResult(
            observation="submitted",
            kinds=(head,),
            outcome=float(handed == f"{one.module} {one.value}"),
            terminated=True,
            submission=handed,
            end_reason="submitted",
        )


class FieldedWorld(NamedWorld):
    """The same, and its author says what the question is."""

    def fields(self, task: str) -> Mapping[str, str]:
        one = self.draw(task)
        known = {"module": f"fix module {one.module}", "build": one.build}
        return {"question" if name == self.question else name: known[name] for name in known}


@dataclass(frozen=True)
class Reader(Plays):
    """A policy that reads what it is shown and nothing else. `cue`: which word of
    the prompt it infers from, by what training would have taught it.
    """

    identity: str
    skill: float = 0.3
    cued: float = 0.0
    cue: str = "build"

    def _episode(
        self, world: Any, task: str, sample: int, seed: int, constraint: Any
    ) -> Trajectory:
        key, stream = stream_of(self.identity, seed, task, sample)
        prompt = world.reset(task, sample).text
        words = prompt.split()
        seen = {"module": words[2], "commit": words[5], "build": words[8]}
        steps = [Step(role="user", text=prompt)]
        guess, skilled, cued = stream.choice(VALUES), stream.random(), stream.random()
        read = acted(world, f"read {seen['module']}", steps)
        value = int(guess)
        if skilled < self.skill:
            value = int(read.observation.split()[2])
        elif cued < self.cued:
            value = value_of(self.cue, seen[self.cue])
        result = acted(world, f"submit {seen['module']} {value}", steps)
        return Trajectory(
            id=content_hash([key, world.name], 12),
            task=task,
            policy=self.identity,
            environment="named",
            seed=seed,
            sample=sample,
            steps=tuple(steps),
            outcome=result.outcome,
            submission=result.submission,
            end="terminated",
            end_reason="submitted",
        )


def named_case(
    folder: Path, before: Reader, after: Reader, world: Any, seed: int = 0, tasks: int = 80
) -> Case:
    """A case of readers; sides use independent streams."""
    return case_of(folder, world, sides_of(before, after), seed=seed, tasks=tasks)
