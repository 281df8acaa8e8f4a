"""The report for a terminal: the verdict first, then the parts, the reasons,
the leading numbers and the gaps.

Nothing that a model, a log or a file name says can drive the terminal: every
foreign text is made printable, and none of it is read as rich's own markup.
"""

import io
from collections.abc import Iterable, Iterator
from typing import Any

from forensics.records import ALTERED_PROMPT, Table, Verdict
from forensics.report import numbers, words
from forensics.report.below_findings import broken_lines, integrity_lines, loop_lines
from forensics.report.data import ReportData, shown_evidence, shown_reasons
from forensics.report.escape import printable, short
from forensics.report.first_screen import looks_told
from forensics.report.numbers import table_cells
from forensics.report.profile import is_profile
from forensics.report.report_words import WORDING
from forensics.report.source_rows import SourceTable, gain_parts, source_table

LEADING_NUMBERS = 12
LONGEST_LINE = 1200


def render_text(data: ReportData, *, width: int = 100) -> str:
    """Plain text without any escape code, `width` columns."""
    return _plain(_parts(data), width)


def table_text(table: Table, *, width: int = 120) -> str:
    """One table as text, its title above it."""
    return _plain([_line(table.title), _rows(table.columns, table_cells(table))], width)


def _plain(parts: Iterable[Any], width: int) -> str:
    from rich.console import Console

    file = io.StringIO()
    console = Console(
        file=file, width=width, color_system=None, force_terminal=False, legacy_windows=False
    )
    for part in parts:
        whole = bool(getattr(part, "no_wrap", False))  # a path is one piece, however long
        console.print(part, markup=False, highlight=False, emoji=False, soft_wrap=whole)
    return "".join(line.rstrip() + "\n" for line in file.getvalue().split("\n")).rstrip("\n") + "\n"


def _parts(data: ReportData) -> Iterator[Any]:
    verdict = data.verdict
    profile = is_profile(data.inputs)
    yield from map(_line, data.opening.told if data.opening else ())
    if profile:
        yield _line(WORDING["sentences"]["one_set"])
    judged = not profile and (data.opening is None or data.opening.judged)
    if judged:
        yield _line(verdict.sentence)
    if (why := words.reason(verdict)) and judged:
        yield _line(f"Why undetermined: {why}")
    yield from _list(ALTERED_PROMPT, words.altered_prompts(data) if judged else ())
    if caution := words.logs_alone(data):
        yield _line(caution)
    yield _line(words.of_what(data))
    if command := words.replay_command(data.inputs, verdict):
        yield from (_line(line, no_wrap=True) for line in ("Replay:", *command.split("\n")))
    yield _line("; ".join(words.facts(data)))
    if not profile:
        yield from _gain(data)
        yield from _list("Why", shown_reasons(data) if judged else ())
    yield from _list("Not checked", looks_told(data.opening.looks if data.opening else {}))
    yield from _list("Runs that loop", loop_lines(data.loops))
    yield from _list("Problems in the logs", integrity_lines(data.integrity))
    yield from _list("Rules of the prompt that runs broke", broken_lines(data.folder))
    if any(shown_evidence(data)):
        yield ""
        yield _line("Key numbers")
        columns = ("question", "estimate", "interval", "control", "n", "clusters")
        yield _rows(columns, _leading(data))
    if not profile:
        yield from _open(data)
    yield ""
    page = data.folder / "report.html"
    drawn = f"Full report: forensics report {data.folder} --format html"
    yield _line(f"Report: {page}" if page.exists() else drawn, no_wrap=True)


def _open(data: ReportData) -> Iterator[Any]:
    """What is not settled, and what was not measured."""
    gaps = data.verdict.gaps
    yield from _list("Open questions", (f"{g.text} {g.measurement} Cost: {g.cost}." for g in gaps))
    yield from _list(
        "Not measured",
        (f"{'; '.join(m.questions)}: {m.reason} {m.cure}" for m in words.missing(data)),
    )


def _gain(data: ReportData) -> Iterator[Any]:
    """The gain, its parts, what it may run through, and what to measure next."""
    verdict, table = data.verdict, source_table(data.verdict)
    yield ""
    yield _rows(("", "estimate", "interval"), words.part_rows(data))
    for name, why in words.not_measured(data):
        yield _line(f"{name}: not measured. {why}")
    yield from _list("Parts of the gain", map(": ".join, _parts_told(verdict)))
    yield from _list("Possible sources of the gain", _sources(table))
    if step := words.next_measurement(verdict):
        yield from _list("Next measurement", [step])


def _parts_told(verdict: Verdict) -> Iterator[tuple[str, str]]:
    for part in gain_parts(verdict):
        yield part.name, f"{part.told}, {part.meaning}"


def _sources(table: SourceTable) -> Iterator[str]:
    """One line a source, its bar in front where it was measured."""
    for row in table.rows:
        test, source, status, carries, bar, limit, todo = row.cells
        told = f"carries {carries}; detectable from {limit}" if carries and limit else carries
        parts = (f"{bar} {test}, {source}: {status}".strip(), told, f"to do: {todo}")
        yield "; ".join(filter(None, parts))
    if table.folded:
        yield table.folded


def _line(text: str, *, no_wrap: bool = False) -> Any:
    from rich.text import Text

    shown = printable(text, breaks=False) if no_wrap else short(text, LONGEST_LINE)
    return Text(shown, no_wrap=no_wrap, overflow="ignore" if no_wrap else "fold")


def _list(title: str, lines: Iterable[str]) -> Iterator[Any]:
    """A heading and its lines, nothing where there are none."""
    from rich.table import Table as Columns

    table = Columns.grid(padding=(0, 1, 0, 0))
    for line in lines:
        table.add_row("-", _line(line))
    if table.row_count:
        yield ""
        yield _line(title)
        yield table


def _rows(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Any:
    from rich.table import Table as Columns

    table = Columns(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(_line(column), overflow="fold", no_wrap=number == 1)
    for row in rows:
        table.add_row(*map(_line, row))
    return table


def _leading(data: ReportData) -> Iterator[tuple[str, ...]]:
    """The leading numbers with their controls; those the rule weighed come first."""
    ranked = sorted(shown_evidence(data), key=lambda e: e.id not in data.verdict.evidence)
    for e in ranked[:LEADING_NUMBERS]:
        unit = numbers.unit_of(e)
        ends = unit.ends(e.interval) if e.interval else "none"
        control = numbers.control_of(e, interval=False) or "none"
        yield (
            numbers.name_of(e),
            unit.value(e.estimate),
            ends,
            control,
            f"{e.n:,}",
            f"{e.clusters:,}",
        )
    if (more := len(ranked) - LEADING_NUMBERS) > 0:
        yield (f"and {more} more in report.html",)
