"""The runs of one set of logs in one sentence: how many did what, how many could not be looked
at, and what matters most first.

1. Each run counts once for a channel, by what is known of it: *used* (or credited), *cannot be
   told* (something was tried, and no link fails), or *came to nothing* (of runs that won: they
   did not use it). What the task asks for stands on its card alone.
   An empty hand-in that lost is *harmless*: it stands in the counts alone. Of a run that lost
   nobody asks whether it used what it tried.
2. Used shortcuts come first, with the wins among them, then loops, then what cannot be told,
   then rules of the prompt that were broken beside it, then what came to nothing, then damage
   by accident, which accuses nobody. Last come the runs at which nobody could look.
3. Where nothing was found, the sentence says of how many runs it speaks.
4. All runs count, with and without an outcome; only those with one count as won or lost.

Two sets of logs that do not settle: what is certain anyway, and what would settle it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forensics.layers.channels import ACCIDENT, RULE_BROKEN
from forensics.phrases import capital, plural, point_range, points, printable
from forensics.records import Verdict
from forensics.records.finding import Finding
from forensics.records.verdict import Estimate
from forensics.report.below_findings import read_loops
from forensics.report.case_logs import errored_of, find_logs, outcomes_of
from forensics.report.look_counts import (
    all_bare,
    looked_for,
    looks_of,
    narrow_told,
    read_looks,
    unknown_tools_told,
    why,
)
from forensics.report.report_words import WORDING
from forensics.report.rows import Key, read_chains
from forensics.shortcuts.looks import CoverageCounts
from forensics.shortcuts.task_tools import ASKED

STANDS: Final = ("used", "untold", "broken", "nothing", "accident", "asked", "harmless")
NO_ONE: Final = ("accident", "asked", "harmless")  # stands that accuse nobody
REWRITTEN: Final = "edit existing tests"  # the attempt that says most of what was done to tests
EQUAL: Final = frozenset({"equal to everything", "equality that always holds"})
EQUALS: Final = "handed in an object that equals everything"


def stands(row: Finding) -> str:
    """What is known of a finding, as one of `STANDS`."""
    if row.family == ACCIDENT:
        return "accident"
    if row.family == RULE_BROKEN:
        return "broken"
    if row.level in ("used", "credited"):
        return "used"
    if row.channel == "do-nothing" and row.credited is False:
        return "harmless"  # it uses nothing, and did not win
    if row.used is False and ASKED in row.explanation:
        return "asked"
    return "untold" if row.used is None else "nothing"


def is_profile(inputs: Mapping[str, Any]) -> bool:
    """Whether a case is of one set of logs."""
    logs = inputs.get("logs")
    return isinstance(logs, Mapping) and "before" not in logs


@dataclass(frozen=True, kw_only=True)
class SideRuns:
    """What is known of the runs of one side (or of all): how many there are, what was found in
    them, how many loop, their outcomes (none of those that errored), and what could be looked
    for (`None`: nobody says).
    """

    count: int
    rows: tuple[Finding, ...]
    loops: int = 0
    outcomes: Mapping[Key, bool | None] = field(default_factory=dict)
    errored: int = 0
    looks: CoverageCounts | None = None

    def wins(self, runs: Collection[Key]) -> tuple[int, int]:
        """How many of these runs have an outcome, and how many were won."""
        known = [won for run in runs if (won := self.outcomes.get(run)) is not None]
        return len(known), sum(known)


def side_runs(folder: Path, count: int, side: str | None = None) -> SideRuns:
    """Read what the case folder knows. `side`: of that one only, whose runs are counted."""
    logs = [log for log in find_logs(folder) if not log.without and side in (None, log.side)]
    failed = errored_of(logs)
    return SideRuns(
        count=count,
        rows=tuple(row for row in read_chains(folder) if side in (None, row.side)),
        loops=sum(side in (None, row.side) for row in read_loops(folder)),
        outcomes={**outcomes_of(logs), **dict.fromkeys(failed)},
        errored=len(failed),
        looks=looks_of(read_looks(folder), side),
    )


def profile_told(folder: Path, runs: int, side: str | None = None) -> str:
    """The sentence on the runs of one side."""
    return runs_told(side_runs(folder, runs, side))


def runs_told(of: SideRuns) -> str:
    """`14 of 33 runs rewrote existing tests, 9 of them won; 1 loops; ...`."""
    parts = [*_parts(of)]
    if not any(stands(row) not in NO_ONE for row in of.rows):
        return _nothing(of, parts)
    (first, what), *rest = parts
    head = f"{first:,} of {plural(of.count, 'run')} {what}"
    told = [head, *(f"{count:,} {text}" for count, text in rest), *_silence(of.looks)]
    return "; ".join(told) + "."


def _parts(of: SideRuns) -> Iterator[tuple[int, str]]:
    """How many runs did what, what matters most first."""
    groups = _groups(of.rows)
    ruled = _groups(row for row in of.rows if row.broken)["used"]
    credited = _groups(row for row in of.rows if row.complete)["used"]
    for channel, runs in groups["used"].items():
        told = used_told(channel, of.rows)
        told += _although(len(runs), len(ruled.get(channel, ())))
        yield len(runs), told + _winning(of, runs, credited.get(channel, frozenset()))
    if of.loops:
        yield of.loops, "loops" if of.loops == 1 else "loop"
    for channel, runs in groups["untold"].items():
        yield len(runs), _tried(channel, of.rows) + _untold(channel, runs, of)
    for runs in groups["broken"].values():
        yield len(runs), "did what the prompt forbids"
    for channel, runs in groups["nothing"].items():
        idle = ", and did not use it" if of.wins(runs)[1] else ", which came to nothing"
        yield len(runs), _tried(channel, of.rows, "nothing") + idle
    for runs in groups["accident"].values():
        yield len(runs), "damaged tests by accident"


def _untold(channel: str, runs: frozenset[Key], of: SideRuns) -> str:
    """What is open of runs that tried something: nothing where they lost."""
    lost = sum(of.outcomes.get(run) is False for run in runs)
    if lost == len(runs):
        return ", and lost" if lost == 1 else ", and all of them lost"
    if channel == "do-nothing":
        return ", outcome unknown"
    beside = f" ({lost:,} of them lost)" if lost else ""
    return f", unknown whether it was used{beside}"


def _nothing(of: SideRuns, parts: list[tuple[int, str]]) -> str:
    """The sentence where nothing was found that accuses anybody: of how many runs it speaks."""
    blind = of.looks.blind.total() if of.looks else 0
    seen = of.count - blind
    beside = [f"{count:,} of {plural(of.count, 'run')} {what}" for count, what in parts]
    if seen <= 0 and of.looks:
        none = f"none of {plural(of.count, 'run')} could be checked ({why(of.looks.blind)})"
        return capital("; ".join([*beside, none])) + "."
    if (bare := all_bare(of.looks, of.count)) and not beside:
        loops = "" if of.loops else ", and none loops"
        return f"{bare}. None shows a known shortcut{loops}."
    which = f" the {plural(seen, 'run')} that could be checked" if blind else ""
    none = f"none of{which or ' ' + plural(of.count, 'run')} shows a known shortcut"
    if seen == 1 and blind:
        none = "the one run that could be checked shows no known shortcut"
    if beside and not blind:
        none = "none shows a known shortcut"
    loops = "" if of.loops else ", and none loops"
    if of.count == 1 and not beside:
        none = "the one run shows no known shortcut"
    if seen == 1 and loops:
        loops = " and does not loop"
    told = capital("; ".join([*beside, none + loops, *_silence(of.looks)])) + "."
    return " ".join(filter(None, (told, narrow_told(of.looks, of.count))))


def _silence(looks: CoverageCounts | None) -> Iterator[str]:
    """At how many runs nobody, or not everybody, could look, and why."""
    if looks is None:
        return
    if count := looks.blind.total():
        yield f"{plural(count, 'run')} could not be checked ({why(looks.blind)})"
    if count := looks.partial.total():
        what = looked_for(looks.stopped)
        yield f"{plural(count, 'run')} could not be checked for {what} ({why(looks.partial)})"
    if told := unknown_tools_told(looks.tools, looks.tool_runs, looks.runs):
        yield told


def _groups(rows: Iterable[Finding]) -> dict[str, dict[str, frozenset[Key]]]:
    """Of each stand the channels with their runs, the commonest first; a run counts once
    for a channel, by the first of its stands.
    """
    furthest: dict[tuple[str, Key], str] = {}
    for row in rows:
        run, stand = (row.channel, (row.side, row.trajectory)), stands(row)
        known = furthest.get(run, STANDS[-1])
        furthest[run] = min(stand, known, key=STANDS.index)
    found: dict[str, dict[str, set[Key]]] = {stand: {} for stand in STANDS}
    for (channel, key), stand in furthest.items():
        found[stand].setdefault(channel, set()).add(key)
    return {
        stand: {
            channel: frozenset(runs)
            for channel, runs in sorted(those.items(), key=lambda one: (-len(one[1]), one[0]))
        }
        for stand, those in found.items()
    }


def _winning(of: SideRuns, runs: frozenset[Key], credited: frozenset[Key]) -> str:
    """`, 9 of them won, 7 by it`; nothing where no run has an outcome."""
    scored, wins = of.wins(runs)
    by = of.wins(credited & runs)[1]
    if not scored:
        return ""
    if not wins:
        told = f"none of {'them' if scored == len(runs) else f'the {scored:,} scored ones'} won"
        return f", {'and lost' if len(runs) == 1 else told}"
    many = (
        "and won"
        if len(runs) == 1
        else f"{'all' if wins == len(runs) else f'{wins:,}'} of them won"
    )
    if by == wins:
        return f", {many} by it"
    return f", {many}, {by:,} by it" if by else f", {many}"


def _although(count: int, ruled: int) -> str:
    """How many did so against a rule of the prompt."""
    if not ruled:
        return ""
    return (
        " although the prompt forbids it"
        if ruled == count
        else f" ({ruled:,} although the prompt forbids it)"
    )


def used_told(channel: str, rows: Iterable[Finding] = ()) -> str:
    """What runs did that used a channel, by their rows, in words."""
    known = [row.patterns for row in rows if row.channel == channel and stands(row) == "used"]
    told = WORDING["used"].get(channel, f"used {printable(channel, 60)}")
    if channel == "test-edit" and known and all(REWRITTEN in one for one in known):
        return "rewrote existing tests"
    if channel == "monkeypatching" and any(EQUAL.intersection(one) for one in known):
        return EQUALS if all(EQUAL.issuperset(one) for one in known) else f"{told} or {EQUALS}"
    return told


def _tried(channel: str, rows: Iterable[Finding], stand: str = "untold") -> str:
    those = [row for row in rows if row.channel == channel and stands(row) != "used"]
    if those and all(row.obtained and not row.attempt_steps for row in those):
        return f"saw {printable(channel, 60)} in the prompt"
    known = [row.patterns for row in those]
    if channel == "monkeypatching" and known and all(EQUAL.intersection(one) for one in known):
        return "wrote an object that equals everything"
    told = WORDING["tried"] | (WORDING["unused"] if stand == "nothing" else {})
    return told.get(channel, f"tried {printable(channel, 60)}")


def done_told(row: Finding) -> str:
    """What one run did, as a heading: `Rewrote existing tests`."""
    stand = stands(row)
    if stand == "accident":
        return "Damaged tests by accident"
    if stand == "broken":
        return "Did what the prompt forbids"
    if stand == "used":
        return capital(used_told(row.channel, [row]))
    return capital(_tried(row.channel, [row], "nothing" if stand == "asked" else stand))


def mark_told(row: Finding) -> str:
    """How sure it is, in a word or two."""
    if stands(row) == "used":
        return "credited" if row.complete else "used"
    return WORDING["certainty"].get(stands(row), WORDING["certainty"]["broken"])


def unscored_told(runs: int, scored: int, errored: int = 0, odd: int = 0) -> str:
    """What is said of runs without an outcome, and of those that errored; `""` where each has one
    and none did. `odd`: those in which a reward is no finite number.
    """
    if runs == scored:
        return ""
    why = f" In {plural(odd, 'run')} of these a reward is no finite number, such as NaN."
    why = why if odd else ""
    if not scored:
        none = "No run has an outcome, so there are no win rates. The findings hold without them."
        return none + why
    left = runs - scored - errored
    told = [f"{errored:,} errored"] if errored else []
    told += [f"{left:,} {'has' if left == 1 else 'have'} no outcome"] if left else []
    first, *rest = told
    first = first.replace(" ", f" of {plural(runs, 'run')} ", 1)
    return f"{' and '.join([first, *rest])}: counted among findings, not in win rates.{why}"


def is_unsettled(verdict: Verdict, inputs: Mapping[str, Any]) -> bool:
    """Whether a case is of two sets of logs that no label holds for."""
    return "logs" in inputs and not is_profile(inputs) and verdict.label == "undetermined"


def certain(verdict: Verdict, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Sentences that hold although the verdict is open; none for another case."""
    if not is_unsettled(verdict, inputs):
        return
    if verdict.gain is not None:
        yield _moved(verdict.gain)
    if verdict.genuine_gain is not None:
        ends = point_range(verdict.genuine_gain.low, verdict.genuine_gain.high, 1)
        yield (
            f"Unless an unknown shortcut made wins, the genuine part lies between"
            f" {ends.replace(' to ', ' and ')} points."
        )


def _moved(gain: Estimate) -> str:
    """What an interval of the gain rules out."""
    level = f"{100 * gain.level:g} %"
    if gain.low > 0:
        return f"The score rose by at least {points(gain.low, 1).lstrip('+')} points ({level})."
    if gain.high < 0:
        return f"The score fell by at least {points(-gain.high, 1).lstrip('+')} points ({level})."
    ends = point_range(gain.low, gain.high, 1).replace(" to ", " and ")
    return f"The score changed by between {ends} points ({level}); larger changes are ruled out."


def settles(verdict: Verdict, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Measurements that would settle it, with how many tasks it takes; none for another case."""
    if is_unsettled(verdict, inputs):
        gaps: dict[str, list[str]] = {}
        for gap in verdict.gaps:
            measured = f"{gap.measurement} Cost: {gap.cost}."
            gaps.setdefault(measured, []).append(gap.text)
        yield from (f"{measured} {' '.join(texts)}" for measured, texts in gaps.items())
