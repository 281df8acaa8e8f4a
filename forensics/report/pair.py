"""The sentences that a pair of logs opens with: the gain with its plain interval,
what it comes with, on which tasks, and how long the answers are.

They read the evidence of `layers.pair_split` by question. What was not measured
is left out; why stands with the other answers that are missing.
"""

from typing import Protocol

from forensics.phrases import MINUS, capital, percent, plural, points
from forensics.records import Evidence
from forensics.records.evidence import Scalar

PARTS = ("pair.finishing", "pair.format", "pair.correctness", "pair.outside_format")
BY_TEXT = "by the form "
CLEARLY = 2 / 3  # share of the rise from which it is called mostly of one kind


class Answered(Protocol):
    """What has the evidence on a question."""

    def answer(self, question: str) -> Evidence | None:
        """The evidence on a question, about nothing in particular."""


def pair_told(data: Answered) -> tuple[str, ...]:
    """What a pair of logs says, in up to four sentences; `()` where it says nothing."""
    gain = data.answer("pair.gain_plain")
    if gain is None:
        return ()
    told = (_gain(gain), _parts(data), _tasks(data, gain), _length(data))
    return tuple(filter(None, told))


def _gain(gain: Evidence) -> str:
    before, after = (_number(gain.diagnostics.get(side)) for side in ("before", "after"))
    verb = "rose" if gain.estimate > 0 else "fell" if gain.estimate < 0 else "stayed"
    seeds = _number(gain.diagnostics.get("seeds"))
    mean = f", the mean of {seeds:g} sets after training" if seeds > 1 else ""
    ends = _ends(gain, 100)
    return (
        f"The score {verb} from {percent(before)} to {percent(after)}{mean}:"
        f" {points(gain.estimate, 1)} points (plain paired interval over"
        f" {plural(gain.clusters, 'task')} {ends})."
    )


def _ends(found: Evidence, scale: float = 1) -> str:
    """Both ends of the interval, whole numbers."""
    if found.interval is None:
        return "not known"
    low, high = (f"{scale * end:,.0f}" for end in (found.interval.low, found.interval.high))
    return " to ".join("0" if end == "-0" else end.replace("-", MINUS) for end in (low, high))


def _parts(data: Answered) -> str:
    """The parts, the largest first."""
    found = [part for question in PARTS if (part := data.answer(question))]
    shown = [part for part in found if abs(part.estimate) >= 0.0005]
    if not shown:
        return ""
    by_size = sorted(shown, key=lambda part: -abs(part.estimate))
    told = [f"{points(part.estimate, 1)} with {_what(part)}" for part in by_size]
    return f"Of these points, {_listed(told).replace(' with ', ' come with ', 1)}."


def _what(part: Evidence) -> str:
    """What a part comes with, and how large it is where the format is told in another way."""
    words = str(part.diagnostics.get("comes with", "a change"))
    for way, value in part.diagnostics.items():
        if way.startswith(BY_TEXT) and abs(_number(value) - part.estimate) >= 0.0005:
            return f"{words} ({points(_number(value), 1)} {way})"
    return words


def _listed(told: list[str]) -> str:
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"


def _tasks(data: Answered, gain: Evidence) -> str:
    """Newly solved or sharpened, where the gain is more than chance."""
    fresh = data.answer("pair.newly_solved")
    if fresh is None or gain.interval is None or gain.interval.low <= 0:
        return ""
    share, facts = fresh.estimate, fresh.diagnostics
    kind = "both sharpening and newly solved tasks"
    if share >= CLEARLY:
        kind = "mostly newly solved tasks"
    elif share <= 1 - CLEARLY:
        kind = "mostly sharpening"
    wins, new = facts.get("new wins"), facts.get("on tasks never won before")
    part = f"{percent(share)} of the rise is"
    if wins is not None and new is not None:
        part = f"{new:,} of {wins:,} new wins are"
    tries, unseen = _number(facts.get("tries")), percent(_number(facts.get("unseen rate")))
    return (
        f"On these tasks it is {kind}: {part} on tasks never won before in {tries:g} tries (a task"
        f" won in less than {unseen} of its runs can look so)."
    )


def _length(data: Answered) -> str:
    """How the length changed, where it is more than chance."""
    found = data.answer("pair.length")
    if found is None or found.interval is None or found.interval.contains(0):
        return ""
    facts = {name: _number(value) for name, value in found.diagnostics.items()}
    what = "runs" if max(facts["turns before"], facts["turns after"]) > 1 else "answers"
    turns = ""
    if what == "runs":
        turns = f", in {facts['turns before']:.1f} and {facts['turns after']:.1f} turns"
    return (
        f"{capital(what)} became {'shorter' if found.estimate < 0 else 'longer'}:"
        f" {facts['before']:,.0f} to {facts['after']:,.0f} characters on average (medians"
        f" {facts['median before']:,.0f} and {facts['median after']:,.0f}){turns}."
    )


def _number(value: Scalar) -> float:
    """A number of the diagnostics; a file that was written by hand may hold anything."""
    return float(value) if isinstance(value, int | float) else 0.0
