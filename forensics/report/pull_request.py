"""The result of a scan as Markdown, short, for a pull request."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from forensics.phrases import plural
from forensics.report import words
from forensics.report.chains import LINKS
from forensics.report.data import ReportData, load_case, shown_reasons
from forensics.report.escape import markdown_line as text
from forensics.report.findings import Findings, read_findings_of
from forensics.report.markdown import markdown_table
from forensics.report.profile import ONE_SET, is_profile

FINDINGS_SHOWN: Final = 25  # findings that are named
MOST_COUNTS: Final = 40  # of the table of counts


def render_pull_request(folder: Path) -> str:
    """The answer, of two sets the verdict and the parts of the gain, counts by channel, and the
    findings that reach furthest; below 50,000 characters.
    """
    data = load_case(folder)
    found = data.found or read_findings_of(folder)
    blocks = [
        *_opening(data),
        *_counts(found),
        *_worst(found),
        "Everything else is in the case folder: `report.html`, `findings.jsonl`, `evidence.jsonl`.",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _opening(data: ReportData) -> Iterator[str]:
    """What stands first everywhere; of two sets the verdict below it."""
    verdict, (first, *lines) = data.verdict, data.opening.told if data.opening else ("",)
    yield f"## {text(first, 1500)}"
    yield from (text(line, 1500) for line in lines)
    if is_profile(data.inputs):
        yield ONE_SET
        return
    yield f"**{text(verdict.sentence, 1500)}**"
    rows = words.part_rows(data, MOST_COUNTS)
    yield markdown_table(("", "estimate", "interval"), rows, 200)
    told = (*shown_reasons(data)[:8], *(gap.text for gap in verdict.gaps[:4]))
    yield "\n".join(f"- {text(line, 400)}" for line in told)


def _counts(found: Findings) -> Iterator[str]:
    """Runs of each side by channel and by how far their chain of evidence reaches."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in found.counts:
        for level, *runs in zip(LINKS, row.wins, row.losses, row.unscored, strict=True):
            counts[row.side, row.channel, level] += sum(runs)
    yield "### Findings by shortcut"
    sides = (
        f"{plural(count, 'run')} of {text(side)}" for side, count in sorted(found.runs.items())
    )
    yield f"Counted by the furthest link that holds, in {', '.join(sides)}."
    places = sorted({key[:2] for key in counts})
    if not places:
        yield "No run tried a known shortcut."
        return
    yield markdown_table(
        ("side", "shortcut", *LINKS),
        (
            (side, channel, *(f"{counts[side, channel, level]:,}" for level in LINKS))
            for side, channel in places[:MOST_COUNTS]
        ),
        200,
    )


def _worst(found: Findings) -> Iterator[str]:
    """The findings that reach furthest, runs after training first."""
    if not found.shown:
        return
    yield "### Findings that reach furthest"
    lines = []
    for shown in found.shown[:FINDINGS_SHOWN]:
        row = shown.row
        lines.append(
            f"- **{row.level}, {text(row.channel, 60)}**, {text(row.side, 20)}, run "
            f"{text(row.trajectory, 80)}, {shown.outcome}: {text(row.explanation, 500)}"
        )
    yield "\n".join(lines)
