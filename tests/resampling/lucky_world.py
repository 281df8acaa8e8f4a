"""A world with luck: each turn throws a coin that is told a turn later; the
last throw is the outcome.

`reseeds`: whether fresh luck can be asked for. `sharing`: its snapshots are
broken, they share what changes.
`forgetful`: it does not replay. `breaks_at`: the turn at which it raises.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from forensics.protocols import Channel, Observation, StepResult


class Lucky:
    name = "lucky"
    channels: tuple[Channel, ...] = ()
    scrubbed: tuple[str, ...] = ()

    def __init__(
        self, turns: int = 3, sharing: bool = False, forgetful: bool = False, breaks_at: int = 99
    ) -> None:
        self.turns, self.sharing, self.forgetful, self.breaks_at = (
            turns,
            sharing,
            forgetful,
            breaks_at,
        )
        self._state: dict[str, Any] = {}

    @property
    def options(self) -> Mapping[str, str]:
        return {"turns": str(self.turns)}

    def without(self, *channels: str) -> "Lucky":
        return self.spawn()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return tuple(f"try {i}" for i in range(number))

    def spawn(self) -> "Lucky":
        return type(self)(self.turns, self.sharing, self.forgetful, self.breaks_at)

    def reset(self, task: str, seed: int) -> Observation:
        luck = np.random.default_rng(None if self.forgetful else seed)
        self._state = {"turn": 0, "throw": 0, "luck": luck.bit_generator.state}
        return Observation(text=task)

    def step(self, action: str) -> StepResult:
        state = self._state
        if state["turn"] == self.breaks_at:
            raise RuntimeError("the table fell over")
        luck = np.random.default_rng()
        luck.bit_generator.state = state["luck"]
        told, throw = state["throw"], int(luck.integers(2))
        state |= {"turn": state["turn"] + 1, "throw": throw, "luck": luck.bit_generator.state}
        over = state["turn"] == self.turns
        return StepResult(
            observation="" if over else f"open {told}",
            kinds=("try",),
            terminated=over,
            outcome=float(throw) if over else None,
            end_reason="thrown" if over else None,
        )

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("try",)

    def snapshot(self) -> Any:
        return self._state if self.sharing else dict(self._state)

    def restore(self, state: Any) -> None:
        self._state = state if self.sharing else dict(state)


class Reseeded(Lucky):
    def reseed(self, seed: int) -> None:
        self._state["luck"] = np.random.default_rng(seed).bit_generator.state
