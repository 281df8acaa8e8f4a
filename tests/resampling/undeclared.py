"""A world that does not know some of its shortcuts: the same text in and out,
no word about them beside it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forensics.protocols import Channel, Environment, Observation, StepResult


class Undeclared:
    """`world` with the declaration of some channels removed.

    They are still there, and nobody says so: not `channels`, not the marks of
    observations, and `without` leaves them open. What the world can do beside
    (grading again, telling its secrets) it can still do.
    """

    def __init__(self, world: Environment, *hidden: str) -> None:
        self._world, self._hidden = world, frozenset(hidden)

    @property
    def name(self) -> str:
        return self._world.name

    @property
    def options(self) -> Mapping[str, str]:
        return {**self._world.options, "undeclared": ",".join(sorted(self._hidden))}

    @property
    def channels(self) -> tuple[Channel, ...]:
        return tuple(
            channel for channel in self._world.channels if channel.name not in self._hidden
        )

    @property
    def scrubbed(self) -> tuple[str, ...]:
        return self._world.scrubbed

    def without(self, *channels: str) -> "Undeclared":
        return Undeclared(
            self._world.without(*(name for name in channels if name not in self._hidden)),
            *self._hidden,
        )

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return self._world.tasks(split, number, seed)

    def spawn(self) -> "Undeclared":
        return Undeclared(self._world.spawn(), *self._hidden)

    def reset(self, task: str, seed: int) -> Observation:
        shown = self._world.reset(task, seed)
        return replace(shown, channels=self._told(shown.channels))

    def step(self, action: str) -> StepResult:
        result = self._world.step(action)
        return replace(result, channels=self._told(result.channels))

    def kinds(self, action: str) -> tuple[str, ...]:
        return self._world.kinds(action)

    def snapshot(self) -> Any:
        return self._world.snapshot()

    def restore(self, state: Any) -> None:
        self._world.restore(state)

    def regrade(self, task: str, submission: str) -> Mapping[str, float | None]:
        graded: Mapping[str, float | None] = self._world.regrade(task, submission)  # type: ignore[attr-defined]
        return graded

    def withheld(self, task: str) -> tuple[str, ...]:
        secrets: tuple[str, ...] = self._world.withheld(task)  # type: ignore[attr-defined]
        return secrets

    @property
    def needed(self) -> tuple[str, ...]:
        kinds: tuple[str, ...] = self._world.needed  # type: ignore[attr-defined]
        return kinds

    def _told(self, channels: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in channels if name not in self._hidden)
