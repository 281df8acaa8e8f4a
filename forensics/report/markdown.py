"""The report as Markdown, whole or short for a pull request: nothing foreign in it
is read as markup, HTML or a link; runs stand in unbreakable fences.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from forensics.phrases import plural
from forensics.records import Evidence, Figure, Spans, Table, Verdict
from forensics.records.files import read_findings
from forensics.report import numbers, words
from forensics.report.broken import broken_lines
from forensics.report.certain import certain, is_unsettled, settles
from forensics.report.chains import LINKS
from forensics.report.data import ReportData, read_verdict
from forensics.report.escape import cut, markdown_fence, markdown_line as text, printable
from forensics.report.findings import Findings, read_findings_of
from forensics.report.loops import loop_lines
from forensics.report.profile import ONE_SET, is_profile
from forensics.report.shown_runs import Example, Twin
from forensics.report.source_rows import COLUMNS, gain_parts, source_table
from forensics.shortcuts.export import REVIEW, reviews_of

RUNS_SHOWN: Final = 4
LONGEST_STEP, MOST_STEPS, MOST_ROWS = 1200, 40, 30
FINDINGS_SHOWN: Final = 25  # findings that are named
MOST_COUNTS: Final = 40  # of the table of counts
EVIDENCE: Final = (
    *("question", "estimate", "unit", "interval"),
    *("control", "n", "clusters", "in words"),
)
ANSWERS: Final = {True: "yes", False: "no", None: "cannot be told"}


def render_markdown(data: ReportData, *, figures: Sequence[tuple[str, str]] = ()) -> str:
    """The whole report. `figures`: names of files in `figures/` with their
    titles, shown as pictures.
    """
    verdict, profile = data.verdict, is_profile(data.inputs)
    command = words.replay_command(data.inputs, verdict)
    gaps = (f"{g.text} Would tell: {g.measurement} Cost: {g.cost}." for g in verdict.gaps)
    missing = (f"{'; '.join(m.questions)}: {m.reason} Cure: {m.cure}" for m in words.missing(data))
    blocks = [
        *_top(data),
        *(() if profile else _sources(verdict)),
        text(words.logs_alone(data)),
        _bullets(words.facts(data)),
        *(() if profile else _parts(data)),
        *(f"![{text(title, 120)}](figures/{name})" for name, title in figures),
        *_section("Why this verdict", _bullets(verdict.reasons)),
        *_evidence(data),
        *_runs(data),
        *_section("What was not measured", _bullets(gaps), _bullets(missing)),
        "## How to replay",
        "" if command is None else markdown_fence(command),
        _table(("input", "value"), words.flat(data.inputs)),
        _table(("provenance", "value"), words.flat(data.provenance)),
        f"Rule {text(verdict.rule)}, decided by clause {text(verdict.decided_by)}.",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _top(data: ReportData) -> Iterator[str]:
    """The label and its sentence, or what the runs of one set of logs did."""
    verdict = data.verdict
    if is_profile(data.inputs):
        yield f"# {text(words.heading(data)[0], 1500)}"
        yield ONE_SET
    elif is_unsettled(verdict, data.inputs):
        yield f"# {text(words.heading(data)[0], 1500)}"
        yield f"**{text(verdict.sentence, 2000)}**"
        yield text(words.reason(verdict))
    else:
        yield f"# Verdict: {verdict.label}"
        yield text(words.MEANING[verdict.label])
        yield f"**{text(verdict.sentence, 2000)}**"
        yield text(words.reason(verdict))
    yield text(words.unscored(data))
    sure = certain(verdict, data.inputs)
    yield from _section("Certain all the same", _bullets(sure))
    yield from _section("What would settle it", _bullets(settles(verdict, data.inputs)))
    yield _bullets(loop_lines(data.loops))
    yield from _section("What the prompt forbids", _bullets(broken_lines(data.folder)))


def _parts(data: ReportData) -> Iterator[str]:
    """The parts of the gain, and why some were not measured."""
    yield _table(("", "estimate", "interval"), words.part_rows(data.verdict))
    for name, why in words.not_measured(data):
        yield f"**{text(name)}: not measured.** {text(why)}"


def _sources(verdict: Verdict) -> Iterator[str]:
    """What must be read to decide: the parts, the sources, the next measurement."""
    made = [(part.name, part.told, part.meaning) for part in gain_parts(verdict)]
    table = source_table(verdict)
    if made:
        yield from _section("What the gain is made of", _table(("part", "points", ""), made))
    if table.rows or table.folded:
        cells = (row.cells for row in table.rows)
        listed = _table(COLUMNS, cells) if table.rows else ""
        yield from _section("What the gain may run through", listed, text(table.folded, 2000))
    if step := words.next_measurement(verdict):
        yield f"**Next measurement:** {text(step, 1000)}"


def _section(title: str, *blocks: str) -> Iterator[str]:
    if any(blocks):
        yield f"## {title}"
        yield from (block for block in blocks if block)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {text(line)}" for line in lines)


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]], longest: int = 300) -> str:
    head = [text(column, 80) for column in columns]
    body = (f"| {' | '.join(text(cell, longest) for cell in row)} |" for row in rows)
    return "\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *body])


def _evidence(data: ReportData) -> Iterator[str]:
    """Numbers in a table; below it tables as tables and figures as the tables of
    their numbers. Highlights belong to runs.
    """
    yield "## Evidence by layer"
    for layer, findings in data.layers.items():
        yield f"### {text(layer.capitalize())} layer"
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
        yield _table(EVIDENCE, rows)
        for artifact in (one for finding in findings for one in finding.artifacts):
            if not isinstance(artifact, Spans):
                yield from _artifact(artifact)
    if not data.evidence:
        yield "No number was measured."


def _artifact(artifact: Table | Figure) -> Iterator[str]:
    """A table, or the table of a figure's numbers."""
    yield f"**{text(artifact.title)}**"
    if isinstance(artifact, Table):
        yield _table(artifact.columns, numbers.table_cells(artifact, MOST_ROWS))
        if len(artifact.rows) > MOST_ROWS:
            yield f"{len(artifact.rows) - MOST_ROWS} more rows are in evidence.jsonl."
        return
    columns = ("series", artifact.x_label or "x", artifact.y_label or "y")
    rows = [
        (one.name, str(x), numbers.cell(y))
        for one in artifact.series
        for x, y in zip(one.x, one.y, strict=False)
    ]
    yield _table(columns, rows[:MOST_ROWS])


def _runs(data: ReportData) -> Iterator[str]:
    yield "## What the policy did"
    totals = [(side, world, words.wins_of(tally)) for side, world, tally in words.totals(data)]
    if totals:
        yield _table(("side", "world", "score"), totals)
        yield _bullets(f"{count:,} {word}" for word, count in words.kinds_of(data))
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


# -- the result of a scan, short, for a pull request -----------------------------------


def render_pull_request(folder: Path) -> str:
    """Verdict, parts of the gain, counts by channel, and the findings that
    reach furthest; below 50,000 characters.
    """
    _, verdict = read_verdict(folder)
    label, sentence = words.headline(verdict)
    found = read_findings_of(folder)
    blocks = [
        f"## Is the gain real? {label}",
        text(words.MEANING[verdict.label]),
        f"**{text(sentence, 1500)}**",
        _table(("", "estimate", "interval"), words.part_rows(verdict, MOST_COUNTS), 200),
        "\n".join(
            f"- {text(line, 400)}"
            for line in (*verdict.reasons[:8], *(gap.text for gap in verdict.gaps[:4]))
        ),
        *_counts(found),
        *_worst(folder, found),
        *_review(folder),
        "Everything else is in the case folder: `report.html`, `findings.jsonl`, `evidence.jsonl`.",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _counts(found: Findings) -> Iterator[str]:
    """Runs of each side by channel and by how far their chain of evidence reaches."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in found.counts:
        for level, *runs in zip(LINKS, row.wins, row.losses, row.unscored, strict=True):
            counts[row.side, row.channel, level] += sum(runs)
    yield "### Findings by channel"
    sides = (
        f"{plural(count, 'run')} of {text(side)}" for side, count in sorted(found.runs.items())
    )
    yield f"Counted by the furthest link that is known to hold, in {', '.join(sides)}."
    places = sorted({key[:2] for key in counts})
    if not places:
        yield "No run tried a shortcut that the scanner knows."
        return
    yield _table(
        ("side", "channel", *LINKS),
        (
            (side, channel, *(f"{counts[side, channel, level]:,}" for level in LINKS))
            for side, channel in places[:MOST_COUNTS]
        ),
        200,
    )


def _worst(folder: Path, found: Findings) -> Iterator[str]:
    """The findings that reach furthest, runs after training first."""
    if not found.shown:
        return
    reviews = reviews_of(folder)
    yield "### Findings that reach furthest"
    lines = []
    for shown in found.shown[:FINDINGS_SHOWN]:
        row = shown.row
        review = reviews.get((row.side, row.trajectory, row.family, row.channel))
        said = "" if review is None else f" Reviewer: {ANSWERS[review['answer']]}."
        lines.append(
            f"- **{row.level}, {text(row.channel, 60)}**, {text(row.side, 20)}, run "
            f"{text(row.trajectory, 80)}, {shown.outcome}: {text(row.explanation, 500)}{said}"
        )
    yield "\n".join(lines)


def _review(folder: Path) -> Iterator[str]:
    if not (folder / REVIEW).is_file():
        return
    yield "### Second reader"
    said = []
    for found in read_findings(folder / "evidence.jsonl"):
        if found.layer == "review":
            about = "" if found.about is None else f" on {found.about}"
            said.append(
                found.summary
                if isinstance(found, Evidence)
                else f"{found.question}{about}: {found.reason}"
            )
    yield "\n".join(f"- {text(line, 300)}" for line in said[:MOST_COUNTS])
