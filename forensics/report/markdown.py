"""The report as Markdown, whole or short for a pull request: nothing foreign in it is read as
markup, HTML or a link; runs stand in unbreakable fences.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from forensics.records import Evidence, Figure
from forensics.records.finding import LINKS
from forensics.report import numbers, words
from forensics.report.below_findings import broken_lines, loop_lines, place_told
from forensics.report.context import TEMPLATES, context_of
from forensics.report.data import ReportData, load_case, shown_reasons
from forensics.report.escape import cut, markdown_fence, markdown_line as text, printable, short
from forensics.report.findings import Findings, Shown, hunks_of, read_findings_of
from forensics.report.profile import is_profile
from forensics.report.shown_runs import Allowance, Example, Twin

RUNS_SHOWN: Final = 4
CARDS: Final = Allowance(text=1200, steps=40, total=20_000)
MOST_COUNTS: Final = 40  # of the table of counts of a pull request
BREAK: Final = "\v"  # a line break of a fence, which no foreign text can hold
EVIDENCE: Final = (
    *("question", "estimate", "unit", "interval"),
    *("control", "n", "clusters", "in words"),
)


def render_markdown(data: ReportData, *, figures: Sequence[tuple[str, str]] = ()) -> str:
    """The whole report. `figures`: names of files in `figures/` with their
    titles, shown as pictures.
    """
    allowance = replace(CARDS)
    shown: dict[str, Example] = {}
    for example in data.browser.examples:
        shown.setdefault(words.kind_of(data, example.pick), example)
    known = context_of(data)
    return _rendered(
        "report.md.j2",
        **known,
        figures=figures,
        cards_shown=25,
        cards_with_lines=10,
        longest_step=CARDS.text,
        most_rows=30,
        broken_lines=broken_lines,
        loop_lines=loop_lines,
        card_place=lambda one: _card_place(data, one),
        hunks=lambda one: list(hunks_of(one.row, one.run, allowance))[:2],
        part_cells=[(part.name, part.told, part.meaning) for part in known["parts_of_gain"]],
        evidence_columns=EVIDENCE,
        evidence_rows=evidence_rows,
        figure_rows=figure_rows,
        total_rows=[
            (side, world, words.wins_of(tally)) for side, world, tally in words.totals(data)
        ],
        kind_lines=[f"{count:,} {word}" for word, count in words.kinds_of(data)],
        examples=list(shown.items())[:RUNS_SHOWN],
        walk=lambda one: _fence(_walk(one)),
        gap_lines=[
            f"{g.text} To settle it: {g.measurement} Cost: {g.cost}." for g in data.verdict.gaps
        ],
        missing_lines=[
            f"{'; '.join(m.questions)}: {m.reason} Fix: {m.cure}" for m in words.missing(data)
        ],
    )


def render_pull_request(folder: Path) -> str:
    """The answer, of two sets the verdict and the parts of the gain, counts by channel, and the
    findings that reach furthest; below 50,000 characters.
    """
    data = load_case(folder)
    found = data.found or read_findings_of(folder)
    gaps = (gap.text for gap in data.verdict.gaps[:4])
    return _rendered(
        "pull_request.md.j2",
        **context_of(data) | {"found": found},
        most_counts=MOST_COUNTS,
        decisive=(*shown_reasons(data)[:8], *gaps),
        count_columns=("side", "shortcut", *LINKS),
        counted=_counted(found),
    )


def _rendered(template: str, **values: Any) -> str:
    """A template in which every value becomes one line of plain text, unless it is Markdown of
    ours; empty blocks leave nothing.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(text(value)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = environment.get_template(template).render(
        raw=Markup,
        line=lambda value, longest=600: Markup(text(value, longest)),
        bullets=bullets,
        table=markdown_table,
        fence=_fence,
        short=short,
        numbers=numbers,
        **values,
    )
    return re.sub(r"\n{3,}", "\n\n", drawn).strip("\n").replace(BREAK, "\n") + "\n"


def _fence(foreign: str) -> Markup:
    return Markup(markdown_fence(foreign).replace("\n", BREAK))


def bullets(lines: Iterable[str], longest: int = 600) -> Markup:
    """Lines as a list, each made printable."""
    return Markup("\n".join(f"- {text(line, longest)}" for line in lines))


def markdown_table(
    columns: Iterable[str], rows: Iterable[Iterable[str]], longest: int = 300
) -> Markup:
    """Rows as a Markdown table, each cell made printable."""
    head = [text(column, 80) for column in columns]
    body = (f"| {' | '.join(text(cell, longest) for cell in row)} |" for row in rows)
    return Markup("\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *body]))


def _card_place(data: ReportData, one: Shown) -> str:
    """Whose run it is, of which task, and where."""
    row, steps = one.row, ", ".join(map(str, one.row.attempt_steps[:4]))
    side = "" if is_profile(data.inputs) else words.side_name(data, row.side)
    place = place_told(row.trajectory, row.file)
    where = (row.policy, f"task {row.task}", place, f"step {steps}" if steps else "", side)
    return ", ".join(filter(None, where))


def evidence_rows(found: Iterable[Evidence]) -> Iterator[tuple[str, ...]]:
    """A row of cells for each number."""
    for e in found:
        unit, interval = numbers.unit_of(e), "none"
        if e.interval:
            interval = f"{unit.ends(e.interval)} ({numbers.level_of(e.interval)})"
        control = numbers.control_of(e) or ("no figure" if e.control else "none")
        sizes = (f"{e.n:,}", f"{e.clusters:,}")
        named = (numbers.name_of(e), unit.value(e.estimate), e.unit)
        yield (*named, interval, control, *sizes, e.summary)


def figure_rows(figure: Figure) -> Sequence[tuple[str, ...]]:
    """The first numbers of a figure."""
    return [
        (one.name, str(x), numbers.cell(y))
        for one in figure.series
        for x, y in zip(one.x, one.y, strict=False)
    ][:30]


def _counted(found: Findings) -> Sequence[tuple[str, ...]]:
    """Runs of each side by channel and by how far their chain of evidence reaches."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in found.counts:
        for level, *runs in zip(LINKS, row.wins, row.losses, row.unscored, strict=True):
            counts[row.side, row.channel, level] += sum(runs)
    return [
        (*place, *(f"{counts[*place, level]:,}" for level in LINKS))
        for place in sorted({key[:2] for key in counts})
    ][:MOST_COUNTS]


def _walk(shown: Example | Twin) -> str:
    """The steps of a run; long texts are cut, and it says so."""
    steps, lines = shown.run.steps, []
    for number, step in enumerate(steps[: CARDS.steps]):
        said, left_out = cut(step.text, CARDS.text)
        calls = (f"\n[{c.name} {c.arguments[: CARDS.text]}]" for c in step.tool_calls)
        rest = f" [{left_out:,} more characters]" if left_out else ""
        line = f"{number:>3} {step.role}: {printable(said + ''.join(calls))}{rest}"
        lines.append(line.replace("\n", "\n    "))
    if len(steps) > CARDS.steps:
        lines.append(f"    [{len(steps) - CARDS.steps} more steps]")
    return "\n".join(lines)
