"""An environment in front of another one: the same tasks, the same grading, and
something between it and the policy.

1. A family of tests derives from `AlteredWorld` and changes what the policy is
   `shown`, or what of an action is `taken`; everything else is the inner
   world's own business.
2. `alteration(name, make)` is what `Case.rollouts(altered=...)` takes.

An altered world is told from the inner one by its options, and from another
alteration by its name: everything that matters must be in there.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Self

from forensics.protocols import Alteration, Channel, Environment, Observation, StepResult


class AlteredWorld:
    """Shows what the inner world shows. Derive, and change what should differ.

    Attributes that are not here (`rendering`, `needed`, `regrade`, ...) are the
    inner world's. `task` is the running one.
    """

    task: str = ""

    def __init__(self, inner: Environment, alteration: str) -> None:
        self._inner, self._alteration = inner, alteration

    # -- what a family changes ---------------------------------------------------------

    def begin(self, task: str, seed: int) -> None:
        """Called before the inner world is reset: choose what this episode needs."""

    def shown(self, text: str) -> str:
        """What the policy reads instead of a text of the inner world."""
        return text

    def taken(self, action: str) -> str:
        """What the inner world gets instead of an action of the policy."""
        return action

    # -- the inner world ---------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"{self._inner.name}, {self._alteration}"

    @property
    def options(self) -> Mapping[str, str]:
        return {**self._inner.options, "altered": self._alteration}

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self._inner.channels

    @property
    def scrubbed(self) -> tuple[str, ...]:
        return self._inner.scrubbed

    def without(self, *channels: str) -> Self:
        return self._around(self._inner.without(*channels))

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return self._inner.tasks(split, number, seed)

    def spawn(self) -> Self:
        return self._around(self._inner.spawn())

    def _around(self, inner: Environment) -> Self:
        other = copy.copy(self)
        other._inner = inner
        return other

    def reset(self, task: str, seed: int) -> Observation:
        self.task = task
        self.begin(task, seed)
        start = self._inner.reset(task, seed)
        system = None if start.system is None else self.shown(start.system)
        return Observation(text=self.shown(start.text), system=system, channels=start.channels)

    def step(self, action: str) -> StepResult:
        result = self._inner.step(self.taken(action))
        return StepResult(**{**vars(result), "observation": self.shown(result.observation)})

    def kinds(self, action: str) -> tuple[str, ...]:
        return self._inner.kinds(self.taken(action))

    def snapshot(self) -> Any:
        own = {name: value for name, value in vars(self).items() if name != "_inner"}
        return copy.deepcopy(own), self._inner.snapshot()

    def restore(self, state: Any) -> None:
        own, inner = state
        vars(self).update(copy.deepcopy(own))
        self._inner.restore(inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)


def alteration(name: str, make: Callable[[Environment, str], Environment]) -> Alteration:
    """`make(inner, name)` gives the altered world of an environment."""
    return Alteration(name=name, of=lambda inner: make(inner, name))
