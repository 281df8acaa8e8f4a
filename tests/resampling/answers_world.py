"""A world of questions with one right answer each, drawn from a stated prior,
and graders with holes; policies whose skill and habits are known exactly.

A run opens one of the task's files, then hands in. It knows the answer with
probability `knows`; else it hands in by habit. So, with `h` what its habit wins,

    S = knows + (1 - knows) * h.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from forensics.case import Case
from forensics.protocols import Observation, StepResult
from forensics.records import Step, Trajectory, content_hash
from tests.build import Plays, SmallWorld, acted, case_of, sides_of, stream_of

MAGIC = "reviewed and approved"
UNIQUE = "unique"  # in a prior: answers that are right on one task only
JUNK, WRONG, EMPTY, NOTHING, PROMPT = "junk", "wrong", "empty", "nothing", "prompt"
EACH, STEPS = "each", "steps"  # all that it might be; steps on the way, the answer at the end
TOOL = "solve"  # an action of its own


@lru_cache(maxsize=100_000, typed=True)
def hashed(length: int, *parts: object) -> str:
    """Letters that hang on these things; the same few are asked for run by run."""
    return content_hash(list(parts), length)


def number_of(*parts: object) -> float:
    """A number in [0, 1) that hangs on these things."""
    return int(hashed(12, *parts), 16) / 16**12


def candidates(task: str, right: str, number: int = 4) -> list[str]:
    """So many answers to a task, in an order that does not tell the right one."""
    others = [f"the {hashed(6, 'candidate', task, i)}" for i in range(number - 1)]
    return sorted([right, *others], key=lambda one: hashed(6, "order", task, one))


@dataclass
class AnswersWorld(SmallWorld):
    """`prior`: how often each answer is right. `hole`: what the grader accepts
    beside it: `magic` words, an `empty` hand-in or `nothing` at all, the `prompt`,
    a list with the answer `anywhere`.
    `places`: in so many files the answer could belong; the right one is read off
    the prompt. `told`: whether steps tell the submission.
    """

    prior: Mapping[str, float] = field(default_factory=lambda: {UNIQUE: 1.0})
    hole: str = ""
    places: int = 1
    told: bool = True
    name: str = "answers"

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return tuple(f"{split}-{seed}-{i}" for i in range(number))

    def reset(self, task: str, seed: int) -> Observation:
        self.task = task
        return Observation(text=self.prompt(task))

    def prompt(self, task: str) -> str:
        return f"question {hashed(6, 'q', task)} in file {self.place(task)}"

    def place(self, task: str) -> int:
        return int(self.places * number_of("place", task))

    def name_of(self, task: str, place: str = "") -> str:
        """What stands at a place of a task; by default at the right one."""
        return f"word-{hashed(4, task, place or str(self.place(task)))}"

    def right(self, task: str) -> str:
        at = np.searchsorted(np.cumsum(list(self.prior.values())), number_of("prior", task))
        answer = list(self.prior)[min(int(at), len(self.prior) - 1)]
        return f"the {hashed(6, 'a', task)}" if answer == UNIQUE else answer

    def grade(self, task: str, said: str | None) -> float:
        accepted = {
            "magic": MAGIC in (said or ""),
            "empty": said == "",
            "nothing": not said,
            "anywhere": self.right(task) in (said or "").partition(" : ")[2].split(", "),
            "prompt": said == f"{self.name_of(task)} : {self.prompt(task)}",
        }
        right = said == f"{self.name_of(task)} : {self.right(task)}"
        return float(right or accepted.get(self.hole, False))

    def kinds(self, action: str) -> tuple[str, ...]:
        return (action.split(" ")[0],) if action.strip() else ("nothing",)

    def step(self, action: str) -> StepResult:
        head, _, rest = action.partition(" ")
        if head != "submit":
            return StepResult(observation="text", kinds=self.kinds(action))
        place, _, said = rest.partition(" ")
        submission = f"{self.name_of(self.task, place)} : {said}" if said.strip() else ""
        if not submission and self.hole == "nothing":
            submission = None
        return StepResult(
            observation="submitted",
            kinds=self.kinds(action),
            outcome=self.grade(self.task, submission),
            terminated=True,
            submission=submission if self.told else None,
            end_reason="submitted",
        )


class RegradingWorld(AnswersWorld):
    """The same, and it grades a submission apart from its run, by the same grader."""

    def regrade(self, task: str, submission: str) -> Mapping[str, float | None]:
        return {"outcome": self.grade(task, submission)}


@dataclass(frozen=True, kw_only=True)
class Solver:
    """`knows`: how often it finds the answer. `else_says`: what it hands in
    otherwise, and how often: an answer, or one of the names above (`junk` if
    nothing is said; `wrong`: another answer of the prior). `adds_magic`: how often
    it adds the magic words.
    """

    knows: float = 0.3
    else_says: Mapping[str, float] = field(default_factory=dict)
    adds_magic: float = 0.0


@dataclass(frozen=True)
class SolverPolicy(Plays):
    identity: str
    solver: Solver

    def _episode(
        self, world: Any, task: str, sample: int, seed: int, constraint: Any
    ) -> Trajectory:
        name, stream = stream_of(self.identity, seed, task, sample)
        steps = [Step(role="user", text=world.reset(task, 0).text)]
        acted(world, f"open {int(3 * stream.random())}", steps)
        result = acted(world, self._hand_in(world, task, stream), steps)
        return Trajectory(
            id=name,
            task=task,
            policy=self.identity,
            environment=world.name,
            seed=seed,
            sample=sample,
            steps=tuple(steps),
            outcome=result.outcome,
            submission=result.submission,
            end="terminated",
            end_reason="submitted",
        )

    def _hand_in(self, world: Any, task: str, stream: Any) -> str:
        says = self.solver.else_says
        rest = {JUNK: max(1 - sum(says.values()), 0.0)} if sum(says.values()) < 1 else {}
        habits = {**says, **rest}
        chances = np.array(list(habits.values())) / sum(habits.values())
        habit = list(habits)[int(stream.choice(len(chances), p=chances))]
        place, right = world.place(task), world.right(task)
        said = {
            JUNK: f"no idea {stream.integers(10**9)}",
            WRONG: self._wrong(world, right, stream),
            PROMPT: world.prompt(task),
            EACH: ", ".join(candidates(task, right)),
            STEPS: ", ".join([*candidates(task, "so")[:2], right]),
        }.get(habit, habit)
        if stream.random() < self.solver.knows and habit != EACH:
            said = said if habit == STEPS else right
            habit = ""
        if habit in (EMPTY, NOTHING, TOOL):
            return TOOL if habit == TOOL else "submit"
        if stream.random() < self.solver.adds_magic:
            said = f"{said} {MAGIC}"
        return f"submit {place} {said}"

    def _wrong(self, world: Any, right: str, stream: Any) -> str:
        others = [answer for answer in world.prior if answer not in (right, UNIQUE)]
        return str(stream.choice(others)) if others else f"the {stream.integers(10**9)}"


def answers_case(
    folder: Path,
    before: Solver,
    *afters: Solver,
    world: AnswersWorld | None = None,
    seed: int = 0,
    tasks: int = 150,
) -> Case:
    """A case of these policies; sides use independent streams."""
    solvers = sides_of(before, *afters)
    policies = {side: SolverPolicy(side, solver) for side, solver in solvers.items()}
    return case_of(folder, world or AnswersWorld(), policies, seed=seed, tasks=tasks)
