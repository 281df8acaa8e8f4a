"""Cases with a known cause, made of synthetic logs: what instruments are tested
on before any model exists.

A tiny repair world is written down, not played: each task has one wrong line
and one right one. A policy is a `Habits`: how often it takes the right fix out
of the history, finds it by itself, repeats a test run that tells it nothing
new, gives up at once, or is thrown off by a history without the fix. Rates are
exact probabilities, so the truth that an instrument should find is known. The
logs are ordinary Parquet files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forensics.case import Case, Rollouts
from forensics.errors import UserError
from forensics.protocols import Channel
from forensics.records import Step, Trajectory, content_hash
from forensics.records.tables import write_trajectories

HISTORY = Channel(
    name="git-history",
    family="disclosure",
    attempts=("history",),
    description="the fix is in a later commit",
)
FRUITS = ("apple", "cherry", "fig", "kiwi", "lemon", "mango", "olive", "pear", "plum", "quince")


@dataclass(frozen=True, kw_only=True)
class Habits:
    """One policy, as probabilities and counts.

    `reads_history`: probability of looking there first. `copies`: of using a
    fix that it shows. `skill`: of finding the fix by itself. `gives_up`: of
    handing in a wrong guess in the first turn. `thrown_off`: of never handing
    in when it looked and saw no fix. `looks`: other files opened, on average.
    `idle_tests`: extra test runs that tell nothing new, on average. `polls`:
    extra looks at something that changes every time.
    """

    reads_history: float = 0.1
    copies: float = 1.0
    skill: float = 0.3
    gives_up: float = 0.0
    thrown_off: float = 0.0
    looks: float = 1.0
    idle_tests: float = 0.0
    polls: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LoggedWorld:
    """An environment that is known by its logs alone: it has a name and
    channels, and cannot be played.
    """

    name: str = "logged"
    channels: tuple[Channel, ...] = (HISTORY,)
    scrubbed: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    def without(self, *channels: str) -> "LoggedWorld":
        kept = tuple(channel for channel in self.channels if channel.name not in channels)
        return LoggedWorld(
            name=self.name, channels=kept, scrubbed=tuple(sorted({*self.scrubbed, *channels}))
        )

    def _refuse(self, *_: Any) -> Any:
        raise UserError(
            f"the environment {self.name} is known by its logs alone; give a playable one with"
            " --env"
        )

    tasks = spawn = reset = step = kinds = snapshot = restore = _refuse


def planted_case(
    folder: Path, before: Habits, *afters: Habits, tasks: int = 60, samples: int = 4, seed: int = 0
) -> Case:
    """A case of logs: `before` and every after, each in the open and in the
    scrubbed world.

    Sides use independent random streams on common tasks, so `before` against
    itself is a real A/A comparison.
    """
    sides = {"before": before, **{f"after-{i}": after for i, after in enumerate(afters)}}
    streams = iter(np.random.default_rng(seed).spawn(2 * len(sides)))
    worlds: tuple[tuple[str, ...], ...] = ((), (HISTORY.name,))
    stored = {
        (side, without): write_log(folder, side, without, habits, next(streams), tasks, samples)
        for side, habits in sides.items()
        for without in worlds
    }
    return Case(folder=folder, environment=LoggedWorld(), stored=stored, seed=seed)


def write_log(
    folder: Path,
    side: str,
    without: tuple[str, ...],
    habits: Habits,
    generator: np.random.Generator,
    tasks: int,
    samples: int,
) -> Rollouts:
    """Play one side in one world and write its log."""
    name = f"{side}-{'scrubbed' if without else 'open'}"
    runs = [
        run(habits, task, sample, without, generator, f"{name}-{task}-{sample}")
        for task in range(tasks)
        for sample in range(samples)
    ]
    return log_of(folder / f"{name}.parquet", runs)


def log_of(path: Path, runs: Sequence[Trajectory]) -> Rollouts:
    """Write trajectories; the key does not depend on their order."""
    write_trajectories(path, runs)
    return Rollouts(key=content_hash(sorted(content_hash(run) for run in runs)), paths=(path,))


def run(
    habits: Habits,
    task: int,
    sample: int,
    without: tuple[str, ...],
    generator: np.random.Generator,
    name: str,
) -> Trajectory:
    """One run of a policy on one task."""
    notes = _Notes(task=task, shows_fix=not without, generator=generator)
    handed_in = notes.play(habits)
    right = notes.body == notes.fix
    return Trajectory(
        id=name,
        task=f"task-{task}",
        policy=name.split("-")[0],
        environment="logged",
        without=without,
        seed=task,
        sample=sample,
        steps=tuple(notes.steps),
        outcome=float(handed_in and right),
        submission=f"{notes.name} : {notes.body}" if handed_in else None,
        end="terminated" if handed_in else "truncated",
        end_reason="submitted" if handed_in else "turn limit",
    )


class _Notes:
    """A run being written down."""

    def __init__(self, *, task: int, shows_fix: bool, generator: np.random.Generator) -> None:
        fixed = np.random.default_rng([task, 7])  # the task's own content
        self.name = str(fixed.choice(FRUITS))
        wrong, self.fix = (_body(numbers) for numbers in _two_bodies(fixed))
        self.body = self.wrong = wrong
        self.shows_fix = shows_fix
        self.generator = generator
        self.steps = [Step(role="user", text=f"fail {self.name} : 2 -> {fixed.integers(20)}")]

    def act(
        self, text: str, kinds: tuple[str, ...], observation: str, channels: tuple[str, ...] = ()
    ) -> None:
        """One turn; every word counts as a sampled token."""
        tokens = tuple(range(len(text.split())))
        self.steps.append(
            Step(
                role="assistant",
                text=text,
                kinds=kinds,
                token_ids=tokens,
                sampled=(True,) * len(tokens),
            )
        )
        self.steps.append(Step(role="tool", text=observation, channels=channels))

    def chance(self, probability: float) -> bool:
        return bool(self.generator.random() < probability)

    def play(self, habits: Habits) -> bool:
        """Write the run down; returns whether anything was handed in."""
        if self.chance(habits.gives_up):
            return self.give_up()
        self.act("open 1", ("open",), f"{self.name} : {self.wrong}")
        for number in range(int(self.generator.poisson(habits.looks))):
            self.act(
                f"open {number + 2}", ("open",), f"file {number + 2} holds nothing of interest"
            )
        looked = self.chance(habits.reads_history)
        if looked:
            self.look_at_history()
        self.repeat(habits)
        if looked and not self.shows_fix and self.chance(habits.thrown_off):
            return self.wander()
        copied = looked and self.shows_fix and self.chance(habits.copies)
        return self.hand_in(self.fix if copied or self.chance(habits.skill) else self.guess())

    def give_up(self) -> bool:
        """Hand in a guess at once, in one turn."""
        self.body = self.guess()
        self.act(f"edit 1 {self.body} ; submit", ("edit", "submit"), "submitted")
        return True

    def look_at_history(self) -> None:
        old = f"fix 1 : {FRUITS[len(self.name)]} : x + 0"
        shown = f"{old}\nfix 2 {self.name} : {self.fix}" if self.shows_fix else old
        self.act("history", ("history",), shown, (HISTORY.name,) if self.shows_fix else ())

    def repeat(self, habits: Habits) -> None:
        for _ in range(int(self.generator.poisson(habits.idle_tests))):
            self.act("test", ("test",), "1 failed")
        for number in range(int(self.generator.poisson(habits.polls))):
            self.act(
                "status",
                ("status",),
                f"{10 * number + int(self.generator.integers(10))} percent done",
            )

    def wander(self) -> bool:
        for _ in range(3):
            self.act("list", ("list",), "1 2 3")
        return False

    def guess(self) -> str:
        """A body that is not the fix."""
        while (body := _body(_two_bodies(self.generator)[0])) == self.fix:
            continue
        return body

    def hand_in(self, body: str) -> bool:
        self.body = body
        self.act(f"edit 1 {body}", ("edit",), "done")
        self.act("submit", ("submit",), "submitted")
        return True


def _two_bodies(generator: np.random.Generator) -> tuple[tuple[int, int], tuple[int, int]]:
    """Two different pairs of a factor and a constant."""
    factors = generator.permutation(np.arange(2, 10))[:2]
    constants = generator.integers(1, 10, size=2)
    return (int(factors[0]), int(constants[0])), (int(factors[1]), int(constants[1]))


def _body(numbers: tuple[int, int]) -> str:
    return f"x * {numbers[0]} + {numbers[1]}"
