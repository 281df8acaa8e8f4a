"""What stands first of a case from logs, the same in the terminal, in Markdown, on the page and in
JSON.

1. One set of logs: what its runs did (`profile`), then the score as it was reported and as it
   would be if the wins of the flagged runs had failed. No gain and no label.
2. Two sets: what happened to the score, and how many runs errored where that are many; then what
   the runs of each set did, then the label.
3. *Flagged* is a run with a shortcut that was used or credited; *open* one of which the log does
   not tell whether it used one. Only runs with an outcome count.
4. A share is not told over runs of which some could not be checked.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forensics.phrases import joined, percent, plural, point_range, points, printable
from forensics.records import Evidence, Undefined, Verdict
from forensics.report.look_counts import family_told, looks_json, read_looks, why
from forensics.report.narrow import narrow_told
from forensics.report.pair_sentences import Answered, pair_told
from forensics.report.profile import (
    SideRuns,
    is_profile,
    runs_told,
    side_runs,
    stands,
    unscored_told,
)
from forensics.report.report_words import WORDING
from forensics.report.unread_files import unread_told
from forensics.shortcuts.looks import CoverageCounts
from forensics.verdict.sentences import LOST_SHARE

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
    moved = "went" if not sure else "rose" if gain.estimate > 0 else "fell"
    if before is not None and after is not None:
        first, last = (percent(_value(one)) for one in (before, after))
        moved = f"stayed at {last}" if first == last else f"{moved} from {first} to {last}"
    level, span = f"{100 * gain.level:g} %", point_range(gain.low, gain.high)
    doubt = "" if sure else "; this may be chance"
    return f"The score {moved} ({points(gain.estimate)} points, {level} interval {span}){doubt}."


def _value(score: Any) -> float:
    """A score with its interval or without."""
    return float(getattr(score, "estimate", score))


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
