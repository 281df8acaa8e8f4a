"""A shadow world: a policy is shown another task, but for what is kept of its
own, and what it does is graded on its own.

1. Two instances run in lockstep: the task's own one, which grades, and that of
   a *donor* task, whose texts are shown. Both get every action.
2. In the donor's prompt the kept fields have the values of the task itself. Or
   the other way round (`own`): in the task's own prompt some fields have the
   values of the donor.
3. Kept values also take the donor's place in what later actions show, if they
   have three characters or more: what is shorter stands elsewhere by chance.
4. Where the donor's episode ends first, nothing more is shown.

Prompts are those that the fields were found in: a world whose prompts hang on
the seed as well has none (`fields.prompt_fields`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from forensics.protocols import Alteration, Environment, Observation, StepResult
from forensics.records import content_hash
from resampling.sources.altered_world import AlteredWorld, alteration
from resampling.sources.fields import PromptFields, parted

SHORTEST = 3  # characters of a value that is looked for in what actions show


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of a task: fields by `names`, or (`own`) all but these.
    `apart`: the donor may have another template.
    """

    names: frozenset[str] = frozenset()
    own: bool = False
    apart: bool = False

    def __str__(self) -> str:
        names = " and ".join(sorted(self.names))
        return f"all but {names}" if self.own else names or "nothing"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is kept, and which task shows the rest."""

    fields: PromptFields
    donors: Mapping[str, str]
    kept: Kept

    def __deepcopy__(self, memo: Any) -> "Plan":
        return self  # nothing of it ever changes

    def prompt(self, task: str) -> tuple[str, str | None]:
        """The prompt and the system text that a task's run is shown."""
        donor = self.donors[task]
        base, other = (task, donor) if self.kept.own else (donor, task)
        values = self.fields.values[other]
        put = {name: values.get(name, "") for name in self.kept.names}
        pieces = self.fields.pieces[base]
        return parted("".join(put.get(piece.field or "", piece.text) for piece in pieces))

    @cached_property
    def key(self) -> str:
        pieces = [[task, *map(list, self.fields.pieces[task])] for task in sorted(self.donors)]
        return content_hash([sorted(self.donors.items()), pieces], 12)

    def swaps(self, task: str) -> dict[str, str]:
        """What takes the place of what in what actions show."""
        values, others = self.fields.values[task], self.fields.values[self.donors[task]]
        kept = values.keys() - self.kept.names if self.kept.own else self.kept.names
        return {
            others[name]: values[name]
            for name in sorted(kept)
            if name in values and len(others.get(name, "")) >= SHORTEST
        }


class Shadow(AlteredWorld):
    """See the module's text."""

    def __init__(self, inner: Environment, name: str, plan: Plan) -> None:
        super().__init__(inner, name)
        self._plan, self._donor = plan, inner.spawn()
        self._over, self._swaps = False, {}  # type: bool, dict[str, str]

    def _around(self, inner: Environment) -> Self:
        other = super()._around(inner)
        other._donor = inner.spawn()
        return other

    def reset(self, task: str, seed: int) -> Observation:
        self.task, self._over = task, False
        self._inner.reset(task, seed)
        start = self._donor.reset(self._plan.donors[task], seed)
        text, system = self._plan.prompt(task)
        self._swaps = self._plan.swaps(task)
        return Observation(text=text, system=system, channels=start.channels)

    def step(self, action: str) -> StepResult:
        own = self._inner.step(action)
        shown, channels = "", ()  # type: str, tuple[str, ...]
        if not self._over:
            other = self._donor.step(action)
            self._over = other.terminated or other.truncated
            shown, channels = self.shown(other.observation), other.channels
        return StepResult(**{**vars(own), "observation": shown, "channels": channels})

    def shown(self, text: str) -> str:
        if not self._swaps:
            return text
        parts = sorted(map(re.escape, self._swaps), key=len, reverse=True)
        return re.sub(rf"(?<!\w)(?:{'|'.join(parts)})(?!\w)", lambda met: self._swaps[met[0]], text)

    def snapshot(self) -> Any:
        donor = None if self._over else self._donor.snapshot()
        return self.task, self._over, dict(self._swaps), donor, self._inner.snapshot()

    def restore(self, state: Any) -> None:
        self.task, self._over, swaps, donor, own = state
        self._swaps = dict(swaps)
        self._inner.restore(own)
        if donor is not None:
            self._donor.restore(donor)


def shadow(plan: Plan) -> Alteration:
    """The alteration of a plan."""
    return alteration(
        f"shadow keeping {plan.kept} {plan.key}", lambda inner, name: Shadow(inner, name, plan)
    )
