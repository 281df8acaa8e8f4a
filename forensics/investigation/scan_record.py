"""What of a run's record cannot be relied on, as rows of `integrity.jsonl`; and runs that are
copies of others.

A copy is a run of some length (`FEWEST_TURNS`, `FEWEST_CHARACTERS`) whose messages are, word for
word, those of an earlier run under another id. Only a hash of such runs is kept.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from forensics.actions import Action
from forensics.layers.use import step_text
from forensics.records import Trajectory, canonical_json
from forensics.records.case_file import IntegrityRow
from forensics.shortcuts.record_integrity import Gap, gap, record_gaps

COPIED: Final = "copied run"
FEWEST_TURNS: Final = 4
FEWEST_CHARACTERS: Final = 2000  # of what the agent wrote


class RecordRead(NamedTuple):
    """Of one run: where it stands, what was told of it, and a hash of what was said in it
    (`None`: too short to tell a copy).
    """

    origin: dict[str, Any]
    gaps: tuple[Gap, ...]
    body: bytes | None

    @property
    def lines(self) -> tuple[str, ...]:
        """The rows of `integrity.jsonl`."""
        return tuple(_line(self.origin, one) for one in self.gaps)


def read_record(side: str, trajectory: Trajectory, actions: Sequence[Action]) -> RecordRead | None:
    """What there is to tell of one run; `None` where that is nothing."""
    gaps = record_gaps(trajectory, actions)
    body = _body(trajectory)
    if not gaps and body is None:
        return None
    return RecordRead({"side": side, **trajectory.origin}, gaps, body)


class Copies:
    """Which runs were met before under another id."""

    def __init__(self) -> None:
        self._met: dict[bytes, tuple[str, str]] = {}

    def line(self, read: RecordRead) -> str | None:
        """The row of a run that says word for word what an earlier one says."""
        if read.body is None:
            return None
        name = (read.origin["side"], read.origin["trajectory"])
        first = self._met.setdefault(read.body, name)
        if first == name:
            return None
        where = first[1] if first[0] == name[0] else f"{first[1]} ({first[0]} training)"
        why = "its messages are word for word those of the quoted run"
        return _line(read.origin, gap(COPIED, (), where, why))


def _line(origin: dict[str, Any], told: Gap) -> str:
    return canonical_json(IntegrityRow(**origin, **told._asdict())) + "\n"


def _body(trajectory: Trajectory) -> bytes | None:
    """A hash of all messages of a run that is long enough, and written in free words."""
    steps = trajectory.steps
    said = [step_text(step) for step in steps if step.role == "assistant"]
    if len(said) < FEWEST_TURNS or sum(map(len, said)) < FEWEST_CHARACTERS:
        return None
    if any(step.kinds for step in steps):
        return None  # a language of a few words, in which many runs are alike
    told = blake2b(digest_size=16)
    for step in steps:
        told.update(f"{step.role}\0{step_text(step)}\0".encode(errors="replace"))
    return told.digest()
