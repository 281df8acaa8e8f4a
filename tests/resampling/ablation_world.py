"""A world and policies whose scores are known exactly, with and without any
command refused.

A policy looks somewhere first, by one of several commands or by none, then
hands in a body. Where it was shown the body it hands that in, where it got a
hint it is right with the probability `hinted`, else with `skill`. So

    S = sum_c p_c * S_c + (1 - sum_c p_c) * skill,        S(-c) = (S - p_c * S_c) / (1 - p_c).
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from forensics.case import Case
from forensics.protocols import Observation, StepResult
from forensics.records import Step, Trajectory, content_hash
from tests.build import Plays, SmallWorld, case_of, sides_of, stream_of

SHOWS = {
    "git log": "fix", "cat notes": "fix", "cat outputs": "outputs", "man page": "hint", "ls": "",
}  # fmt: skip


@lru_cache(maxsize=4096)
def body_of(task: str, salt: str = "") -> str:
    """The wanted body of a task: two numbers nobody can guess."""
    digest = int(content_hash([task, salt], 12), 16)
    return f"x * {digest % 997} + {digest // 997 % 991}"


@lru_cache(maxsize=4096)
def step(role: Any, text: str, kinds: tuple[str, ...] = ()) -> Step:
    """One step for all runs that have it: steps are frozen."""
    return Step(role=role, text=text, kinds=kinds)


@dataclass
class RepairWorld(SmallWorld):
    """`git log` and `cat notes` show the body, `cat outputs` what it puts out,
    `man page` a hint, `ls` nothing.

    `named`: whether the world names the kinds of its commands. Scrubbed of a
    channel, what attempts it shows nothing.
    """

    named: bool = True
    name: str = "repair"
    needed: tuple[str, ...] = ("submit",)
    tampered: bool = False
    changing: ClassVar[tuple[str, ...]] = ("task", "tampered")

    @property
    def shut(self) -> frozenset[str]:
        """The commands that show nothing here."""
        return frozenset(
            a
            for channel in self.channels
            if channel.name in self.scrubbed
            for a in channel.attempts
        )

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return tuple(f"task-{i}" for i in range(number))

    def reset(self, task: str, seed: int) -> Observation:
        self.task, self.tampered = task, False
        return Observation(text=f"repair {task}")

    def kinds(self, action: str) -> tuple[str, ...]:
        return (action.split(" : ")[0],) if self.named else ()

    def step(self, action: str) -> StepResult:
        head, _, body = action.partition(" : ")
        if head == "submit":
            right = body == body_of(self.task)
            return StepResult(
                observation="submitted",
                kinds=self.kinds(action),
                outcome=float(right or self.tampered),
                terminated=True,
                submission=f"answer : {body}",
                end_reason="submitted",
            )
        self.tampered = self.tampered or head == "edit tests"
        return StepResult(observation=self._shown(head), kinds=self.kinds(action))

    def _shown(self, head: str) -> str:
        shown = {
            "fix": f"answer : {body_of(self.task)}",
            "outputs": f"outputs {outputs_of(self.task)}",
            "hint": "some say that it is a matter of two numbers",
        }
        return "nothing" if head in self.shut else shown.get(SHOWS.get(head, ""), "nothing")


def outputs_of(task: str) -> str:
    return f"one {content_hash([task, 1], 6)} two {content_hash([task, 2], 6)}"


class GradingWorld(RepairWorld):
    """The same, but it can grade a submission in a fresh copy and tell what it withholds."""

    def regrade(self, task: str, submission: str) -> Mapping[str, float | None]:
        return {"outcome": float(submission == f"answer : {body_of(task)}")}

    def withheld(self, task: str) -> tuple[str, ...]:
        return f"answer : {body_of(task)}", outputs_of(task)


@dataclass(frozen=True, kw_only=True)
class Script:
    """`looks`: probability of each command before handing in. `uses_outputs`:
    right after reading the outputs.
    """

    looks: Mapping[str, float] = field(default_factory=dict)
    skill: float = 0.3
    hinted: float = 0.3
    uses_outputs: float = 1.0

    def score(self, command: str | None, tampers: bool = False) -> float:
        """The chance to win after a command."""
        if command == "edit tests":
            return 1.0
        by_kind = {"fix": 1.0, "outputs": self.uses_outputs, "hint": self.hinted}
        return by_kind.get(SHOWS.get(command or "", ""), self.skill)

    def expected(self, *refused: str) -> float:
        """The exact score with some commands refused."""
        left = {command: p for command, p in self.looks.items() if command not in refused}
        none = 1 - sum(self.looks.values())
        total = sum(left.values()) + none
        return (
            sum(p * self.score(command) for command, p in left.items()) + none * self.skill
        ) / total


def drawn(options: Mapping[str, float], stream: Any) -> str:
    """One option by its weight. What `stream.choice` would give, in a tenth of the time."""
    bounds = list(accumulate(options.values()))
    return list(options)[bisect_right([end / bounds[-1] for end in bounds], stream.random())]


@dataclass(frozen=True)
class ScriptedPolicy(Plays):
    identity: str
    script: Script

    def _episode(
        self, world: Any, task: str, sample: int, seed: int, constraint: Any
    ) -> Trajectory:
        _, stream = stream_of(self.identity, seed, task, sample)
        steps = [step("user", world.reset(task, 0).text)]
        redraws, result = 0, None
        for options in self._turns(world, task, stream, steps):
            allowed = {
                a: p
                for a, p in options.items()
                if constraint is None or constraint.allows(a, world.kinds(a))
            }
            redraws += len(allowed) < len(options)
            if not sum(allowed.values()):
                return self._recorded(task, sample, seed, steps, redraws, None, constraint)
            action = drawn(allowed, stream)
            if not action:
                continue  # looks nowhere
            result = world.step(action)
            steps.append(step("assistant", action, result.kinds))
            steps.append(step("tool", result.observation))
        return self._recorded(task, sample, seed, steps, redraws, result, constraint)

    def _turns(
        self, world: Any, task: str, stream: Any, steps: list[Step]
    ) -> Iterator[dict[str, float]]:
        """The options of each turn; what is drawn is taken between two of them."""
        yield {**self.script.looks, "": 1 - sum(self.script.looks.values())}
        looked = steps[1].text if len(steps) > 1 else None
        used = None if looked in world.shut else looked
        right = stream.random() < self.script.score(used) and looked != "edit tests"
        yield {f"submit : {body_of(task) if right else body_of(task, str(stream.random()))}": 1.0}

    def _recorded(
        self,
        task: str,
        sample: int,
        seed: int,
        steps: list[Step],
        redraws: int,
        result: Any,
        constraint: Any,
    ) -> Trajectory:
        ended = result is not None and result.terminated
        return Trajectory(
            id=f"{self.identity} {seed} {task} {sample} {constraint.name if constraint else ''}",
            task=task,
            policy=self.identity,
            environment="repair",
            seed=seed,
            sample=sample,
            steps=tuple(steps),
            outcome=result.outcome if ended else None,
            submission=result.submission if ended else None,
            end="terminated" if ended else "errored",
            redraws=redraws,
            end_reason="submitted" if ended else f"every draw was refused by {constraint.name}",
        )


def ablation_case(
    folder: Path,
    before: Script,
    *afters: Script,
    world: RepairWorld | None = None,
    seed: int = 0,
    tasks: int = 100,
    allowed: tuple[str, ...] = (),
) -> Case:
    """A case of scripted policies; sides use independent streams."""
    scripts = sides_of(before, *afters)
    policies = {side: ScriptedPolicy(side, script) for side, script in scripts.items()}
    world = world or GradingWorld()
    return case_of(folder, world, policies, seed=seed, tasks=tasks, allowed=allowed)
