"""What a study of cliffs leaves in its folder: rows for machines and a page for people."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forensics import wording
from forensics.records.base import SCHEMA_VERSION
from forensics.records.files import as_user_error, write_atomically, write_json, write_json_lines
from resampling.cliffs import TestedToken
from resampling.study.causation import DeleteKeep
from resampling.study.opening import Opened
from resampling.study.page import cliffs_page
from resampling.study.running import Study, cliff_row
from resampling.study.view import Mark, TraceView, choices_of, trace_view

POTENTIALS = pa.schema([
    ("trajectory", pa.string()), ("kept", pa.int32()), ("potential", pa.float64()), ("low", pa.float64()),
    ("high", pa.float64()),
])


def write_study(folder: Path, opened: Opened, study: Study, inputs: dict[str, Any], command: str) -> dict[str, Any]:
    """Write `cliffs.jsonl`, `potentials.parquet`, `delete_keep.jsonl`, `pairs.jsonl`, `cliffs.json`, `cliffs.html`.

    Returns what `cliffs.json` says.
    """
    write_json_lines(folder / "cliffs.jsonl", _rows(opened, study))
    _write_potentials(folder / "potentials.parquet", study)
    write_json_lines(folder / "delete_keep.jsonl", map(_arms, study.causation))
    write_json_lines(folder / "pairs.jsonl", (pair.model_dump(mode="json") for pair in study.pairs))
    summary = _summary(opened, study, inputs)
    write_json(folder / "cliffs.json", summary)
    page = cliffs_page(title(study), sentences(opened, study), list(_views(opened, study)), facts(study), command)
    write_atomically(folder / "cliffs.html", page)
    return summary


def title(study: Study) -> str:
    """`3 cliffs in 20 runs`."""
    what = "rise" if study.provenance.config["rises"] else "cliff"
    return f"{wording.plural(len(study.report.cliffs), what)} in {wording.plural(len(study.report.traces), 'run')}"


def sentences(opened: Opened, study: Study) -> list[str]:
    """What was found, with the figure that proves it and its control."""
    report, rises = study.report, study.provenance.config["rises"]
    tested = _tested(study)
    searched = wording.plural(sum(trace.searched for trace in report.traces), "token")
    told = [
        f"Of {searched} that could decide at all, {tested} "
        f"{_be(tested, 'was', 'were')} suspected and tested on fresh samples; {len(report.cliffs)} "
        f"{_be(len(report.cliffs), 'is', 'are')} confirmed to {'raise' if rises else 'lower'} the chance of success."
    ]
    kinds = opened.shortcut_kinds()
    if kinds and report.cliffs:
        inside = sum(bool(kinds & {*opened.run(c.trace).steps[c.step].kinds}) for c in report.cliffs)
        told.append(f"{inside} of them {_be(inside, 'stands', 'stand')} in steps that take a declared shortcut.")
    told += _restored(study)
    if report.exhausted:
        told.append("The budget ended before the search was done, so cliffs may be missing.")
    return told


def _be(count: int, one: str, several: str) -> str:
    return one if count == 1 else several


def _restored(study: Study) -> list[str]:
    found = {row.what: row for row in study.restored if row.kind == "all"}
    if "cliff" not in found:
        return []
    parts = [(f"sampling afresh from before {name} instead of after them changes success by", found[what])
             for what, name in (("cliff", "these tokens"), ("control", "other tokens of the same potential"))
             if what in found]
    told = [f"{text} {wording.points(row.estimate)} points ({wording.point_range(row.low, row.high)})"
            for text, row in parts]
    return [f"{wording.capital('; '.join(told))}, over {wording.plural(found['cliff'].tasks, 'task')}."]


def facts(study: Study) -> list[str]:
    """What it cost and what is promised."""
    report, config = study.report, study.provenance.config
    lost = [f"{report.missing:,} rollouts missing"] if report.missing else []
    return [f"{report.rollouts:,} rollouts to search and confirm", f"{report.tokens:,} tokens", *lost,
            f"drops of {config['delta']} sought, of {config['delta0']} not reported",
            f"false discovery rate at most {config['fdr']}"]


def _rows(opened: Opened, study: Study) -> Iterator[dict[str, Any]]:
    for found, causation in _with_causation(study):
        yield cliff_row(found, opened.token_text(found.token_id), causation)


def _with_causation(study: Study) -> Iterator[tuple[TestedToken, DeleteKeep | None]]:
    for place, found in enumerate(study.report.cliffs):
        yield found, study.causation[place] if study.causation else None


def _write_potentials(path: Path, study: Study) -> None:
    rows = [
        {"trajectory": trace.trace, "kept": kept,
         **{name: None if np.isnan(value) else float(value) for name, value in (
             ("potential", trace.potentials[kept]), ("low", trace.low[kept]), ("high", trace.high[kept]))}}
        for trace in study.report.traces for kept in range(len(trace.potentials))
    ]
    draft = path.with_name(f".{path.name}.draft")
    try:
        pq.write_table(pa.Table.from_pylist(rows, POTENTIALS), draft, compression="zstd")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise as_user_error(error, path) from error


def _arms(row: DeleteKeep) -> dict[str, Any]:
    def cut(one: Any) -> dict[str, Any] | None:
        if one is None:
            return None
        passes = {name: {str(k): value for k, value in getattr(one, name).items()} for name in ("delete", "keep")}
        return {"token": one.token, **passes, "restored": one.restored, "missing": one.missing}

    return {"trajectory": row.trace, "task": row.task, "kind": row.kind, "cliff": cut(row.cliff),
            "control": cut(row.control)}


def _tested(study: Study) -> int:
    """Suspected tokens that fresh samples came back for."""
    return sum(token.pairs > 0 for token in (*study.report.cliffs, *study.report.rejected))


def _summary(opened: Opened, study: Study, inputs: dict[str, Any]) -> dict[str, Any]:
    report = study.report
    return {
        "schema_version": SCHEMA_VERSION, "inputs": inputs, "provenance": study.provenance.model_dump(mode="json"),
        "runs": len(report.traces), "cliffs": len(report.cliffs), "tested": _tested(study),
        "rollouts": report.rollouts, "tokens": report.tokens, "missing": report.missing,
        "budget_exhausted": report.exhausted,
        # where the budget ended the search nobody knows what it would have suspected
        "expected_unseen": None if report.exhausted else sum(trace.missed for trace in report.traces),
        "restored": [vars(row) for row in study.restored], "pairs": len(study.pairs),
        "sentences": sentences(opened, study),
    }


def _views(opened: Opened, study: Study) -> Iterator[TraceView]:
    marks: dict[str, dict[int, Mark]] = {}
    for place, (found, causation) in enumerate(_with_causation(study)):
        marks.setdefault(found.trace, {})[found.token] = _mark(opened, study, place, causation)
    traces = {trace.id: trace for trace in opened.traces}
    for found_trace in study.report.traces:
        name = found_trace.trace
        yield trace_view(
            opened.run(name), traces[name], found_trace.potentials, marks.get(name, {}), opened.token_text,
            opened.shortcut_kinds(), low=found_trace.low, high=found_trace.high,
        )


def _mark(opened: Opened, study: Study, place: int, causation: DeleteKeep | None) -> Mark:
    found = study.report.cliffs[place]
    assert found.drop is not None and found.contrast is not None
    control = None if causation is None else causation.control
    return Mark(
        drop=found.drop.estimate, low=found.drop.low, high=found.drop.high, contrast=found.contrast.estimate,
        e_value=found.e_value, kind=found.kind, probability=found.probability,
        choices=choices_of(study.alternatives[place], found.token_id, opened.token_text),
        restored=None if causation is None else causation.cliff.restored,
        control=None if control is None else control.restored,
    )
