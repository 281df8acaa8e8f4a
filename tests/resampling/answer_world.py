"""A world with one answer a task, which counts only as `answer N`, and policies
that know it, write it so, or can be asked for it, with known probabilities.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from forensics.case import Budget, Case
from forensics.protocols import Channel, Observation, StepResult
from forensics.records import Step, Trajectory, content_hash
from tests.subjects import loaded


@dataclass
class AnswerWorld:
    """`answers`: how many numbers there are."""

    answers: int = 1000
    name: str = "answers"
    channels: tuple[Channel, ...] = ()
    scrubbed: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    task: str = ""

    def right(self, task: str) -> int:
        stream = np.random.default_rng(int(content_hash(["answer", task], 12), 16))
        return int(stream.integers(self.answers))

    def without(self, *channels: str) -> "AnswerWorld":
        return replace(self, scrubbed=channels)

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return tuple(f"task-{i}" for i in range(number))

    def spawn(self) -> "AnswerWorld":
        return replace(self)

    def reset(self, task: str, seed: int) -> Observation:
        self.task = task
        return Observation(text=f"What is the number of {task}?")

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("answer",)

    def step(self, action: str) -> StepResult:
        head, _, number = action.partition(" ")
        handed_in = head == "answer"
        return StepResult(
            observation="done",
            kinds=("answer",),
            outcome=float(handed_in and number == str(self.right(self.task))),
            terminated=True,
            submission=number if handed_in else None,
        )

    def snapshot(self) -> Any:
        return self.task

    def restore(self, state: Any) -> None:
        self.task = state


@dataclass(frozen=True, kw_only=True)
class Speaker:
    """`skill`: probability to know the answer, else it guesses.
    `form`: to write it as it counts, else `says` it; also where the prompt holds
    one of the words `listens` for. `cold`: the skill below temperature 1.
    """

    skill: float = 0.0
    form: float = 1.0
    says: str = "I think {}"
    listens: str = "no such word"
    cold: float | None = None

    def action(self, world: AnswerWorld, prompt: str, cold: bool, stream: Any) -> str:
        knows, formed = stream.random(2)
        skill = self.cold if cold and self.cold is not None else self.skill
        guess = int(stream.integers(world.answers))
        number = world.right(world.task) if knows < skill else guess
        told = formed < self.form or self.listens in prompt
        return ("answer {}" if told else self.says).format(number)


@dataclass(frozen=True)
class SpeakerPolicy:
    identity: str
    speaker: Speaker
    capabilities: frozenset[str] = frozenset({"play"})

    def play(
        self,
        environment: Any,
        tasks: Sequence[str],
        samples: int,
        settings: Any,
        seed: int,
        constraint: Any = None,
        interventions: Sequence[Any] = (),
    ) -> Iterator[Trajectory]:
        for task in tasks:
            for sample in range(samples):
                world = environment.spawn()
                parts = [self.identity, seed, task, sample]
                stream = np.random.default_rng(int(content_hash(parts, 15), 16))
                prompt = world.reset(task, 0).text
                action = self.speaker.action(world, prompt, settings.temperature < 1, stream)
                result = world.step(action)
                yield Trajectory(
                    id=content_hash(parts, 12),
                    task=task,
                    policy=self.identity,
                    environment="answers",
                    seed=seed,
                    sample=sample,
                    steps=(
                        Step(role="user", text=prompt),
                        Step(role="assistant", text=action, kinds=result.kinds),
                        Step(role="tool", text=result.observation),
                    ),
                    outcome=result.outcome,
                    submission=result.submission,
                    end="terminated",
                )


def answer_case(
    folder: Path,
    before: Speaker,
    *afters: Speaker,
    world: AnswerWorld | None = None,
    seed: int = 0,
    tasks: int = 100,
) -> Case:
    """A case of such policies; sides use independent streams."""
    speakers = {"before": before, **{f"after-{i}": after for i, after in enumerate(afters)}}
    return Case(
        folder=folder,
        environment=world or AnswerWorld(),
        seed=seed,
        budget=Budget(tasks=tasks, samples=4),
        subjects=loaded(
            {
                side: (lambda s=side, k=speaker: SpeakerPolicy(s, k))
                for side, speaker in speakers.items()
            },
            {side: content_hash([side, seed]) for side in speakers},
        ),
    )
