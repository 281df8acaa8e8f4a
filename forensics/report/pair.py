"""The sentences that a pair of logs opens with: the gain with its plain interval,
what it comes with, on which tasks, and how long the answers are.

They read the evidence of `layers.pair_split` by question. What was not measured
is left out; why stands with the other answers that are missing.
"""

from collections.abc import Iterable
from typing import Protocol

from forensics.phrases import capital, percent, plural, points
from forensics.records import Evidence
from forensics.report.chains import ChainRow
from forensics.report.pair_flagged import (
    both_told,
    explained,
    flagged_told,
    moved_told,
    number,
    whole_ends,
)

PARTS = ("pair.finishing", "pair.format", "pair.correctness", "pair.outside_format")
BY_TEXT = "by the form "
CLEARLY = 2 / 3  # share of the rise from which it is called mostly of one kind


class Answered(Protocol):
    """What has the evidence on a question."""

    def answer(self, question: str) -> Evidence | None:
        """The evidence on a question, about nothing in particular."""


def pair_told(data: Answered, rows: Iterable[ChainRow] = ()) -> tuple[str, ...]:
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
    points_told = _listed(told).replace(" with ", " come with ", 1)
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


def _listed(told: list[str]) -> str:
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"


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
