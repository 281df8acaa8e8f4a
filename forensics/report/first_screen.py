"""What stands first of a case from logs, the same in the terminal, in Markdown, on the page and in
JSON.

1. One set of logs: what its runs did (`profile`), then the score as it was reported and as it
   would be if the wins of the flagged runs had failed. No gain and no label.
2. Two sets: what happened to the score, and how many runs errored where that are many; then what
   the runs of each set did, then the label.
3. *Flagged* is a run with a shortcut that was used or credited; *open* one of which the log does
   not tell whether it used one. Only runs with an outcome count.
4. A share is not told over runs of which some could not be checked.

The sentences that a pair of logs opens with: the gain with its plain interval,
how many wins are flagged and where the score would stand without them, what the
gain comes with, on which tasks, and how long the answers are.

They read the evidence of `layers.pair_split` by question. What was not measured
is left out; why stands with the other answers that are missing.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from forensics.layers.pair_sides import THROUGH
from forensics.phrases import (
    MINUS,
    capital,
    joined,
    moved,
    percent,
    plural,
    point_range,
    points,
    printable,
)
from forensics.readers.unread_files import shapes_tried, unread_listed
from forensics.records import Evidence, Undefined, Verdict
from forensics.records.evidence import Scalar
from forensics.records.finding import Finding
from forensics.report.look_counts import family_told, looks_json, narrow_told, read_looks, why
from forensics.report.profile import (
    SideRuns,
    is_profile,
    runs_told,
    side_runs,
    stands,
    unscored_told,
    used_told,
)
from forensics.report.report_words import WORDING
from forensics.report.rows import rows_of
from forensics.shortcuts.looks import CoverageCounts
from forensics.verdict.sentences import LOST_SHARE

PARTS = ("pair.finishing", "pair.format", "pair.correctness", "pair.outside_format")
BY_TEXT = "by the form "
CLEARLY = 2 / 3  # share of the rise from which it is called mostly of one kind
WAYS = 4  # kinds of shortcut that the first sentence names
MOVED = {1: ("rose", "have risen"), -1: ("fell", "have fallen")}


class Answered(Protocol):
    """What has the evidence on a question."""

    def answer(self, question: str) -> Evidence | None:
        """The evidence on a question, about nothing in particular."""


UNREAD: Final = "unreadable.jsonl"
FIELDS: Final = ("side", "file", "where", "reason")
SHARES: Final = (
    "behaviour.channel_wins",
    "behaviour.channel_attempts",
    "behaviour.degenerate_runs",
)
SIDES: Final = {"before": "Before training"}


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The first screen. `headline`: one sentence; `gain`: further ones on the gain; `sides`: of
    two sets, what the runs of each did; `lines`: what belongs to the headline; `label`: of two
    sets; `judged`: whether there was a gain to judge. `hidden`: shares that may not be told.
    `looks`: of each side, where the case has them.
    """

    headline: str
    gain: tuple[str, ...] = ()
    sides: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    label: str = ""
    judged: bool = True
    hidden: frozenset[str] = frozenset()
    looks: Mapping[str, CoverageCounts]

    @property
    def told(self) -> tuple[str, ...]:
        """Everything in its order, the headline first."""
        label = (self.label,) if self.label else ()
        return (self.headline, *self.gain, *self.sides, *self.lines, *label)

    @property
    def not_looked_at(self) -> int:
        """Runs at which something could not be looked for, of all sides."""
        return sum(looks.not_looked_at for looks in self.looks.values())

    def tells(self, question: str) -> bool:
        """Whether a share may be told: only where every run could be checked."""
        return question not in SHARES or not self.not_looked_at

    def reasons(self, told: Iterable[str]) -> tuple[str, ...]:
        """Those of these sentences that may be told."""
        return tuple(sentence for sentence in told if sentence not in self.hidden)

    def stated(self) -> dict[str, Any]:
        """For machines."""
        return {
            "headline": self.headline,
            "lines": list(self.told[1:]),
            "looks": {side: looks_json(looks) for side, looks in sorted(self.looks.items())},
        }


def opening_of(
    folder: Path,
    content: Mapping[str, Any],
    verdict: Verdict,
    findings: Sequence[Evidence | Undefined],
    pair: Answered | None = None,
) -> Opening:
    """The first screen of a case from logs. `content`: that of `case.json`; `pair`: what has the
    answers on two sets.
    """
    logs: Mapping[str, Mapping[str, Any]] = content["provenance"].get("logs") or {}
    looks = read_looks(folder)
    shares = [one for one in findings if isinstance(one, Evidence) and one.question in SHARES]
    known: dict[str, Any] = {"looks": looks}
    if any(one.not_looked_at for one in looks.values()):
        known["hidden"] = frozenset(one.summary for one in shares)
    reading = content["provenance"].get("scores") or ""  # of other scales than 0 to 1
    unread = (reading, *unread_told(folder, logs))
    counts = (_total(logs, "runs"), _total(logs, "scored"))
    odd = sum(log.get("odd_rewards", 0) for log in logs.values())
    if is_profile(content["inputs"]):
        runs = side_runs(folder, counts[0])
        missing = unscored_told(*counts, runs.errored, odd)
        sick = [one.summary for one in shares if one.question == SHARES[-1] and one.estimate > 0]
        lines = (
            reported_told(runs),
            narrow_told(runs.looks, runs.count) if runs.rows else "",
            missing,
            *unread,
            *sick,
            read_told(logs),
        )
        return Opening(headline=runs_told(runs), lines=tuple(filter(None, lines)), **known)
    order = sorted(logs, key=lambda side: (side == "before", side))
    sides = {side: side_runs(folder, logs[side]["runs"], side) for side in order}
    missing = unscored_told(*counts, sum(of.errored for of in sides.values()), odd)
    many = any(of.errored > LOST_SHARE * of.count for of in sides.values())
    rows = [row for of in sides.values() for row in of.rows]
    first, *more = (
        (pair and pair_told(pair, rows)) or no_gain_told(findings) or (gain_told(verdict),)
    )
    wider = (two_intervals(verdict, bool(missing)),) if more else ()
    return Opening(
        headline=first,
        gain=(*more, missing) if many else tuple(more),
        sides=tuple(_side(side, of) for side, of in sides.items()),
        lines=tuple(filter(None, (missing * (not many), *unread, *wider, read_told(logs)))),
        label=f"Label: {verdict.label}. {_meaning(verdict)}",
        judged=verdict.gain is not None,
        **known,
    )


def _side(side: str, of: SideRuns) -> str:
    """What the runs of a side did, and what its score would be without the flagged wins."""
    reported = reported_told(of)
    told = [runs_told(of), reported if "; " in reported else ""]
    return f"{SIDES.get(side, 'After training')}: {' '.join(filter(None, told))}"


def _meaning(verdict: Verdict) -> str:
    if verdict.label != "undetermined":
        return WORDING["meaning"][verdict.label]
    return WORDING["sentences"]["no_gain" if verdict.gain is None else "not_settled"]


def no_gain_told(findings: Sequence[Evidence | Undefined]) -> tuple[str, ...]:
    """Why there is no gain between two sets, and what would give one; `()` where there is one."""
    for one in findings:
        if isinstance(one, Undefined) and one.question == "gain.total":
            return one.reason, one.cure
    return ()


def _total(logs: Mapping[str, Mapping[str, Any]], name: str) -> int:
    return sum(log.get(name, log.get("runs", 0)) for log in logs.values())


def read_told(logs: Mapping[str, Mapping[str, Any]]) -> str:
    """By which readers the logs were read: `Read as verl (3 files) and chat (1 file).`; `""` of
    a case that does not say it.
    """
    files: Counter[str] = Counter()
    for side in logs.values():
        files.update(side.get("read_by") or {})
    names = sorted(files, key=lambda name: (-files[name], name))
    told = [f"{printable(name)} ({plural(files[name], 'file')})" for name in names]
    return f"Read as {joined(told)}." if told else ""


def reported_told(of: SideRuns) -> str:
    """`As reported 40 % (12 of 30 scored runs won); 22 % if the flagged wins had failed.`"""
    scored, wins = of.wins(of.outcomes)
    if not scored:
        return ""
    flagged = {(row.side, row.trajectory) for row in of.rows if stands(row) == "used"}
    tried = {
        (row.side, row.trajectory)
        for row in of.rows
        if stands(row) == "untold" and row.credited is not False
    }
    lost, doubted = of.wins(flagged)[1], of.wins(tried - flagged)[1]
    told = [
        f"As reported {percent(wins / scored)} ({wins:,} of {plural(scored, 'scored run')} won)"
    ]
    if lost:
        told.append(f"{percent((wins - lost) / scored)} if the flagged wins had failed")
    if doubted:
        what = "the unclear ones had, too" if lost else "the unclear wins had failed"
        told.append(f"{percent((wins - lost - doubted) / scored)} if {what}")
    return "; ".join(told) + "."


def gain_told(verdict: Verdict) -> str:
    """What happened to the score between two sets."""
    gain, before, after = verdict.gain, verdict.score_before, verdict.score_after
    if gain is None:
        return "The change of the score was not measured."
    sure = gain.low > 0 or gain.high < 0
    both: tuple[Any, ...] = (before, after)  # scores with their intervals or without
    ends = None if None in both else [float(getattr(one, "estimate", one)) for one in both]
    level, span = f"{100 * gain.level:g} %", point_range(gain.low, gain.high)
    doubt = "" if sure else "; this may be chance"
    told = moved(gain.estimate, sure, ends)
    return f"The score {told} ({points(gain.estimate)} points, {level} interval {span}){doubt}."


def two_intervals(verdict: Verdict, missing: bool) -> str:
    """Why the decision has another interval of the gain than the one that is told first.
    `missing`: some runs have no score.
    """
    if (gain := verdict.gain) is None:
        return ""
    unsure = gain.estimate and gain.low <= 0 <= gain.high
    chance = ", which includes no change" if unsure else ""
    lost = "; and runs without a score might have been lost or won" if missing else ""
    return (
        f"The label uses a wider interval of the gain, {point_range(gain.low, gain.high)}{chance}:"
        " it adds two pseudo-tasks, so that a few tasks do not look more certain than they are"
        f"{lost}."
    )


def looks_told(looks: Mapping[str, CoverageCounts]) -> Iterator[str]:
    """Not checked, of each side: a line for the families that the same runs stopped."""
    for side, one in sorted(looks.items(), key=lambda item: (item[0] != "before", item[0])):
        when = ""
        if len(looks) > 1:
            when = " before training" if side == "before" else " after training"
        groups: dict[str, list[str]] = {}
        for name, counts in one.families().items():
            if reasons := counts["could_not_look"]:
                count = plural(sum(reasons.values()), "run")
                told = f"not checked in {count}{when} ({why(reasons)})"
                groups.setdefault(told, []).append(family_told(name))
        for told, names in groups.items():
            few = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            yield f"{few}: {told}"


def pair_told(data: Answered, rows: Iterable[Finding] = ()) -> tuple[str, ...]:
    """What a pair of logs says, in up to four sentences; `()` where it says nothing. `rows`: what
    was found in the runs. With flagged wins the parts and tasks are those of the other wins, and
    none are told where the flagged ones are all of the rise.
    """
    gain, rest = data.answer("pair.gain_plain"), data.answer("pair.gain_unflagged")
    if gain is None:
        return ()
    first: tuple[str, ...] = (
        f"The score {moved_told(gain)}{_mean(gain)}: {points(gain.estimate, 1)} points (plain"
        f" paired interval over {plural(gain.clusters, 'task')} {whole_ends(gain, 100)}).",
    )
    if rest is not None:
        first = (flagged_told(gain, rest, rows, _mean(gain)), both_told(gain, rest))
    if explained(gain, rest):
        return (*first, *filter(None, (_length(data),)))
    told = (*first, _parts(data, rest), _tasks(data, rest or gain, rest), _length(data))
    return tuple(filter(None, told))


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
    these = "this win" if here[0] + there[0] == 1 else "these"
    beside = "no win" if not there[1] else f"{there[0]:,} of {there[1]:,}"
    return (
        f"The score {moved_told(gain)}{mean}, {but} {_of(*here)} {first} training{shared}"
        f" {_ways(facts, first, rows)} ({beside} {last}). Had {these} failed,"
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


def unread_told(folder: Path, logs: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """A sentence for each set of which something was not read, the first of it by name, and one
    on what was tried. `logs`: the counts of each side in `case.json`.
    """
    rows = [*rows_of(folder, UNREAD, _row)]
    sides = sorted(logs, key=lambda side: (side == "before", side))
    for side in sides:
        broken, others = (logs[side].get(name, 0) for name in ("unreadable", "no_logs"))
        own = [row for row in rows if row["side"] == side]
        if not own:
            continue
        when = ""
        if len(sides) > 1:
            when = " before training" if side == "before" else " after training"
        many = "1 file or row" if broken + others == 1 else f"{broken + others:,} files or rows"
        were = "was" if broken + others == 1 else "were"
        listed = unread_listed(own, max(broken + bool(others) - len(own), 0))
        yield f"{many}{when} {were} not read (all are named in {UNREAD}): {listed}."
    if told := shapes_tried(rows):
        yield told


def _row(line: str) -> dict[str, str]:
    told = json.loads(line)
    return {name: str(told[name]) for name in FIELDS}
