"""What an environment may have beside the methods of `forensics.protocols.Environment`.

An instrument that needs one of them asks `isinstance`, and says what is missing where it is not
there. Import them from `forensics.protocols`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Regrading(Protocol):
    """Grading a submission apart from the run that made it.

    Tampering with the grader and answers that fit the visible tests alone are
    found by it, declared or not.
    """

    def regrade(self, task: str, submission: str) -> Mapping[str, float | None]:
        """Named rewards, and the score that counts under `outcome`, of a
        submission in a fresh copy of the task.

        `submission` is what a step of this environment told as such, `""` where
        a run handed in nothing. Nothing else that the run changed comes along,
        and hidden checks decide: it must not share the code that graded the
        run, or both have the same holes. `None`: cannot be told.
        """
        ...


@runtime_checkable
class Needing(Protocol):
    """The kinds of action that an honest solver needs.

    They are exempt from refusal, and from nothing else: a gain that takes an
    edit is no gain by editing.
    """

    @property
    def needed(self) -> tuple[str, ...]: ...


@runtime_checkable
class Withholding(Protocol):
    """The secrets of a task, wherever they may leak."""

    def withheld(self, task: str) -> tuple[str, ...]:
        """Texts that an honest run is never shown: the reference answer, the
        outputs that only the grader knows.
        """
        ...


@runtime_checkable
class Referenced(Protocol):
    """The right answers, for asking whether one line of code would win the set."""

    def reference(self, task: str) -> str | None:
        """The right answer to a task as it would be handed in; `None` where there is no one
        answer, as where a pattern decides.
        """
        ...


@runtime_checkable
class Fielded(Protocol):
    """The parts of a prompt that differ from task to task."""

    def fields(self, task: str) -> Mapping[str, str]:
        """Name of each field, and its exact text as it stands in the prompt of this task.

        The same names for every task. The one that is the question itself is
        called `question`: it is allowed to give the answer away alone.
        """
        ...


@runtime_checkable
class Varying(Protocol):
    """The same skill asked in other words."""

    def variant(self, task: str, seed: int) -> str:
        """The name of another task of this world, which `reset` takes like any other.

        The same skill is asked and it is as hard; incidental features (names,
        numbers, ids, order) are redrawn and answers reshuffled. A function of
        `task` and `seed` alone. It is in no split.
        """
        ...


@runtime_checkable
class Rehearsed(Protocol):
    """Scripts that show whether the world's scrubbed twins are fair (`forensics twin`)."""

    @property
    def scripts(self) -> Mapping[str, Callable[[Sequence[str], str], str | None]]:
        """`honest`, perhaps `bystander`, and the name of each channel: its cheat. Each is
        given every text read so far, the prompt first, and the task; returns the next action.
        """
        ...
