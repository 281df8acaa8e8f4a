"""Under what circumstances a subject plays.

A subject's runs are stored by one `Condition`, whose content says everything that can change
them: channels that are scrubbed from the world, actions that are refused and drawn again, a
world that is altered, activations that are steered, and another way of drawing tokens.
"""

from dataclasses import dataclass
from typing import Any

from forensics.phrases import printable
from forensics.protocols import Alteration, Constraint, Intervention, SamplingSettings
from forensics.records import content_hash


@dataclass(frozen=True, kw_only=True)
class Condition:
    """`scrubbed`: names of channels, sorted. `refused`: which actions are refused. `altered`:
    how what the policy is shown differs. `steered`: changes of activations. `sampling`:
    `None` draws tokens as the budget says.
    """

    scrubbed: tuple[str, ...] = ()
    refused: Constraint | None = None
    altered: Alteration | None = None
    steered: tuple[Intervention, ...] = ()
    sampling: SamplingSettings | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scrubbed", tuple(sorted(self.scrubbed)))
        object.__setattr__(self, "steered", tuple(self.steered))

    @property
    def key(self) -> str:
        """A hash of the content: two conditions with one key give one subject the same runs."""
        settings = None if self.sampling is None else self.sampling.content()
        return content_hash([self.content(), settings])

    @property
    def changed(self) -> bool:
        """Whether more than the channels of the world differs from the open world."""
        return bool(self.refused or self.altered or self.steered or self.sampling)

    @property
    def said(self) -> str:
        """The condition in words: `without git-history, prompts with their rows shuffled`."""
        drawn = None if self.altered else self.sampling
        parts = [
            f"without {' and '.join(map(printable, self.scrubbed))}" if self.scrubbed else "",
            *(one.said or printable(one.name) for one in (self.refused, self.altered) if one),
            "activations changed" if self.steered else "",
            f"drawn at temperature {drawn.temperature:g}" if drawn else "",
        ]
        return ", ".join(filter(None, parts)) or "open world"

    def content(self) -> dict[str, Any]:
        """What the content address of a request holds of it, the sampling settings apart."""
        coupled = (self.refused or self.sampling) and not self.steered
        return {
            "without": list(self.scrubbed),
            "constraint": self.refused.name if self.refused else None,
            "interventions": [f"{change.site}:{change.name}" for change in self.steered],
            # younger than the oldest folders; a coupled run is another than an uncoupled one
            **({"altered": self.altered.name} if self.altered else {}),
            **({"coupled": True} if coupled else {}),
        }


OPEN = Condition()
