"""The first sentences of a pair of logs with flagged wins: how many of them, by what, and where the
score would stand without them (`layers.pair_flagged`).
"""

from collections import Counter
from collections.abc import Iterable

from forensics.layers.pair_flagged import THROUGH
from forensics.phrases import MINUS, percent, plural, points
from forensics.records import Evidence
from forensics.records.evidence import Scalar
from forensics.report.chains import ChainRow
from forensics.report.profile import used_told

WAYS = 4  # kinds of shortcut that the first sentence names

MOVED = {1: ("rose", "have risen"), -1: ("fell", "have fallen")}


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


def flagged_told(gain: Evidence, rest: Evidence, rows: Iterable[ChainRow], mean: str) -> str:
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


def _ways(facts: dict[str, Scalar], when: str, rows: Iterable[ChainRow]) -> str:
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
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} or {told[-1]}"
