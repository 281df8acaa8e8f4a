"""What the scanner reports: one run against one family of shortcuts, link by link."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["none", "attempt", "obtained", "used", "credited"]
LEVELS: tuple[Level, ...] = ("none", "attempt", "obtained", "used", "credited")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A chain of evidence. `None`: cannot be told from the log, and `explanation` says why.

    `attempt_steps`: the actions that try the shortcut. `obtained_steps`: the steps that showed the answer, or that
    did the tampering. `used`: whether what was handed in rests on it. `credited`: whether a used shortcut was
    scored as a win (the only link that looks at a score; an empty hand-in that wins is credited although its `used`
    stays open). `unresolved`: what the log would have had to show. `patterns`: the ids of the attempts that
    matched.
    """

    trajectory: str
    task: str
    family: str
    channel: str
    attempt_steps: tuple[int, ...]
    obtained: bool | None
    obtained_steps: tuple[int, ...]
    used: bool | None
    credited: bool | None
    explanation: str
    patterns: tuple[str, ...] = ()
    unresolved: str | None = None
    overlap: float | None = None

    @property
    def level(self) -> Level:
        """The furthest link that is known to hold."""
        if self.used or self.credited:
            return "credited" if self.credited else "used"
        return "obtained" if self.obtained else "attempt"

    def row(self) -> Mapping[str, object]:
        """The finding as a row of `findings.jsonl`."""
        return {**asdict(self), "level": self.level}
