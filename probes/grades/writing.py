"""What a grading leaves in its folder: tables for machines and a page for people.

`grades.parquet` (a row a step), `scores.parquet` (a row a run), `grades.json` (the table with intervals),
`kl_split.json`, `step_rewards.jsonl`, `grades.html`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from forensics import wording
from forensics.records import StepRewards
from forensics.records.base import SCHEMA_VERSION
from forensics.records.files import as_user_error, write_atomically, write_json
from forensics.records.step_reward import write_step_rewards
from forensics.version import code_version
from probes.grades.aggregation import DEFAULT
from probes.grades.attribution import Attribution
from probes.grades.comparing import Comparison, interval, table_rows
from probes.grades.confidence import CONFIDENCE
from probes.grades.grading import Graded, StepGrade
from probes.grades.page import MOST_RUNS, grades_page, shown_first
from probes.grades.probing import probe_lines, probe_rows, probe_tables
from probes.grades.running import Grading, chosen_runs
from probes.grades.selection import Selected
from probes.grades.sentences import facts, sentences, title
from probes.grades.step_rewards import step_rewards
from probes.kl.writing import write_split

ROWS_AT_ONCE: Final = 4096
NUMBERS: Final = {  # column of the table -> column of a step's means
    "logprob_policy": "policy", "logprob_reference": "reference", "entropy": "entropy", "kl": "kl",
    "self_certainty": "self_certainty", "confidence": CONFIDENCE,
}
STEPS: Final = pa.schema([
    ("trajectory", pa.string()), ("step", pa.int32()), ("task", pa.string()), ("kinds", pa.list_(pa.string())),
    ("tokens", pa.int32()), ("grade", pa.float64()), ("ratio_sum", pa.float64()),
    *((name, pa.float64()) for name in NUMBERS), ("reason", pa.string()),
])


def write_grading(folder: Path, grading: Grading) -> dict[str, Any]:
    """Writes every file; returns what `grades.json` says."""
    _write_table(folder / "grades.parquet", STEPS, _step_rows(grading.runs))
    _write_table(folder / "scores.parquet", _runs_schema(grading), _run_rows(grading.runs))
    write_step_rewards(folder / "step_rewards.jsonl", _rewards(grading))
    if grading.split is not None:
        write_split(folder, grading.split)
    summary = summary_of(grading)
    write_json(folder / "grades.json", summary)
    _write_page(folder / "grades.html", grading)
    return summary


def summary_of(grading: Grading) -> dict[str, Any]:
    """Everything but the steps, as plain data."""
    comparison = grading.comparison
    return {
        "schema_version": SCHEMA_VERSION, "inputs": dict(grading.inputs), "code": code_version(),
        "aggregation": asdict(DEFAULT), "runs": len(grading.runs), "judged_runs": comparison.runs,
        "tasks": comparison.tasks, "best_of": comparison.n, "table": list(table_rows(comparison)),
        **_reference_rates(comparison), "calibration": [asdict(one) for one in comparison.calibration],
        "shortcuts": {name: asdict(one) for name, one in grading.shortcuts.items()},
        "attribution": [_attribution(one) for one in grading.attribution],
        "selected": None if grading.selected is None else _selected(grading.selected),
        "ungraded_steps": _ungraded(grading.runs), "retokenised_runs": sum(run.retokenised for run in grading.runs),
        "sampler_agreement": None if grading.agreement is None else asdict(grading.agreement),
        "linear_probes": probe_rows(grading.probes) if grading.probes else None,
        "missing": list(grading.missing), "sentences": sentences(grading),
    }


def _reference_rates(comparison: Comparison) -> dict[str, Any]:
    """What best-of-N is held against: a run at random, and the oracle."""
    best = comparison.rows[0].best
    return {"mean_success": interval(best.mean if best else None), "oracle": interval(best.oracle if best else None)}


def _ungraded(runs: Iterable[Graded]) -> dict[str, int]:
    """How many steps have no grade, by reason."""
    found: dict[str, int] = {}
    for run in runs:
        for step in run.steps:
            if step.reason is not None:
                found[step.reason] = found.get(step.reason, 0) + 1
    return found


def _attribution(one: Attribution) -> dict[str, Any]:
    def share(found: Any) -> dict[str, float]:
        return {name: getattr(found, name) for name in ("estimate", "low", "high", "level")}

    return {"predictor": one.predictor, "at_the_step": share(one.at), "within_one": share(one.near), "runs": one.runs}


def _selected(found: Selected) -> dict[str, Any]:
    figures = {name: interval(getattr(found, name)) for name in ("selecting", "reported", "default", "lead")}
    return {"aggregation": asdict(found.aggregation), **figures}


def _step_rows(runs: Iterable[Graded]) -> Iterator[dict[str, Any]]:
    for run in runs:
        for step in run.steps:
            yield {"trajectory": run.trajectory, "task": run.task, **_step_row(step)}


def _step_row(step: StepGrade) -> Mapping[str, Any]:
    numbers = {name: step.columns.get(column) for name, column in NUMBERS.items()}
    return {"step": step.step, "kinds": list(step.kinds), "tokens": step.tokens, "grade": step.grade,
            "ratio_sum": step.ratio_sum, "reason": step.reason, **numbers}


def _runs_schema(grading: Grading) -> pa.Schema:
    names = grading.runs[0].scores if grading.runs else ()
    return pa.schema([("trajectory", pa.string()), ("task", pa.string()), ("outcome", pa.float64()),
                      *((name, pa.float64()) for name in names)])


def _run_rows(runs: Iterable[Graded]) -> Iterator[dict[str, Any]]:
    for run in runs:
        yield {"trajectory": run.trajectory, "task": run.task, "outcome": run.outcome, **run.scores}


def _write_table(path: Path, schema: pa.Schema, rows: Iterator[dict[str, Any]]) -> None:
    draft = path.with_name(f".{path.name}.draft")
    try:
        with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
            while batch := [row for row, _ in zip(rows, range(ROWS_AT_ONCE), strict=False)]:
                writer.write_table(pa.Table.from_pylist(batch, schema))
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise as_user_error(error, path) from error


def _rewards(grading: Grading) -> Iterator[StepRewards]:
    """The log is read once more: a record says of which tokens it speaks."""
    code = code_version()
    for graded, run in zip(grading.runs, grading.log.rollouts, strict=True):
        yield step_rewards(graded, run, policy=grading.policy, reference=grading.reference, code=code,
                           beta=grading.beta)


def _write_page(path: Path, grading: Grading) -> None:
    order = shown_first(grading.runs)
    graded = {run.trajectory: run for run in order}
    runs = {run.id: run for run in chosen_runs(grading, set(graded))}
    left = len(grading.runs) - len(order)
    shown = [(graded[name], runs[name]) for name in graded]
    assert len(shown) <= MOST_RUNS
    page = grades_page(title(grading), sentences(grading), shown, grading.comparison, split=grading.split,
                       facts=facts(grading), left_out=left, shortcuts=frozenset(_attempts(grading)),
                       probes=tuple(probe_tables(grading.probes)))
    write_atomically(path, page)


def _attempts(grading: Grading) -> Iterator[str]:
    for kinds in grading.attempts.values():
        yield from kinds


def table_lines(grading: Grading) -> Iterator[str]:
    """The table as text, a line a score; then that of each question to the probes."""
    comparison = grading.comparison
    best = f"best of {comparison.n}"
    yield f"{'score':<36}{'AUROC of success':<26}{best:<26}advantage's lead in AUROC"
    for row in comparison.rows:
        cells = (_cell(row.auroc), _cell(row.best.chosen if row.best else None, share=True),
                 _cell(row.advantage_auroc, plus=True) if row.advantage_auroc else "")
        yield f"{row.score:<36}{cells[0]:<26}{cells[1]:<26}{cells[2]}".rstrip()
    first = comparison.rows[0].best
    if first is not None:
        for name, found in (("a run at random", first.mean), ("any of them (oracle)", first.oracle)):
            yield f"{name:<62}{_cell(found, share=True)}"
    yield from probe_lines(grading.probes)


def _cell(found: Any, *, share: bool = False, plus: bool = False) -> str:
    if found is None:
        return "not measured"
    if share:
        return f"{wording.percent(found.estimate)} ({wording.point_range(found.low, found.high)})"
    return f"{found.estimate:{'+' if plus else ''}.2f} ({found.low:.2f} to {found.high:.2f})"
