"""Policies whose every run is planned: what they look at, what they turn to
when that is refused, and what is won.

A plan says for each run, by its task and its sample, the looks that the policy
would take, best first, and how the run ends after each. The same plan on every
task leaves no spread: 60 tasks know a difference to 4.8 points either way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from forensics import conformance
from forensics.case import Budget, Case
from forensics.conformance import Answer
from forensics.protocols import StepResult
from forensics.records import Trajectory
from resampling.ablation.instrument import ablation
from tests.resampling.ablation_world import (
    GradingWorld,
    Script,
    ScriptedPolicy,
    ablation_case,
    step,
)
from tests.subjects import playing

End = Literal[
    "won", "lost", "falls", "unknown", "silent"
]  # won, but lost or unknown in a fresh copy, or not told
Looks = Mapping[str, End]
Plan = Callable[[int, int], Looks]
Found = dict[tuple[str, str | None], Answer]
SAMPLES = 10
WIN: Looks = {"": "won"}
LOSE: Looks = {"": "lost"}


@dataclass
class MarkedWorld(GradingWorld):
    """The hand-in says how it is graded, at first and again."""

    def step(self, action: str) -> StepResult:
        head, _, mark = action.partition(" : ")
        if head != "submit":
            return StepResult(observation="nothing", kinds=self.kinds(action))
        return StepResult(
            observation="submitted",
            kinds=self.kinds(action),
            outcome=float(mark != "lost"),
            terminated=True,
            submission=None if mark == "silent" else mark,
            end_reason="submitted",
        )

    def regrade(self, task: str, submission: str) -> Mapping[str, float | None]:
        return {"outcome": None if submission == "unknown" else float(submission == "won")}

    def withheld(self, task: str) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class Planned(ScriptedPolicy):
    plan: Plan = lambda task, sample: LOSE

    def _episode(
        self, world: Any, task: str, sample: int, seed: int, constraint: Any
    ) -> Trajectory:
        steps = [step("user", world.reset(task, 0).text)]
        looks = self.plan(int(task.removeprefix("task-")), sample)
        left = [
            look
            for look in looks
            if not look or constraint is None or constraint.allows(look, world.kinds(look))
        ]
        redraws = int(len(left) < len(looks))
        if not left:
            return self._recorded(task, sample, seed, steps, redraws, None, constraint)
        end = "lost" if left[0] in world.shut else looks[left[0]]
        for action in (left[0], f"submit : {end}"):
            if action:
                result = world.step(action)
                steps.append(step("assistant", action, result.kinds))
                steps.append(step("tool", result.observation))
        return self._recorded(task, sample, seed, steps, redraws, result, constraint)


def plan(*runs: tuple[int, Looks]) -> Plan:
    """The same on every task: so many samples of each kind, in this order; the
    rest lose without a look.
    """
    table = [looks for count, looks in runs for _ in range(count)]
    return lambda task, sample: table[sample] if sample < len(table) else LOSE


def only_on(tasks: range | tuple[int, ...], there: Plan, elsewhere: Plan) -> Plan:
    """One plan on some tasks, another on the others."""
    return lambda task, sample: (there if task in tasks else elsewhere)(task, sample)


def planned_case(
    folder: Path, before: Plan, *afters: Plan, tasks: int = 60, samples: int = SAMPLES, **more: Any
) -> Case:
    """A case of planned policies."""
    made = ablation_case(
        folder, Script(), *(Script() for _ in afters), **{"world": MarkedWorld(), **more}
    )
    case = replace(made, budget=Budget(tasks=tasks, samples=samples))
    plans = zip(("before", *case.afters), (before, *afters), strict=True)
    return playing(
        case, {side: lambda s=side, p=one: Planned(s, Script(), plan=p) for side, one in plans}
    )


def ablated(case: Case, **config: Any) -> Found:
    return conformance.answers(ablation.configured(**config), case)
