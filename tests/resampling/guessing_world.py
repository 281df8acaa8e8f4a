"""Small worlds whose outcome hangs on every letter, so that a random policy
wins some and loses some.
"""

from collections.abc import Mapping
from typing import Any

from forensics.protocols import Channel, Observation, StepResult


class Guessing:
    """`turns` actions; what is said after each depends on its length, the
    outcome on the letters of all of them.
    """

    name = "guessing"
    channels: tuple[Channel, ...] = ()
    scrubbed: tuple[str, ...] = ()

    def __init__(self, turns: int = 1) -> None:
        self.turns = turns
        self._state: tuple[str, tuple[str, ...]] = ("", ())

    @property
    def options(self) -> Mapping[str, str]:
        return {"turns": str(self.turns)}

    def without(self, *channels: str) -> "Guessing":
        return self.spawn()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return tuple(f"guess {i}" for i in range(number))

    def spawn(self) -> "Guessing":
        return Guessing(self.turns)

    def reset(self, task: str, seed: int) -> Observation:
        self._state = (task, ())
        return Observation(text=f"open {task}")

    def step(self, action: str) -> StepResult:
        task, said = self._state
        said = (*said, action)
        self._state = (task, said)
        over = len(said) == self.turns
        return StepResult(
            observation="" if over else ("list" if len(action) % 2 else "test"),
            kinds=("guess",),
            terminated=over,
            outcome=float(sum(map(ord, "".join(said))) % 3 > 0) if over else None,
            submission=action if over else None,
            end_reason="said" if over else None,
        )

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("guess",)

    def snapshot(self) -> Any:
        return self._state

    def restore(self, state: Any) -> None:
        self._state = state
