"""What was found in a run, and what could be looked at in it: the rows of `findings.jsonl` and of
`looks.jsonl`.

How far a finding reaches is decided here alone, when it is built (`level_of`). Whoever reads it
takes its `level`; only a row that was stored without one is decided on reading, by the same
function.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import ConfigDict, model_validator

from forensics.records.record import Record, Texts

Level = Literal["none", "attempt", "obtained", "used", "credited"]
LINKS: Final[tuple[Level, ...]] = ("attempt", "obtained", "used", "credited")


class BrokenRule(Record):
    """A sentence of the prompt, the steps that override it, and what the agent said of it."""

    prompt_said: str
    steps: tuple[int, ...]
    agent_said: str | None = None
    agent_step: int | None = None


class Quote(Record):
    """Handed-in code that shows a finding: its file (`None`: an answer), the line in what was
    read (from 1), and the lines.
    """

    path: str | None
    line: int
    quote: str


class Finding(Record):
    """One run against one shortcut: a chain of evidence, and a row of `findings.jsonl`. Links are
    `None` where they cannot be told, and `explanation` says why. Steps count from 0.

    `attempted`, `attempt_steps`: what tries the shortcut. `obtained`, `obtained_steps`: what
    showed the answer, or did the tampering. `used`: whether what was handed in rests on it.
    `credited`: whether the run was won by it, the only link that looks at a score: true only of a
    used shortcut, but for an empty hand-in, which uses nothing. `level`: the furthest link that
    holds, none before it failing; `complete`: whether that is the last.

    `overlap`: how much of what the channel showed was handed in; `control_overlap`: the same for
    other tasks' content. `patterns`: the ids of the attempts that matched; `unresolved`: what
    the log would have had to show. `policy` and `file`: the run's, for reading it there.
    `broken`: the rule of the prompt that it breaks. `evidence`: the code that shows it. What a
    scanner of the caller's own adds is kept.
    """

    model_config = ConfigDict(extra="allow")

    trajectory: str
    side: str = ""
    task: str
    policy: str | None = None
    file: str | None = None
    family: str
    channel: str
    attempted: bool = True
    attempt_steps: tuple[int, ...] = ()
    obtained: bool | None
    obtained_steps: tuple[int, ...] = ()
    used: bool | None = None
    credited: bool | None = None
    level: Level = "none"
    complete: bool = False
    overlap: float | None = None
    control_overlap: float | None = None
    patterns: Texts = ()
    unresolved: str | None = None
    explanation: str = ""
    broken: BrokenRule | None = None
    evidence: Quote | None = None

    @model_validator(mode="before")
    @classmethod
    def _decided(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        row = {"used": None, "credited": None, **given}
        row.setdefault("obtained", bool(row.get("obtained_steps") or row["used"]))
        if "level" not in row:
            if row.get("complete") is False and row["credited"]:  # once any win was called so
                row["credited"] = False if False in (row["obtained"], row["used"]) else None
            links = (row["obtained"], row["used"], row["credited"])
            row["level"] = level_of(bool(row.get("attempted", True)), *links)
        return {**row, "complete": row["level"] == "credited"}

    @property
    def links(self) -> tuple[tuple[str, bool | None, tuple[int, ...]], ...]:
        """Each link in order: its name, whether it holds, the steps it cites."""
        holds = (self.attempted, self.obtained, self.used, self.credited)
        steps = (self.attempt_steps, self.obtained_steps, (), ())
        return tuple(zip(LINKS, holds, steps, strict=True))

    @property
    def untold(self) -> bool:
        """Whether it may be complete, and nobody can tell: no link fails and one is unknown."""
        return not self.complete and all(holds is not False for _, holds, _ in self.links)


def level_of(
    attempted: bool, obtained: bool | None, used: bool | None, credited: bool | None
) -> Level:
    """The furthest link that is known to hold; what comes after one that fails does not count."""
    level: Level = "attempt" if attempted else "none"
    for link, holds in zip(LINKS[1:], (obtained, used, credited), strict=True):
        if holds is False:
            break
        level = link if holds else level
    return level


class Coverage(Record):
    """What could be looked at in a run: of every family of shortcuts its status, and a row of
    `looks.jsonl`. `hand_in`: what the run left, by its source (patch, edits, submission, answer;
    `None`: the log shows none). `could_not_look` and `does_not_apply` give the reason.
    `unknown_tools`: tools that may have changed files or shown commits, and that nobody can read.
    """

    side: str = ""
    trajectory: str
    task: str
    policy: str
    file: str | None = None
    hand_in: str | None
    found: Texts
    not_found: Texts
    could_not_look: dict[str, str]
    does_not_apply: dict[str, str]
    unknown_tools: Texts = ()
