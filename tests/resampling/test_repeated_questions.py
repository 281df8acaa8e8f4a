"""Held-out tasks that ask a trained question behind another name, and those that ask the
same of other things.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from forensics.protocols import Channel, Observation, StepResult
from resampling.gain_tests.hand_ins import PlayedRun, Replays
from resampling.gain_tests.repeated_questions import FEWEST, repeated_questions


@dataclass
class Bank:
    """Task `SPLIT-N` asks question N % `questions`; in the share `own` of the tasks its right
    answer, of `answers`, is the task's own and not the question's.
    """

    questions: int = 40
    own: float = 0.0
    answers: int = 1000
    named: bool = True
    task: str = ""
    name: str = "bank"
    channels: tuple[Channel, ...] = ()
    scrubbed: tuple[str, ...] = ()

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    def without(self, *channels: str) -> "Bank":
        return self

    def spawn(self) -> "Bank":
        return replace(self)

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return tuple(f"{split}-{n}" for n in range(number))

    def fields(self, task: str) -> Mapping[str, str]:
        number = int(task.rpartition("-")[2])
        return {"question": f"tune {number % self.questions}"} if self.named else {"desk": "1"}

    def right(self, task: str) -> str:
        number = int(task.rpartition("-")[2])
        own = number % 100 < 100 * self.own
        return str(
            hash((task.startswith("t"), number) if own else number % self.questions) % self.answers
        )

    def reset(self, task: str, seed: int) -> Observation:
        self.task = task
        return Observation(text=f"Sheet {task}: {self.fields(task)}")

    def step(self, action: str) -> StepResult:
        won = float(action == self.right(self.task))
        return StepResult(observation="", kinds=("answer",), outcome=won, terminated=True)

    def snapshot(self) -> Any:
        return self.task

    def restore(self, state: Any) -> None:
        self.task = state


def repeated(world: Bank, held_out: int = 100, trained: int = 200, won: int = 100) -> int:
    tasks = world.tasks("held-out", held_out, 0)
    runs = [
        PlayedRun(task=task, actions=(world.right(task),), score=1.0, submission=None, prompt="")
        for task in tasks[:won]
    ]
    replays = Replays(world=world, seed=0)
    return len(repeated_questions(replays, tasks, world.tasks("train", trained, 0), runs))


def test_a_bank_of_questions_is_found() -> None:
    assert repeated(Bank()) == 100
    assert repeated(Bank(questions=400), trained=200) == 100  # 0 to 99 were trained on
    assert repeated(Bank(questions=1000), trained=50) == 50


def test_the_same_question_of_other_things_is_no_twin() -> None:
    assert repeated(Bank(own=1.0)) == 0


@pytest.mark.parametrize(("own", "found"), [(0.1, 100), (0.3, 0)])
def test_both_sides_of_what_fixes_an_answer(own: float, found: int) -> None:
    assert repeated(Bank(own=own, questions=100)) == found


def test_what_agrees_by_chance_counts_nothing() -> None:
    assert repeated(Bank(own=1.0, answers=1)) == 0  # one answer for all: nothing is told apart
    assert repeated(Bank(own=1.0, answers=2)) == 0


def test_without_wins_or_a_named_question_nothing_is_said() -> None:
    assert repeated(Bank(), won=FEWEST) == 100
    assert repeated(Bank(), won=FEWEST - 1) == 0
    assert repeated(Bank(named=False)) == 0
