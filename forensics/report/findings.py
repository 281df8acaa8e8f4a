"""Findings as the page shows them for a case made of logs: counts by channel,
then the worst with the steps they cite.

1. Stream `findings.jsonl` once: for every side, channel and family, how far the
   chains reach, wins and losses apart. Keep the few that matter most: used, then what
   cannot be told, then what came to nothing; runs after training first, ties by a hash
   of the run, not by its looks.
2. Fetch the runs of those few, and cut out the steps that each cites. In a step
   that showed something, the lines that stand in the submission too are marked.
3. Beside each stand runs of its task in which nothing was found (`beside`).
4. All findings stay in the file beside the page; those of no harm have no card.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from forensics.records import Trajectory
from forensics.records.finding import LINKS, Finding
from forensics.records.page import TextSpan, TextSpans, step_text
from forensics.report.beside import Beside, beside
from forensics.report.case_logs import find_logs, outcomes_of
from forensics.report.chains import read_chains
from forensics.report.escape import short
from forensics.report.profile import STANDS, stands
from forensics.report.shown_runs import Allowance

MOST: Final = 200  # findings with their steps inside the page
CITED: Final = 6  # steps of one finding
LONGEST_LINE, SHORTEST_LINE, MOST_MARKS = 2000, 8, 60
Place = tuple[int, bool, bool, bool, str, str]  # of a finding among the others
OUTCOMES: Final = {True: "won", False: "lost", None: "no score"}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One finding with its run, and the runs beside it. `place`, `model`: the numbers of its
    family and of its model, by which the page filters.
    """

    row: Finding
    run: Trajectory | None
    outcome: str
    place: int
    model: int
    beside: tuple[Beside, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Runs of one side against one channel and family by how far they reach, `[level]`."""

    side: str
    channel: str
    family: str
    wins: tuple[int, ...]
    losses: tuple[int, ...]
    unscored: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the section shows. `total`: how many findings there are; `runs`: how
    many runs each side has.
    """

    total: int
    runs: Mapping[str, int]
    counts: tuple[Counted, ...]
    families: tuple[str, ...]
    models: tuple[str, ...]
    shown: tuple[Shown, ...]


def read_findings_of(folder: Path) -> Findings:
    """Everything that the section needs, with bounded memory but for one number a run."""
    logs = [log for log in find_logs(folder) if not log.without]
    won = outcomes_of(logs)
    counts: Counter[tuple[str, str, str, bool | None, str]] = Counter()
    worst: list[tuple[Place, Finding]] = []
    found: set[tuple[str, str]] = set()
    models: set[str] = set()
    for row in read_chains(folder):
        found.add((row.side, row.trajectory))
        models.add(row.policy or "unknown")
        outcome = won.get((row.side, row.trajectory))
        counts[row.side, row.channel, row.family, outcome, row.level] += 1
        if stands(row) != "harmless":
            insort(worst, (_order(row, outcome), row), key=lambda entry: entry[0])
            del worst[MOST:]
    wanted = {
        side: {row.trajectory for _, row in worst if row.side == side}
        for side in {r.side for _, r in worst}
    }
    runs = {
        (log.side, run.id): run for log in logs for run in log.fetch(wanted.get(log.side, set()))
    }
    counted = []
    for side, channel, family in sorted({key[:3] for key in counts}):
        wins, losses, unscored = (
            tuple(counts[side, channel, family, outcome, level] for level in LINKS)
            for outcome in (True, False, None)
        )
        counted.append(
            Counted(
                side=side,
                channel=channel,
                family=family,
                wins=wins,
                losses=losses,
                unscored=unscored,
            )
        )
    families = tuple(sorted({key[2] for key in counts}))
    near = beside(logs, [row for _, row in worst], found)
    named = tuple(sorted(models))
    return Findings(
        total=sum(counts.values()),
        runs=Counter(side for side, _ in won),
        counts=tuple(counted),
        families=families,
        models=named,
        shown=tuple(
            Shown(
                row=row,
                run=runs.get((row.side, row.trajectory)),
                outcome=OUTCOMES[won.get((row.side, row.trajectory))],
                place=families.index(row.family),
                model=named.index(row.policy or "unknown"),
                beside=near.get((row.side, row.task), ()),
            )
            for _, row in worst
        ),
    )


def _order(row: Finding, won: bool | None) -> Place:
    """Credited, used, open, nothing; within these the runs after training, and those that won."""
    digest = blake2b(
        f"{row.side} {row.trajectory}".encode(errors="replace"), digest_size=8
    ).hexdigest()
    stand = STANDS.index(stands(row))
    credited = row.complete and stand == 0
    return stand, not credited, row.side == "before", not won, digest, row.channel


def cited_steps(shown: Shown, allowance: Allowance) -> Iterator[TextSpans]:
    """The steps that a finding cites, cut to what may still be shown."""
    labels: dict[int, list[str]] = {}
    for name, _, cited in shown.row.links:
        for number in cited:
            labels.setdefault(number, []).append(name)
    steps = shown.run.steps if shown.run is not None else ()
    for number in [place for place in sorted(labels) if 0 <= place < len(steps)][:CITED]:
        step = steps[number]
        calls = "".join(f"\n{short(c.name, 80)} {c.arguments}" for c in step.tool_calls[:4])
        copied = _copied(step.text, shown.run) if "obtained" in labels[number] else ()
        start = max(copied[0][0], 200) - 200 if copied else 0
        text, left_out = allowance.take(f"{step.text}{calls}"[start:])
        yield step_text(
            number,
            step,
            tags=(),
            calls=(),
            marks=tuple(labels[number]),
            text=text,
            spans=tuple(
                TextSpan(start=first - start, end=last - start, label="stands in the submission")
                for first, last in copied
            ),
            left_out=left_out + start,
        )


def _copied(text: str, run: Trajectory | None) -> Sequence[tuple[int, int]]:
    """Where the lines of a step lie that stand in the submission too, but for
    the sign of a diff and the space around them.
    """

    def bare(line: str) -> str:
        return line.strip().lstrip("+-").strip()

    submission = (run.submission if run is not None else None) or ""
    handed = {bare(line) for line in submission.splitlines()}
    found: list[tuple[int, int]] = []
    at = 0
    for line in text.splitlines(keepends=True):
        short_line = bare(line[:LONGEST_LINE])
        if len(short_line) >= SHORTEST_LINE and short_line in handed and len(found) < MOST_MARKS:
            found.append((at, at + len(line.rstrip())))
        at += len(line)
    return found


def shown_within(found: Findings, limits: Allowance) -> tuple[Shown, ...]:
    """As many findings as a page with these limits has room for."""
    return found.shown[: max(limits.total // 3500, 10)]
