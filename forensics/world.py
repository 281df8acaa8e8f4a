"""A world of one's own, in some forty lines.

`World` has defaults for what most worlds share: options and their identity, channels and worlds
scrubbed of them, names of tasks, snapshots. Nothing has to inherit it: a class with the methods
of `forensics.protocols.Environment` is a world all the same. Which of its names, and of
`mini-repo`'s, stay as they are is written in docs/own-environment.md.

`PlayedElsewhere` is a world whose episodes are played by somebody else's harness. It names its
tasks and its channels, so that a case can ask for runs of it by condition; it cannot be stepped
here. What has to step it (`reset`, `step`, snapshots) is told so, and is *not tested*.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import numpy as np

from forensics.budget import Limit
from forensics.errors import MissingInput, UserError
from forensics.protocols import Channel, Environment, Observation, StepResult
from forensics.records import content_hash

CURE: Final = "Measure it in a world that is stepped here (docs/own-environment.md)."
SPLITS: Final = ("train", "held-out")
RENAMED: Final = {  # what worlds by others were built on, and what stands for it today
    "_running": "self.episode, without a call",
    "_options": "self.chosen",
    "_scrubbed": "self.scrubbed",
}


def environment_key(environment: Environment) -> str:
    """The identity of a world: its name and every option."""
    return content_hash({"name": environment.name, "options": dict(environment.options)})


class World(ABC):
    """Give it a `name`, and write `reset` and `step`. All that changes in an episode, random
    stream included, goes into `self.episode`.

    `defaults`: each option with the text that it has unless another is given. `shortcuts`: the
    channels. `commands`: the first words of actions, each a kind of action; where there are
    none, every action is an `answer`. `size`: how many tasks each split has.
    """

    name: str
    defaults: Mapping[str, str] = {}
    shortcuts: tuple[Channel, ...] = ()
    commands: tuple[str, ...] = ()
    size: int = 10_000

    def __init__(self, **options: str) -> None:
        if unknown := sorted(set(options) - set(self.defaults)):
            known = ", ".join(self.defaults) or "none"
            raise UserError(f"{self.name} has no option '{unknown[0]}'; it has: {known}")
        self.chosen = {**self.defaults, **{key: str(value) for key, value in options.items()}}
        self.scrubbed: tuple[str, ...] = ()
        self._episode: Any = None

    if not TYPE_CHECKING:  # who checks types finds out by himself

        def __getattr__(self, name: str) -> Any:
            """Of a name that is not there. Raises `AttributeError` with what to use."""
            kind = type(self).__name__
            if name in RENAMED:
                raise AttributeError(f"{kind} has no {name} any more; use {RENAMED[name]}")
            raise AttributeError(f"'{kind}' object has no attribute '{name}'")

    @abstractmethod
    def reset(self, task: str, seed: int) -> Observation:
        """Start an episode: set `self.episode`, and say what the prompt shows."""

    @abstractmethod
    def step(self, action: str) -> StepResult:
        """Take one action; the last one states the outcome (`graded`)."""

    @property
    def options(self) -> Mapping[str, str]:
        """Every option with its value; a scrubbed world is another one."""
        return self.chosen | ({"without": ",".join(self.scrubbed)} if self.scrubbed else {})

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The shortcuts that are open."""
        return tuple(one for one in self.shortcuts if one.name not in self.scrubbed)

    def without(self, *channels: str) -> Self:
        """The same world with these shortcuts taken out; this one stays as it is."""
        names = [channel.name for channel in self.shortcuts]
        if unknown := sorted(set(channels) - set(names)):
            known = ", ".join(sorted(names)) or "none"
            raise UserError(f"{self.name} has no channel '{unknown[0]}'; it has: {known}")
        other = self.spawn()
        other.scrubbed = tuple(sorted({*self.scrubbed, *channels}))
        return other

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        """Names of tasks, such as `held-out-0042`. What a task holds must follow from its name,
        and differ between the splits.
        """
        require_split(split)
        most = min(number, self.size)
        chosen = np.random.default_rng(seed).choice(self.size, most, replace=False)
        return tuple(f"{split}-{which:04d}" for which in sorted(chosen))

    def kinds(self, action: str) -> tuple[str, ...]:
        """The kind of an action, told without taking it."""
        if not self.commands:
            return ("answer",)
        word = "".join(action.split()[:1])
        return (word,) if word in self.commands else ("invalid",)

    def spawn(self) -> Self:
        """A fresh instance, so that many episodes run side by side."""
        other = copy.copy(self)
        other._episode = None
        return other

    def snapshot(self) -> Any:
        """All that `restore` needs to go on exactly."""
        return copy.deepcopy(self._episode)

    def restore(self, state: Any) -> None:
        self._episode = copy.deepcopy(state)

    # -- for the methods of a world ----------------------------------------------------

    @property
    def episode(self) -> Any:
        """What the running episode holds. Raises `UserError` where none is running."""
        if self._episode is None:
            raise UserError("no episode is running; call reset(task, seed) first")
        return self._episode

    @episode.setter
    def episode(self, state: Any) -> None:
        self._episode = state

    def if_open(self, channel: str) -> tuple[str, ...]:
        """The channel's name where it is open, nothing where it is scrubbed: the `channels` of
        a text that would show it.
        """
        return () if channel in self.scrubbed else (channel,)

    def number(self, option: str, least: float, most: float = inf, *, whole: bool = True) -> Any:
        """The number that an option states. Raises `UserError` for any other text."""
        text, limit = self.chosen[option], Limit(whole, least, most)
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = None
        if not limit.allows(value):
            raise UserError(f"{option} of {self.name} is '{text}' and must be {limit}")
        return value

    def graded(
        self,
        action: str,
        outcome: float | None,
        observation: str = "",
        *,
        submission: str | None = None,
        rewards: Mapping[str, float | None] | None = None,
        cut: bool = False,
        **more: Any,
    ) -> StepResult:
        """The last step of an episode: it ends by the rules, or is `cut` off by a limit. `more`:
        other fields of a `StepResult`.
        """
        self._episode = None
        return StepResult(
            observation=observation,
            kinds=self.kinds(action),
            rewards={"score": outcome} if rewards is None else rewards,
            outcome=outcome,
            terminated=not cut,
            truncated=cut,
            submission=submission,
            **more,
        )


def require_split(split: str) -> None:
    """Raises `UserError` for what is no split."""
    if split not in SPLITS:
        raise UserError(f"there is no split '{split}'; there are: {', '.join(SPLITS)}")


class PlayedElsewhere:
    """`by_split`: the names of the tasks of `train` and `held-out`; `identity`: options that say
    everything that can change an episode (contents by hash, no paths).
    """

    def __init__(
        self,
        name: str,
        by_split: Mapping[str, Sequence[str]],
        channels: Sequence[Channel] = (),
        identity: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.by_split = {split: tuple(tasks) for split, tasks in by_split.items()}
        self.shortcuts = tuple(channels)
        self.identity = dict(identity or {})
        self.notes = tuple(notes)  # what its verdicts' readers are told
        self.scrubbed: tuple[str, ...] = ()

    @property
    def options(self) -> Mapping[str, str]:
        """Its identity; a scrubbed world is another one."""
        return self.identity | ({"without": ",".join(self.scrubbed)} if self.scrubbed else {})

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The shortcuts that are open."""
        return tuple(one for one in self.shortcuts if one.name not in self.scrubbed)

    def without(self, *channels: str) -> Self:
        """The same world scrubbed of these channels. Raises `UserError` for an unknown one."""
        known = {one.name for one in self.shortcuts}
        if unknown := sorted(set(channels) - known):
            told = ", ".join(sorted(known)) or "none"
            raise UserError(f"{self.name} has no channel '{unknown[0]}'; it has: {told}")
        other = copy.copy(self)
        other.scrubbed = tuple(sorted({*self.scrubbed, *channels}))
        return other

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        """Names of tasks of a split, all where there are fewer; `seed` draws which."""
        require_split(split)
        known = self.by_split.get(split, ())
        if number >= len(known):
            return known
        chosen = np.random.default_rng(seed).choice(len(known), number, replace=False)
        return tuple(known[at] for at in sorted(chosen))

    def kinds(self, action: str) -> tuple[str, ...]:
        """The kinds of the actions in a text, without taking them: none is known here."""
        return ()

    def _elsewhere(self, *_: Any) -> NoReturn:
        raise MissingInput(f"Episodes of {self.name} are played outside this program.", CURE)

    spawn = reset = step = snapshot = restore = _elsewhere
