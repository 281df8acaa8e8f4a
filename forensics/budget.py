"""How much a case may sample: a value that is valid once it is built."""

from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

from forensics.errors import UserError
from forensics.protocols import SamplingSettings


def _written(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


class Limit(NamedTuple):
    """What a number may be; `above`: more than `least`."""

    whole: bool
    least: float
    most: float = inf
    above: bool = False

    def allows(self, value: Any) -> bool:
        kind: Any = int if self.whole else int | float
        if not isinstance(value, kind) or isinstance(value, bool):
            return False
        return bool(
            (self.least < value if self.above else self.least <= value) and value <= self.most
        )

    def __str__(self) -> str:
        start = (
            f"{'above' if self.above else 'from' if self.most < inf else 'of at least'}"
            f" {_written(self.least)}"
        )
        end = (
            ""
            if self.most == inf
            else f"{' and at most' if self.above else ' to'} {_written(self.most)}"
        )
        return f"{'a whole number' if self.whole else 'a number'} {start}{end}"


MOST: Final = 1_000_000  # what is above is a slip, which would sample without an end
OWN: Final = {"tasks": Limit(True, 1, 1000 * MOST), "samples": Limit(True, 1, MOST)}
SETTINGS: Final = {
    "temperature": Limit(False, 0, 100),
    "top_p": Limit(False, 0, 1, above=True),
    "top_k": Limit(True, 0, 1000 * MOST),
    "max_turn_tokens": Limit(True, 1, 1000 * MOST),
    "max_tokens": Limit(True, 2, 1000 * MOST),
    "repetition_penalty": Limit(False, 0, 100, above=True),
    "presence_penalty": Limit(False, -100, 100),
    "frequency_penalty": Limit(False, -100, 100),
}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """`tasks`: held-out tasks; `samples`: episodes a task, policy and world;
    `settings`: how tokens are drawn.

    Raises `UserError` for a number that means nothing, those of the sampling
    settings included.
    """

    tasks: int = 600
    samples: int = 4
    settings: SamplingSettings = field(default_factory=SamplingSettings)

    def __post_init__(self) -> None:
        if not isinstance(self.settings, SamplingSettings):
            raise UserError(f"settings is {self.settings!r} and must be SamplingSettings")
        for holder, limits in ((self, OWN), (self.settings, SETTINGS)):
            for name, limit in limits.items():
                if not limit.allows(value := getattr(holder, name)):
                    raise UserError(f"{name.replace('_', '-')} is {value!r} and must be {limit}")

    def content(self) -> dict[str, Any]:
        """What content addresses hold."""
        return asdict(self) | {"settings": self.settings.content()}
