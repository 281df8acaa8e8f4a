"""The result of a scan as Markdown for a pull request: short, and nothing foreign in it is markup, HTML or a link."""

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from pathlib import Path
from typing import Any, Final

from forensics.records import Evidence, Verdict
from forensics.records.files import read_findings
from forensics.report import numbers, words
from forensics.report.chains import ChainRow, read_chains
from forensics.report.data import read_verdict
from forensics.report.escape import markdown_line as text
from forensics.report.findings import LEVELS, OUTCOMES, level_of
from forensics.report.logs import WIN, find_logs
from forensics.scanning.export_rows import REVIEW, reviews_of
from forensics.wording import plural

SHOWN: Final = 25  # findings that are named
MOST_ROWS: Final = 40  # of the table of counts
ANSWERS: Final = {True: "yes", False: "no", None: "cannot be told"}


def render_pull_request(folder: Path) -> str:
    """Verdict, parts of the gain, counts by channel, and the findings that reach furthest; below 50,000 characters."""
    _, verdict = read_verdict(folder)
    won = {(log.side, row["id"]): None if row["outcome"] is None else row["outcome"] >= WIN
           for log in find_logs(folder) for row in log.rows("id", "outcome")}
    blocks = [
        *_verdict(verdict), _table(("", "estimate", "interval"), _parts(verdict)),
        "\n".join(f"- {text(line, 400)}" for line in (*verdict.reasons[:8], *(gap.text for gap in verdict.gaps[:4]))),
        *_counts(folder, won), *_worst(folder, won), *_review(folder),
        "Everything else is in the case folder: `report.html`, `findings.jsonl`, `evidence.jsonl`.",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _verdict(verdict: Verdict) -> Iterator[str]:
    label, rest = words.headline(verdict)
    yield f"## Is the gain real? {label}"
    yield text(words.MEANING[verdict.label])
    yield f"**{text(rest, 1500)}**"


def _parts(verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    for field, name, _ in words.PARTS:
        part = getattr(verdict, field)
        if part is None:
            yield name, numbers.NOT_MEASURED, ""
        else:
            yield name, numbers.POINTS.value(part.estimate), f"{numbers.POINTS.ends(part)} ({numbers.level_of(part)})"
    for channel, share in list(verdict.share_of_wins_via_channel.items())[:MOST_ROWS]:
        ends = f"{numbers.SHARE.ends(share)} ({numbers.level_of(share)})"
        yield f"Wins through {channel}", numbers.SHARE.value(share.estimate), ends


def _counts(folder: Path, won: dict[tuple[str, str], bool | None]) -> Iterator[str]:
    """Runs of each side by channel and by how far their chain of evidence reaches."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in read_chains(folder):
        counts[row.side, row.channel, level_of(row)] += 1
    runs = Counter(side for side, _ in won)
    yield "### Findings by channel"
    sides = (f"{plural(count, 'run')} of {text(side)}" for side, count in sorted(runs.items()))
    yield f"Counted by the furthest link that is known to hold, in {', '.join(sides)}."
    places = sorted({key[:2] for key in counts})
    if not places:
        yield "No run tried a shortcut that the scanner knows."
        return
    yield _table(("side", "channel", *LEVELS), (
        (side, channel, *(f"{counts[side, channel, level]:,}" for level in LEVELS))
        for side, channel in places[:MOST_ROWS]
    ))


def _worst(folder: Path, won: dict[tuple[str, str], bool | None]) -> Iterator[str]:
    """The findings that reach furthest, runs after training first."""
    def order(row: ChainRow) -> tuple[Any, ...]:
        return -LEVELS.index(level_of(row)), row.side == "before", row.side, row.trajectory, row.channel, row.family

    rows = nsmallest(SHOWN, read_chains(folder), key=order)
    if not rows:
        return
    reviews = reviews_of(folder)
    yield "### Findings that reach furthest"
    lines = []
    for row in rows:
        outcome = OUTCOMES[won.get((row.side, row.trajectory))]
        review = reviews.get((row.side, row.trajectory, row.family, row.channel))
        said = "" if review is None else f" Reviewer: {ANSWERS[review['answer']]}."
        lines.append(f"- **{level_of(row)}, {text(row.channel, 60)}**, {text(row.side, 20)}, run "
                     f"{text(row.trajectory, 80)}, {outcome}: {text(row.explanation, 500)}{said}")
    yield "\n".join(lines)


def _review(folder: Path) -> Iterator[str]:
    if not (folder / REVIEW).is_file():
        return
    yield "### Second reader"
    said = [f.summary if isinstance(f, Evidence) else f"{f.question}{_about(f.about)}: {f.reason}"
            for f in read_findings(folder / "evidence.jsonl") if f.layer == "review"]
    yield "\n".join(f"- {text(line, 300)}" for line in said[:MOST_ROWS])


def _about(about: str | None) -> str:
    return "" if about is None else f" on {about}"


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = [text(column, 80) for column in columns]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(text(cell, 200) for cell in row)} |" for row in rows)])
