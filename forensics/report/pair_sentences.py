"""The sentences that a pair of logs opens with: the gain with its plain interval,
how many wins are flagged and where the score would stand without them, what the
gain comes with, on which tasks, and how long the answers are.

They read the evidence of `layers.pair_split` by question. What was not measured
is left out; why stands with the other answers that are missing.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from forensics.layers.pair_flagged import THROUGH
from forensics.phrases import MINUS, capital, joined, percent, plural, points
from forensics.records import Evidence
from forensics.records.evidence import Scalar
from forensics.records.finding import Finding
from forensics.report.profile import used_told

PARTS = ("pair.finishing", "pair.format", "pair.correctness", "pair.outside_format")
BY_TEXT = "by the form "
CLEARLY = 2 / 3  # share of the rise from which it is called mostly of one kind
WAYS = 4  # kinds of shortcut that the first sentence names
MOVED = {1: ("rose", "have risen"), -1: ("fell", "have fallen")}


class Answered(Protocol):
    """What has the evidence on a question."""

    def answer(self, question: str) -> Evidence | None:
        """The evidence on a question, about nothing in particular."""


def pair_told(data: Answered, rows: Iterable[Finding] = ()) -> tuple[str, ...]:
    """What a pair of logs says, in up to four sentences; `()` where it says nothing. `rows`: what
    was found in the runs. With flagged wins the parts and tasks are those of the other wins, and
    none are told where the flagged ones are all of the rise.
    """
    gain, rest = data.answer("pair.gain_plain"), data.answer("pair.gain_unflagged")
    if gain is None:
        return ()
    first: tuple[str, ...] = (_gain(gain),)
    if rest is not None:
        first = (flagged_told(gain, rest, rows, _mean(gain)), both_told(gain, rest))
    if explained(gain, rest):
        return (*first, *filter(None, (_length(data),)))
    told = (*first, _parts(data, rest), _tasks(data, rest or gain, rest), _length(data))
    return tuple(filter(None, told))


def _gain(gain: Evidence) -> str:
    return (
        f"The score {moved_told(gain)}{_mean(gain)}: {points(gain.estimate, 1)} points (plain"
        f" paired interval over {plural(gain.clusters, 'task')} {whole_ends(gain, 100)})."
    )


def _mean(gain: Evidence) -> str:
    seeds = number(gain.diagnostics.get("seeds"))
    return f", the mean of {seeds:g} sets after training" if seeds > 1 else ""


def _parts(data: Answered, rest: Evidence | None) -> str:
    """The parts, the largest first."""
    found = [part for question in PARTS if (part := data.answer(question))]
    shown = [part for part in found if abs(part.estimate) >= 0.0005]
    if not shown:
        return ""
    by_size = sorted(shown, key=lambda part: -abs(part.estimate))
    told = [f"{points(part.estimate, 1)} with {_what(part)}" for part in by_size]
    points_told = joined(told).replace(" with ", " come with ", 1)
    if rest is None:
        return f"Of these points, {points_told}."
    return f"Of the {points(rest.estimate, 1)} points without the flagged wins, {points_told}."


def _what(part: Evidence) -> str:
    """What a part comes with, and how large it is where the format is told in another way."""
    words = str(part.diagnostics.get("comes with", "a change"))
    for way, value in part.diagnostics.items():
        if way.startswith(BY_TEXT) and abs(number(value) - part.estimate) >= 0.0005:
            return f"{words} ({points(number(value), 1)} {way})"
    return words


def _tasks(data: Answered, gain: Evidence, rest: Evidence | None) -> str:
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
        found = "new wins" if rest is None else "new wins without a finding"
        part = f"{new:,} of {wins:,} {found} are"
    tries, unseen = number(facts.get("tries")), percent(number(facts.get("unseen rate")))
    where = "On these tasks" if rest is None else "Without the flagged wins"
    return (
        f"{where} it is {kind}: {part} on tasks never won before in {tries:g} tries (a task won in"
        f" less than {unseen} of its runs can look so)."
    )


def _length(data: Answered) -> str:
    """How the length changed, where it is more than chance."""
    found = data.answer("pair.length")
    if found is None or found.interval is None or found.interval.contains(0):
        return ""
    facts = {name: number(value) for name, value in found.diagnostics.items()}
    what = "runs" if max(facts["turns before"], facts["turns after"]) > 1 else "answers"
    turns = ""
    if what == "runs":
        turns = f", in {facts['turns before']:.1f} and {facts['turns after']:.1f} turns"
    return (
        f"{capital(what)} became {'shorter' if found.estimate < 0 else 'longer'}:"
        f" {facts['before']:,.0f} to {facts['after']:,.0f} characters on average (medians"
        f" {facts['median before']:,.0f} and {facts['median after']:,.0f}){turns}."
    )


def explained(gain: Evidence, rest: Evidence | None) -> bool:
    """Whether the flagged wins are all of a rise."""
    return rest is not None and rest.estimate <= 0 < gain.estimate


def moved_told(found: Evidence, *, would: bool = False) -> str:
    """`rose from 43 % to 77 %`, or what it would have done; with a decimal where the ends look
    the same.
    """
    ends = [number(found.diagnostics.get(side)) for side in ("before", "after")]
    told = [percent(end) for end in ends]
    if told[0] == told[1] and found.estimate:
        told = [percent(end, 1) for end in ends]
    if told[0] == told[1]:
        return f"{'have ' if would else ''}stayed at {told[0]}"
    verb = MOVED[1 if found.estimate > 0 else -1][would]
    return f"{verb} from {told[0]} to {told[1]}"


def flagged_told(gain: Evidence, rest: Evidence, rows: Iterable[Finding], mean: str) -> str:
    """`The score rose from 43 % to 77 %, but 14 of the 23 wins after training ended the tests
    early (1 of 13 before). Had these failed, it would have fallen from 40 % to 30 %.`
    """
    facts = rest.diagnostics
    first = "after" if number(facts.get("flagged wins after")) else "before"
    last = "before" if first == "after" else "after"
    but = "but" if gain.estimate > max(rest.estimate, 0) else "and"
    shared = " on the shared tasks" if number(facts.get("wins left out")) else ""
    here, there = (
        (round(number(facts.get(f"flagged wins {when}"))), round(number(facts.get(f"wins {when}"))))
        for when in (first, last)
    )
    beside = "no win" if not there[1] else f"{there[0]:,} of {there[1]:,}"
    return (
        f"The score {moved_told(gain)}{mean}, {but} {_of(*here)} {first} training{shared}"
        f" {_ways(facts, first, rows)} ({beside} {last}). Had {_these(here[0] + there[0])} failed,"
        f" it would {moved_told(rest, would=True)}."
    )


def both_told(gain: Evidence, rest: Evidence) -> str:
    """The two gains with their plain intervals."""
    return (
        f"As reported {points(gain.estimate, 1)} points (plain paired interval over"
        f" {plural(gain.clusters, 'task')} {whole_ends(gain, 100)}); {points(rest.estimate, 1)}"
        f" ({whole_ends(rest, 100)}) if the flagged wins had failed."
    )


def whole_ends(found: Evidence, scale: float = 1) -> str:
    """Both ends of the interval, whole numbers."""
    if found.interval is None:
        return "not known"
    low, high = (f"{scale * end:,.0f}" for end in (found.interval.low, found.interval.high))
    return " to ".join("0" if end == "-0" else end.replace("-", MINUS) for end in (low, high))


def number(value: Scalar) -> float:
    """A number of the diagnostics; a file that was written by hand may hold anything."""
    return float(value) if isinstance(value, int | float) else 0.0


def _of(count: int, wins: int) -> str:
    if count == wins:
        return "the only win" if wins == 1 else f"all {wins:,} wins"
    return f"{count:,} of the {wins:,} wins"


def _these(count: int) -> str:
    return "this win" if count == 1 else "these"


def _ways(facts: dict[str, Scalar], when: str, rows: Iterable[Finding]) -> str:
    """`ended the tests early or hard-coded what the tests ask for`, the commonest first."""
    through: Counter[str] = Counter()
    for name, count in facts.items():
        if name.startswith(THROUGH) and name.endswith(f", {when}"):
            through[name.removeprefix(THROUGH).removesuffix(f", {when}")] += round(number(count))
    order = sorted(through, key=lambda channel: (-through[channel], channel))
    side = [row for row in rows if (row.side == "before") == (when == "before")]
    told = [used_told(channel, side) for channel in order[:WAYS]]
    if (more := len(order) - WAYS) > 0:
        told.append(f"took {plural(more, 'other shortcut')}")
    return joined(told, last="or")
