"""Findings as the page shows them for a case made of logs: counts by channel,
then the worst with the steps they cite.

1. Stream `findings.jsonl` once: for every side, channel and family, how far the
   chains reach, wins and losses apart. Keep the few that matter most: used, then what
   cannot be told, then what came to nothing; runs after training first, ties by a hash
   of the run, not by its looks.
2. Fetch the runs of those few, and cut out the steps that each cites. In a step
   that showed something, the lines that stand in the submission too are marked.
3. All findings stay in the file beside the page; those of no harm have no card.

Beside each stand runs of its task in which nothing was found: what others did who did not do it.

1. Of every task with a shown finding the runs, of either set, in which nothing was found; the
   first few in the order of a hash, those of the finding's own set first.
2. Of each, what it changed in the files that the finding names, else what it handed in.

What a finding changed, as hunks with the removed *and* the added lines: what was taken
away is the evidence, what came instead is its other half.

1. Of a run that handed in a patch: the hunks of the files that the finding's explanation
   names (of the tests, where it names none), those that take something away first.
2. Of a run without a patch: the edits of the steps that the finding cites, where the
   editor's tool was told the old text and the new.
"""

import json
import re
from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from forensics.records import Trajectory
from forensics.records.finding import LINKS, Finding
from forensics.records.page import TextSpan, TextSpans, step_text
from forensics.report.case_logs import Log, find_logs, outcomes_of
from forensics.report.escape import short
from forensics.report.profile import STANDS, stands
from forensics.report.rows import Key, read_chains
from forensics.report.shown_runs import Allowance

BESIDE: Final = 2  # runs beside one finding
MOST_TASKS: Final = 60


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A run of the same task in which nothing was found, and how many such runs there are."""

    side: str
    run: Trajectory
    of: int


MOST_HUNKS: Final = 4  # hunks of one finding
TEST_FILE: Final = re.compile(r"(?:^|/)(?:tests?|__tests__|specs?|testing)/|test_|_test\.|\.test\.")
FILE: Final = re.compile(r"^diff --git .*$|^--- (?=.*\n\+\+\+ )", re.MULTILINE)
NAME: Final = re.compile(r"^(?:\+\+\+|---) (?:[ab]/)?(?!/dev/null)(\S+)", re.MULTILINE)
HUNK: Final = re.compile(r"^@@ .*$", re.MULTILINE)
OLD: Final = ("old_str", "old_string", "old_text", "old")
NEW: Final = ("new_str", "new_string", "new_text", "new")
LABELS: Final = {"-": "removed", "+": "added"}
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


def beside(
    logs: Sequence[Log], rows: Sequence[Finding], found: Collection[Key]
) -> Mapping[tuple[str, str], tuple[Beside, ...]]:
    """By side and task of the findings. `found`: the runs with a finding."""
    tasks = [*dict.fromkeys((row.side, row.task) for row in rows)][:MOST_TASKS]
    named = {task for _, task in tasks}
    clean: dict[str, list[Key]] = {}
    for log in logs:
        for row in log.rows("id", "task"):
            if row["task"] in named and (log.side, row["id"]) not in found:
                clean.setdefault(row["task"], []).append((log.side, row["id"]))
    picked = {
        (side, task): sorted(clean.get(task, ()), key=lambda key: (key[0] != side, _hash(key)))
        for side, task in tasks
    }
    wanted = {key for keys in picked.values() for key in keys[:BESIDE]}
    runs = {
        (log.side, run.id): run
        for log in logs
        for run in log.fetch({name for side, name in wanted if side == log.side})
    }
    return {
        place: tuple(Beside(side=key[0], run=runs[key], of=len(keys)) for key in keys[:BESIDE])
        for place, keys in picked.items()
    }


def _hash(key: Key) -> str:
    return blake2b(" ".join(key).encode(errors="replace"), digest_size=8).hexdigest()


def handed_in(row: Finding, run: Trajectory, allowance: Allowance) -> Iterator[TextSpans]:
    """What a run beside a finding changed in the finding's files, else what it handed in."""
    hunks = list(hunks_of(row, run, allowance)) if run.patch else []
    yield from hunks
    if not hunks:
        text, left_out = allowance.take(run.patch or run.submission or "")
        who = "left these files alone; handed in" if run.patch else "handed in"
        yield TextSpans(text=text or "Nothing was handed in.", who=who, left_out=left_out)


def hunks_of(row: Finding, run: Trajectory | None, allowance: Allowance) -> Iterator[TextSpans]:
    """The hunks of one finding, cut to what may still be shown."""
    if run is None:
        return
    found = list(_of_patch(run.patch, row) if run.patch else _of_edits(run, row))
    found.sort(key=lambda pair: "\n-" not in f"\n{pair[1]}")
    for name, hunk in found[:MOST_HUNKS]:
        text, left_out = allowance.take(hunk)
        yield TextSpans(
            text=text,
            who=name,
            role="hunk",
            marks=("changed",),
            spans=tuple(_marked(text)),
            left_out=left_out,
        )


def _of_patch(patch: str, row: Finding) -> Iterator[tuple[str, str]]:
    """The file and the text of each hunk that the finding may rest on."""
    parts = [(_name(part), part) for part in _split(FILE, patch)]
    named = [pair for pair in parts if pair[0] and pair[0] in row.explanation]
    if not named and row.channel == "test-edit":
        named = [pair for pair in parts if TEST_FILE.search(pair[0])]
    for name, part in named:
        yield from ((name, hunk.rstrip("\n")) for hunk in _split(HUNK, part))


def _split(mark: re.Pattern[str], text: str) -> list[str]:
    """The parts of a text, each from a mark to the next one."""
    starts = [found.start() for found in mark.finditer(text)]
    if mark is FILE:  # the names follow the line of git: one part, not two
        starts = [at for at in starts if text.startswith("diff ", at)] or starts
    return [text[at:end] for at, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _name(part: str) -> str:
    found = NAME.findall(part)
    return found[-1] if found else ""


def _of_edits(run: Trajectory, row: Finding) -> Iterator[tuple[str, str]]:
    for number in row.attempt_steps:
        calls = run.steps[number].tool_calls if 0 <= number < len(run.steps) else ()
        for call in calls:
            try:
                told = json.loads(call.arguments)
            except ValueError:
                continue
            if not isinstance(told, Mapping):
                continue
            old, new = (_first(told, names) for names in (OLD, NEW))
            if old or new:
                lines = [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
                name = told.get("path") or told.get("file_path") or f"step {number}"
                yield str(name), "\n".join(lines)


def _first(told: Mapping[str, object], names: tuple[str, ...]) -> list[str]:
    text = next((told[name] for name in names if isinstance(told.get(name), str)), "")
    return str(text).splitlines()


def _marked(text: str) -> Iterator[TextSpan]:
    """A stretch for each block of removed or of added lines."""
    at, begun, sign = 0, 0, ""
    for line in [*text.splitlines(keepends=True), ""]:
        now = line[:1] if line[:1] in LABELS else ""
        if now != sign:
            if sign:
                end = at - (text[at - 1 : at] == "\n")
                yield TextSpan(start=begun, end=end, label=LABELS[sign])
            begun, sign = at, now
        at += len(line)
