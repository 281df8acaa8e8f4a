"""What a study of cliffs leaves in its folder: rows for machines and a page for
people.

The page shows each trace with the potential under its tokens, cliffs marked,
alternatives on click.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

import forensics.phrases as phrases
from forensics.records import (
    SCHEMA_VERSION,
    Figure,
    Fold,
    Page,
    Section,
    Series,
    Table,
    TextSpan,
    TextSpans,
    Trajectory,
    estimate_cell,
    step_text,
    write_json_lines,
)
from forensics.report import percent, plain
from forensics.study import Folder
from resampling.cliffs.cliffs import TestedToken, TraceReport
from resampling.study.cliff_study import Alternative, CliffStudy, RunsToContinue, cliff_row
from resampling.study.delete_keep import DeleteKeep
from resampling.trace_rollouts import Trace

MOST_TRACES: Final = 60
Detail = tuple[str | Table, ...]

POTENTIALS = pa.schema(
    [
        ("trajectory", pa.string()),
        ("kept", pa.int32()),
        ("potential", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)


def write_tables(folder: Folder, opened: RunsToContinue, study: CliffStudy) -> None:
    """Every file but `cliffs.json` and the page."""
    cliffs = (
        cliff_row(cliff, opened.token_text(cliff.token_id), delete_keep)
        for cliff, delete_keep in study.with_delete_keep()
    )
    write_json_lines(folder.path / "cliffs.jsonl", cliffs)
    potentials = (
        {
            "trajectory": trace.trace,
            "kept": kept,
            "potential": _known(trace.potentials[kept]),
            "low": _known(trace.low[kept]),
            "high": _known(trace.high[kept]),
        }
        for trace in study.report.traces
        for kept in range(len(trace.potentials))
    )
    folder.table("potentials.parquet", potentials, POTENTIALS)
    write_json_lines(folder.path / "delete_keep.jsonl", (row.row() for row in study.causation))
    pairs = (pair.model_dump(mode="json") for pair in study.pairs)
    write_json_lines(folder.path / "pairs.jsonl", pairs)


def sentences(opened: RunsToContinue, study: CliffStudy) -> list[str]:
    """What was found, with the figure that proves it and its control."""
    report, rises = study.report, study.provenance.config["rises"]
    tested, confirmed = report.tested, len(report.cliffs)
    searched = phrases.plural(sum(trace.searched for trace in report.traces), "token")
    texts = [
        f"Of {searched} that could decide at all, {tested} {_be(tested, 'was', 'were')} suspected"
        f" and tested on fresh samples; {confirmed} {_be(confirmed, 'is', 'are')} confirmed to"
        f" {'raise' if rises else 'lower'} the chance of success."
    ]
    kinds = opened.shortcut_kinds()
    if kinds and report.cliffs:
        inside = sum(
            bool(kinds & {*opened.run(c.trace).steps[c.step].kinds}) for c in report.cliffs
        )
        texts.append(
            f"{inside} of them {_be(inside, 'stands', 'stand')} in steps that take a declared"
            " shortcut."
        )
    means = {row.what: row for row in study.restored if row.kind == "all"}
    if "cliff" in means:
        tokens = {"cliff": "these tokens", "control": "other tokens of the same potential"}
        parts = [
            f"sampling afresh from before {tokens[what]} instead of after them changes success by"
            f" {phrases.points(row.estimate)} points ({phrases.point_range(row.low, row.high)})"
            for what, row in means.items()
        ]
        tasks = phrases.plural(means["cliff"].tasks, "task")
        texts.append(f"{phrases.capital('; '.join(parts))}, over {tasks}.")
    if report.exhausted:
        texts.append("The budget ended before the search was done, so cliffs may be missing.")
    return texts


def _be(count: int, one: str, several: str) -> str:
    return one if count == 1 else several


def summary_of(opened: RunsToContinue, study: CliffStudy, inputs: dict[str, Any]) -> dict[str, Any]:
    """What `cliffs.json` says."""
    report = study.report
    return {
        "schema_version": SCHEMA_VERSION,
        "inputs": inputs,
        "provenance": study.provenance.model_dump(mode="json"),
        "runs": len(report.traces),
        "cliffs": len(report.cliffs),
        "tested": report.tested,
        "rollouts": report.rollouts,
        "tokens": report.tokens,
        "missing": report.missing,
        "budget_exhausted": report.exhausted,
        # where the budget ended the search nobody knows what it would have suspected
        "expected_unseen": (
            None if report.exhausted else sum(trace.missed for trace in report.traces)
        ),
        "restored": [vars(row) for row in study.restored],
        "pairs": len(study.pairs),
        "sentences": sentences(opened, study),
    }


def cliffs_page(opened: RunsToContinue, study: CliffStudy, command: str) -> Page:
    """The page. `command`: how a reader does the first cliff again.

    Traces with cliffs come first; beyond `MOST_TRACES` the page says how many
    it leaves out.
    """
    report, config = study.report, study.provenance.config
    details: dict[str, dict[int, Detail]] = {}
    rows = zip(study.with_delete_keep(), study.alternatives, strict=True)
    for (cliff, delete_keep), alternatives in rows:
        told = cliff_detail(cliff, alternatives, delete_keep, opened.token_text)
        details.setdefault(cliff.trace, {})[cliff.token] = told
    traces = {trace.id: trace for trace in opened.traces}
    ordered = sorted(report.traces, key=lambda one: -len(details.get(one.trace, ())))
    folds = [
        trace_fold(
            opened.run(one.trace),
            traces[one.trace],
            one,
            details.get(one.trace, {}),
            opened.token_text,
            opened.shortcut_kinds(),
            f"trace-{i}",
        )
        for i, one in enumerate(ordered[:MOST_TRACES])
    ]
    left_out = len(ordered) - len(folds)
    more = [f"{left_out:,} more traces are in the tables beside this page."] if left_out else []
    lost = [f"{report.missing:,} rollouts missing"] if report.missing else []
    what = phrases.plural(len(report.cliffs), "rise" if config["rises"] else "cliff")
    return Page(
        eyebrow="Which tokens decide",
        title=f"{what} in {phrases.plural(len(report.traces), 'run')}",
        sentences=tuple(sentences(opened, study)),
        facts=(
            f"{report.rollouts:,} rollouts to search and confirm",
            f"{report.tokens:,} tokens",
            *lost,
            f"drops of {config['delta']} sought, of {config['delta0']} not reported",
            f"false discovery rate at most {config['fdr']}",
        ),
        sections=(
            Section(
                title="Traces",
                hint="The bar under a token is the chance of success after it; a full bar is"
                " certain success. Framed in red: a confirmed cliff. Open it for the alternatives."
                " Sampled off: it was not the likeliest token; uncertain: it was, among others;"
                " deterministic: it was nearly the only one.",
                blocks=(*folds, *more),
                empty="No trace was looked at.",
            ),
        ),
        command=command,
    )


def trace_fold(
    run: Trajectory,
    trace: Trace,
    found: TraceReport,
    details: Mapping[int, Detail],
    token_text: Callable[[int], str],
    shortcuts: frozenset[str],
    anchor: str,
) -> Fold:
    """A run, token by token where the policy wrote. `details`: of cliffs, by
    position among the sampled tokens; `shortcuts`: kinds of steps that take a
    declared shortcut.
    """
    by_step: dict[int, list[int]] = {}
    for position, number in enumerate(trace.steps):
        by_step.setdefault(number, []).append(position)
    steps: list[TextSpans] = []
    for number, step in enumerate(run.steps):
        marks = ("shortcut",) if shortcuts & {*step.kinds} else ()
        if number not in by_step:
            steps.append(step_text(number, step, marks=marks))
            continue
        text, spans = "", []
        for position in by_step[number]:
            start, potential = len(text), _known(found.potentials[position + 1])
            text += token_text(trace.tokens[position])
            if potential is not None or position in details:
                told = "" if potential is None else f", success after it {percent(potential)}"
                span = TextSpan(
                    start=start,
                    end=len(text),
                    label=f"token {position}{told}",
                    value=potential,
                    detail=details.get(position, ()),
                )
                spans.append(span)
        written = step.model_copy(update={"text": text, "tool_calls": ()})
        shown = step_text(number, written, longest=len(text), marks=marks, spans=tuple(spans))
        steps.append(shown)
    outcome = "no outcome" if run.outcome is None else f"outcome {plain(run.outcome)}"
    return Fold(
        title=run.task,
        facts=(f"trajectory {run.id}", outcome, phrases.plural(len(details), "cliff")),
        blocks=(potential_figure(found), *steps),
        open=True,
        anchor=anchor,
    )


def potential_figure(found: TraceReport) -> Figure:
    """The potential along the sampled tokens, with its interval."""
    potential, low, high = (
        tuple(map(_known, values)) for values in (found.potentials, found.low, found.high)
    )
    places = tuple(float(kept) for kept in range(len(potential)))
    return Figure(
        title="Chance of success after each token",
        form="lines",
        x_label="sampled tokens kept",
        y_label="success",
        series=(Series(name="potential", x=places, y=potential, low=low, high=high),),
    )


def _known(value: float) -> float | None:
    """NaN as what it is: not known."""
    return None if np.isnan(value) else float(value)


def cliff_detail(
    cliff: TestedToken,
    alternatives: Sequence[Alternative],
    delete_keep: DeleteKeep | None,
    token_text: Callable[[int], str],
) -> Detail:
    """What stands behind a confirmed cliff: its effect, its control, and what
    else could have been drawn, the most probable first.
    """
    assert cliff.drop is not None and cliff.contrast is not None
    drop = cliff.drop
    told = [
        f"Token {cliff.token}{f' ({cliff.kind})' if cliff.kind else ''}: drawn with probability"
        f" {percent(cliff.probability)}, it moves the chance of success by"
        f" {plain(-100 * drop.estimate, 1, plus=True)} points (drop {plain(100 * drop.low, 1)} to"
        f" {plain(100 * drop.high, 1)}). Against it, what else the policy draws here changes"
        f" success by {plain(100 * cliff.contrast.estimate, 1, plus=True)} points. e-value"
        f" {plain(cliff.e_value)}."
    ]
    if delete_keep is not None and delete_keep.cliff.restored is not None:
        control = None if delete_keep.control is None else delete_keep.control.restored
        beside = (
            ""
            if control is None
            else "; at another position of the same potential"
            f" {plain(100 * control, 1, plus=True)} points"
        )
        told.append(
            "Sampled afresh from before it instead of after it:"
            f" {plain(100 * delete_keep.cliff.restored, 1, plus=True)} points{beside}."
        )
    return (*told, alternatives_table(alternatives, cliff.token_id, token_text))


def alternatives_table(
    alternatives: Sequence[Alternative], drawn: int, token_text: Callable[[int], str]
) -> Table:
    """Tokens that could have stood at a cliff, the most probable first. `drawn`:
    the id of the trace's own.
    """
    rows = []
    for one in sorted(alternatives, key=lambda one: (-one.probability, one.token_id)):
        text = token_text(one.token_id)
        text = text if text.strip() else repr(text)  # one that leaves nothing to see
        own = " (drawn)" if one.token_id == drawn else ""
        rows.append((f"{text}{own}", one.probability, estimate_cell(one.potential)))
    return Table(
        title="What else could have been drawn",
        columns=("token", "probability", "success after it"),
        rows=tuple(rows),
        units={"probability": "share", "success after it": "share"},
    )
