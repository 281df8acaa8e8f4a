"""The report as Markdown: nothing foreign in it is read as markup, HTML or a link; runs stand
in unbreakable fences.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from forensics.records import Figure, Spans, Table, Verdict
from forensics.report import numbers, words
from forensics.report.below_findings import (
    CANDIDATE_COLUMNS,
    INTEGRITY_COLUMNS,
    broken_lines,
    candidate_rows,
    integrity_lines,
    integrity_rows,
    loop_lines,
)
from forensics.report.certain import certain, settles
from forensics.report.data import ReportData, shown_reasons
from forensics.report.escape import cut, markdown_fence, markdown_line as text, printable, short
from forensics.report.hunks import hunks_of
from forensics.report.looks import COLUMNS as LOOK_COLUMNS, look_rows
from forensics.report.opening import SIDES, Opening
from forensics.report.places import place_told
from forensics.report.profile import ONE_SET, done_told, is_profile
from forensics.report.shown_runs import Allowance, Example, Twin
from forensics.report.source_rows import COLUMNS, gain_parts, source_table

RUNS_SHOWN: Final = 4
CARDS, CARDS_WITH_LINES, CARDS_TOTAL = 25, 10, 20_000
LONGEST_STEP, MOST_STEPS, MOST_ROWS = 1200, 40, 30
EVIDENCE: Final = (
    *("question", "estimate", "unit", "interval"),
    *("control", "n", "clusters", "in words"),
)


def render_markdown(data: ReportData, *, figures: Sequence[tuple[str, str]] = ()) -> str:
    """The whole report. `figures`: names of files in `figures/` with their
    titles, shown as pictures.
    """
    verdict, profile = data.verdict, is_profile(data.inputs)
    command = words.replay_command(data.inputs, verdict)
    shown = [f"![{text(title, 120)}](figures/{name})" for name, title in figures]
    blocks = [
        *_top(data),
        *(() if profile else _sources(verdict)),
        text(words.logs_alone(data)),
        bullets(words.facts(data)),
        *(() if profile else (*_parts(data), *shown)),
        *(() if profile else _section("Why this verdict", bullets(shown_reasons(data)))),
        *_evidence(data),
        *_runs(data),
        *(() if profile else _open(data)),
        "## How to replay",
        "" if command is None else markdown_fence(command),
        markdown_table(("input", "value"), words.flat(data.inputs)),
        markdown_table(("provenance", "value"), words.flat(data.provenance)),
        ""
        if profile
        else f"Rule {text(verdict.rule)}, decided by clause {text(verdict.decided_by)}.",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _open(data: ReportData) -> Iterator[str]:
    """What is not settled, and what was not measured."""
    gaps = (f"{g.text} To settle it: {g.measurement} Cost: {g.cost}." for g in data.verdict.gaps)
    missing = (f"{'; '.join(m.questions)}: {m.reason} Fix: {m.cure}" for m in words.missing(data))
    yield from _section("Not measured", bullets(gaps), bullets(missing))


def _top(data: ReportData) -> Iterator[str]:
    """The answer of a case from logs with its cards, or the label and its sentence."""
    verdict, opening = data.verdict, data.opening
    if opening is None:
        yield f"# Verdict: {verdict.label}"
        yield text(words.MEANING[verdict.label])
        yield f"**{text(verdict.sentence, 2000)}**"
        yield text(words.reason(verdict))
        return
    yield f"# {text(opening.headline, 2000)}"
    yield from (text(line, 2000) for line in opening.told[1:])
    yield from finding_cards(data)
    yield from _section("Rules of the prompt that runs broke", bullets(broken_lines(data.folder)))
    yield from _section("Runs that loop", bullets(loop_lines(data.loops)))
    yield from _candidates(data)
    yield from _integrity(data)
    yield from look_tables(opening)
    if not is_profile(data.inputs):
        yield from _section(
            "The verdict", text(verdict.sentence, 2000), text(words.reason(verdict))
        )
    yield from _section("Still certain", bullets(certain(verdict, data.inputs)))
    yield from _section("Measurements that would settle it", bullets(settles(verdict, data.inputs)))
    if is_profile(data.inputs):
        yield ONE_SET


def finding_cards(data: ReportData) -> Iterator[str]:
    """The findings that matter most: whose run, where, what was changed, which rule it broke."""
    found = data.found
    if found is None or not found.shown:
        return
    yield "## Findings"
    allowance = Allowance(text=LONGEST_STEP, steps=MOST_STEPS, total=CARDS_TOTAL)
    for number, one in enumerate(found.shown[:CARDS]):
        row = one.row
        said = f"{done_told(row)}; {one.outcome}"
        side = "" if is_profile(data.inputs) else words.side_name(data, row.side)
        steps = ", ".join(map(str, row.attempt_steps[:4]))
        place = place_told(row.trajectory, row.file)
        where = (row.policy, f"task {row.task}", place, f"step {steps}" if steps else "", side)
        rule = row.broken.prompt_said if row.broken else ""
        yield f"### {text(said, 200)}"
        yield text(", ".join(filter(None, where)), 400)
        yield f"The prompt said: {text(rule)}" if rule else ""
        if row.evidence:
            yield markdown_fence(short(row.evidence.quote, LONGEST_STEP))
        if number < CARDS_WITH_LINES:
            hunks = list(hunks_of(row, one.run, allowance))[:2]
            yield from (markdown_fence(f"{hunk.who}\n{hunk.text}") for hunk in hunks)
        yield text(row.explanation)
    if (more := found.total - CARDS) > 0:
        yield f"{more:,} more are in findings.jsonl."


def _candidates(data: ReportData) -> Iterator[str]:
    if data.candidates:
        listed = markdown_table(CANDIDATE_COLUMNS, candidate_rows(data.candidates))
        yield from _section("Candidates: worth reading, not findings", listed)


def _integrity(data: ReportData) -> Iterator[str]:
    if data.integrity:
        listed = markdown_table(INTEGRITY_COLUMNS, integrity_rows(data.integrity))
        counted = bullets(integrity_lines(data.integrity))
        yield from _section("Problems in the logs", counted, listed)


def look_tables(opening: Opening) -> Iterator[str]:
    """Shortcuts checked in how many runs, for each side."""
    for side, looks in sorted(opening.looks.items()):
        title = "Shortcuts checked"
        if len(opening.looks) > 1:
            title += f", {SIDES.get(side, 'After training').lower()}"
        yield from _section(title, markdown_table(LOOK_COLUMNS, look_rows(looks)))


def _parts(data: ReportData) -> Iterator[str]:
    """The parts of the gain, and why some were not measured."""
    yield markdown_table(("", "estimate", "interval"), words.part_rows(data))
    for name, why in words.not_measured(data):
        yield f"**{text(name)}: not measured.** {text(why)}"


def _sources(verdict: Verdict) -> Iterator[str]:
    """What must be read to decide: the parts, the sources, the next measurement."""
    made = [(part.name, part.told, part.meaning) for part in gain_parts(verdict)]
    table = source_table(verdict)
    if made:
        yield from _section("Parts of the gain", markdown_table(("part", "points", ""), made))
    if table.rows or table.folded:
        cells = (row.cells for row in table.rows)
        listed = markdown_table(COLUMNS, cells) if table.rows else ""
        yield from _section("Possible sources of the gain", listed, text(table.folded, 2000))
    if step := words.next_measurement(verdict):
        yield f"**Next measurement:** {text(step, 1000)}"


def _section(title: str, *blocks: str) -> Iterator[str]:
    if any(blocks):
        yield f"## {title}"
        yield from (block for block in blocks if block)


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {text(line)}" for line in lines)


def markdown_table(
    columns: Iterable[str], rows: Iterable[Iterable[str]], longest: int = 300
) -> str:
    head = [text(column, 80) for column in columns]
    body = (f"| {' | '.join(text(cell, longest) for cell in row)} |" for row in rows)
    return "\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *body])


def _evidence(data: ReportData) -> Iterator[str]:
    """Numbers in a table; below it tables as tables and figures as the tables of
    their numbers. Highlights belong to runs.
    """
    yield "## Evidence"
    for layer, findings in data.layers.items():
        yield f"### {text(layer.capitalize())}"
        rows = []
        for e in findings:
            unit, interval = numbers.unit_of(e), "none"
            if e.interval:
                interval = f"{unit.ends(e.interval)} ({numbers.level_of(e.interval)})"
            control = numbers.control_of(e) or ("no figure" if e.control else "none")
            sizes = (f"{e.n:,}", f"{e.clusters:,}")
            rows.append(
                (
                    numbers.name_of(e),
                    unit.value(e.estimate),
                    e.unit,
                    interval,
                    control,
                    *sizes,
                    e.summary,
                )
            )
        yield markdown_table(EVIDENCE, rows)
        for artifact in (one for finding in findings for one in finding.artifacts):
            if not isinstance(artifact, Spans):
                yield from _artifact(artifact)
    if not data.evidence:
        yield "Nothing was measured."


def _artifact(artifact: Table | Figure) -> Iterator[str]:
    """A table, or the table of a figure's numbers."""
    yield f"**{text(artifact.title)}**"
    if isinstance(artifact, Table):
        yield markdown_table(artifact.columns, numbers.table_cells(artifact, MOST_ROWS))
        if len(artifact.rows) > MOST_ROWS:
            yield f"{len(artifact.rows) - MOST_ROWS} more rows are in evidence.jsonl."
        return
    columns = ("series", artifact.x_label or "x", artifact.y_label or "y")
    rows = [
        (one.name, str(x), numbers.cell(y))
        for one in artifact.series
        for x, y in zip(one.x, one.y, strict=False)
    ]
    yield markdown_table(columns, rows[:MOST_ROWS])


def _runs(data: ReportData) -> Iterator[str]:
    yield "## What the policy did"
    totals = [(side, world, words.wins_of(tally)) for side, world, tally in words.totals(data)]
    if totals:
        yield markdown_table(("side", "world", "score"), totals)
        yield bullets(f"{count:,} {word}" for word, count in words.kinds_of(data))
    shown: dict[str, Example] = {}
    for example in data.browser.examples:
        shown.setdefault(words.kind_of(data, example.pick), example)
    for kind, example in list(shown.items())[:RUNS_SHOWN]:
        yield f"### {text(kind)}: task {text(example.run.task, 80)}"
        yield (
            f"Run {text(example.run.id, 80)}, {words.side_name(data, example.pick.side).lower()}: "
            + text(words.outcome_of(example.run))
        )
        yield from (text(chain.explanation) for chain in example.chains if chain.explanation)
        yield _walk(example)
        for twin in example.twins[:1]:
            yield (
                f"Same task, {twin.title.lower()}: {text(words.outcome_of(twin.run))}; one of"
                f" {twin.runs} there, of which {twin.wins} won."
            )
            yield _walk(twin)


def _walk(shown: Example | Twin) -> str:
    """The steps of a run in one fence; long texts are cut, and it says so."""
    steps, lines = shown.run.steps, []
    for number, step in enumerate(steps[:MOST_STEPS]):
        said, left_out = cut(step.text, LONGEST_STEP)
        calls = (f"\n[{c.name} {c.arguments[:LONGEST_STEP]}]" for c in step.tool_calls)
        rest = f" [{left_out:,} more characters]" if left_out else ""
        line = f"{number:>3} {step.role}: {printable(said + ''.join(calls))}{rest}"
        lines.append(line.replace("\n", "\n    "))
    if len(steps) > MOST_STEPS:
        lines.append(f"    [{len(steps) - MOST_STEPS} more steps]")
    return markdown_fence("\n".join(lines))
