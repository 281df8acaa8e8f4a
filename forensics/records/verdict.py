"""The verdict and its parts."""

from typing import Any, Literal

from pydantic import Field, field_validator

from forensics.records.record import Record, Texts, VersionedRecord

Label = Literal["genuine", "mixed", "phantom", "degenerate", "regression", "noise", "undetermined"]
ReasonCode = Literal["source-not-allowed", "family-not-tested", "too-wide", "unsettled"]
SourceStatus = Literal["tested", "not-applicable", "not-tested", "accepted", "allowed"]


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


class Source(Record):
    """Something that a gain may run through, and what an intervention on it
    showed.

    `family`: the intervention (`scrubbing`, `refusal`, `regrading`, ...);
    `source`: the channel or the kind of action, `None` for the family as a
    whole; `said`: it in words, where its name says little. `carried`: points of the
    score that it carries, where that was measured.
    `detects`: the share of the gain that the test would have seen with power
    .9. `accepted`: not tested, and the reader takes that upon themselves;
    `allowed`: the reader says that it is part of the job. `todo`: what the
    reader can do about it, `""` where nothing is left to do.
    """

    family: str
    source: str | None = None
    said: str = Field(default="", exclude_if=lambda said: not said)
    status: SourceStatus
    carried: Estimate | None = None
    detects: float | None = None
    reason: str = ""
    todo: str = ""

    @property
    def told(self) -> str:
        """In words with the name that `--allow` takes, or that name alone."""
        return f"{self.said} (`{self.source}`)" if self.said else f"`{self.source}`"


class Parts(Record):
    """What a gain is made of, in points of the score. Those that are known add up
    to the gain.

    `phantom`: carried by shortcuts. `unlocked`: what the policy before training
    could do if it was asked in another way, or learns from a coin as well. `sampling`:
    what it reaches when it is drawn otherwise, greedily for one. `open`:
    what sources that nobody tested or allowed may carry at most. `learned`: the rest.
    """

    learned: Estimate | None = None
    unlocked: Estimate | None = None
    sampling: Estimate | None = None
    phantom: Estimate | None = None
    open: Estimate | None = None


class Verdict(VersionedRecord):
    """The answer to *is the gain real?*

    `reason_code`: why a label is `undetermined`, `None` for the others.
    `basis`: whether both worlds were run again or only logs were read.
    `genuine_gain` and `phantom_gain` are `None` where they could not be
    measured. `parts`: what the gain is made of, `None` where there is none.
    `sources`: every source that was tried, and every family that was not.
    `allowed` kinds of action and `accepted` families: what the reader took upon
    themselves. `rule` is the hash of the rule that decided and of these two,
    `decided_by` the id of its clause, `evidence` the ids of what was weighed.
    """

    label: Label
    reason_code: ReasonCode | None = None
    basis: Literal["re-run", "logs"] = "re-run"
    gain: Estimate | None
    genuine_gain: Estimate | None
    phantom_gain: Estimate | None
    parts: Parts | None = None
    score_before: Estimate | None = None
    score_after: Estimate | None = None
    share_of_wins_via_channel: dict[str, Estimate] = {}
    sources: tuple[Source, ...] = ()
    allowed: Texts = ()
    accepted: Texts = ()
    sentence: str
    reasons: Texts
    gaps: tuple[Gap, ...] = ()
    decided_by: str
    rule: str
    evidence: Texts = ()

    @field_validator("basis", mode="before")
    @classmethod
    def _told_before(cls, basis: Any) -> Any:
        """Version 1 of the rule wrote `logs alone`."""
        return "logs" if basis == "logs alone" else basis
