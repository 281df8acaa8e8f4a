"""The verdict and its parts."""

from typing import Literal

from forensics.records.base import Record, VersionedRecord

Label = Literal["genuine", "mixed", "phantom", "degenerate", "regression", "noise", "undetermined"]


class Estimate(Record):
    """A number with its interval ends, the shape in which `case.json` states it."""

    estimate: float
    low: float
    high: float
    level: float = 0.95


class Gap(Record):
    """Something that could not be told apart, the measurement that would tell, and its cost."""

    text: str
    measurement: str
    cost: str


class Verdict(VersionedRecord):
    """The answer to *is the gain real?*

    `basis` says whether both worlds were run again or only logs were read. `genuine_gain` and
    `phantom_gain` are `None` where they could not be measured. `rule` is the hash of the rule that
    decided, `decided_by` the id of its clause, `evidence` the ids of what was weighed.
    """

    label: Label
    basis: Literal["re-run", "logs alone"] = "re-run"
    gain: Estimate | None
    genuine_gain: Estimate | None
    phantom_gain: Estimate | None
    score_before: Estimate | None = None
    score_after: Estimate | None = None
    share_of_wins_via_channel: dict[str, Estimate] = {}
    sentence: str
    reasons: tuple[str, ...]
    gaps: tuple[Gap, ...] = ()
    decided_by: str
    rule: str
    evidence: tuple[str, ...] = ()
