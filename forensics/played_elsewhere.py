"""A world whose episodes are played by somebody else's harness.

It names its tasks and its channels, so that a case can ask for runs of it by condition; it
cannot be stepped here. What has to step it (`reset`, `step`, snapshots) is told so, and is *not
tested*.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, Self

import numpy as np

from forensics.errors import MissingInput, UserError
from forensics.protocols import Channel
from forensics.world import require_split

CURE: Final = "Measure it in a world that is stepped here (docs/own-environment.md)."


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
