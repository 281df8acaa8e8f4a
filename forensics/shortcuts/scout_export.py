"""Findings as Inspect Scout's scans: stock `inspect_scout` loads the folder
(`scan_results_df`, `scout view`).

1. Each side of the case is a scan of its own, `PATH/scan_id=ID/`: `_scan.json`,
   `_summary.json`, `_errors.jsonl` and a Parquet table for each family (Scout's
   "scanner"), with the columns of inspect_scout 0.6 (`_recorder/buffer.py`).
2. A table has a row for each finding, and one with no value for each run
   without any. `value` is the furthest link that holds (attempt, obtained,
   used, credited), `label` the channel, `answer` the reviewer's, `metadata` the
   links.
3. A flagged run's messages are in its row; the steps that a finding cites are
   referenced by it. Others leave them out.

The id is a hash of the log and the settings, and no time is written: the same
scan gives the same files.
"""

import filecmp
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from forensics.case import Case, Rollouts
from forensics.errors import UserError
from forensics.records import Trajectory, content_hash
from forensics.records.files import as_user_error
from forensics.shortcuts.export import Key, findings_of, key_of, level_of, reviews_of, runs_of
from forensics.shortcuts.family import families

ROWS_AT_ONCE = 512
LETTERS_AT_ONCE = 8_000_000  # over all tables
_TEXT = pa.large_string()
_OTHERS = {
    "transcript_task_repeat": pa.int64(),
    "transcript_success": pa.bool_(),
    "transcript_message_count": pa.int64(),
    "transcript_total_time": pa.float64(),
    "transcript_total_tokens": pa.int64(),
    "transcript_trust_content": pa.bool_(),
    "scanner_version": pa.int64(),
    "scan_total_tokens": pa.int64(),
}
# in Scout's order
COLUMNS = ("transcript_id", "transcript_source_type", "transcript_source_id",
           "transcript_source_uri", "transcript_date", "transcript_task_set", "transcript_task_id",
           "transcript_task_repeat", "transcript_agent", "transcript_agent_args",
           "transcript_model", "transcript_model_options", "transcript_score",
           "transcript_score_explanation", "transcript_success", "transcript_message_count",
           "transcript_total_time", "transcript_total_tokens", "transcript_error",
           "transcript_limit", "transcript_trust_content", "transcript_metadata", "scan_id",
           "scan_tags", "scan_metadata", "scan_git_origin", "scan_git_version", "scan_git_commit",
           "scanner_key", "scanner_name", "scanner_version", "scanner_package_version",
           "scanner_file", "scanner_params", "input_type", "input_ids", "input", "input_data",
           "uuid", "label", "value", "value_type", "answer", "explanation", "metadata",
           "message_references", "event_references", "scan_error", "scan_error_traceback",
           "scan_error_type", "validation_target", "validation_result", "validation_predicate",
           "validation_split", "scan_total_tokens", "scan_model_usage", "scan_events",
           "timestamp")  # fmt: skip
SCHEMA = pa.schema([(name, _OTHERS.get(name, _TEXT)) for name in COLUMNS])
_ALWAYS = {
    "input_type": "transcript",
    "event_references": "[]",
    "scan_total_tokens": 0,
    "scan_model_usage": "{}",
    "scan_events": "[]",
}
WIN = 0.5
NAME = "policy_forensics"
LINKS = ("attempt_steps", "obtained", "obtained_steps", "used", "credited", "complete",
         "patterns", "unresolved", "overlap", "control_overlap")  # fmt: skip
_META = ("id", "task", "policy", "environment", "seed", "sample", "outcome", "end", "end_reason",
         "steps.list.element.role")  # fmt: skip


class Tables:
    """One file for each scanner, all written at once with bounded memory."""

    def __init__(self, folder: Path, keys: Iterable[str]) -> None:
        self._writers = {
            key: pq.ParquetWriter(folder / f"{key}.parquet", SCHEMA, compression="zstd")
            for key in keys
        }
        self._rows: dict[str, list[dict[str, Any]]] = {key: [] for key in self._writers}
        self._letters = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._write()
        for writer in self._writers.values():
            writer.close()

    def add(self, key: str, row: dict[str, Any]) -> None:
        """A row of one table; columns that it does not name are null."""
        self._rows[key].append({**_ALWAYS, **row})
        self._letters += len(row["input"])
        if len(self._rows[key]) >= ROWS_AT_ONCE or self._letters >= LETTERS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        for key, rows in self._rows.items():
            if rows:
                self._writers[key].write_table(_table(rows))
                rows.clear()
        self._letters = 0


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as a table; a lone surrogate, which UTF-8 cannot hold, is spelled out."""
    try:
        return pa.Table.from_pylist(rows, SCHEMA)
    except UnicodeEncodeError:
        return pa.Table.from_pylist(
            [
                {
                    name: (
                        value.encode(errors="backslashreplace").decode()
                        if isinstance(value, str)
                        else value
                    )
                    for name, value in row.items()
                }
                for row in rows
            ],
            SCHEMA,
        )


def write_scout(case: Case, path: Path, *, force: bool) -> None:
    """Write every side's scan into a folder of scans. Raises `UserError` where
    another scan of that id is there.
    """
    by_side: dict[str, dict[str, list[dict[str, Any]]]] = {side: {} for side, _ in case.stored}
    for row in findings_of(case.folder):
        by_side[row["side"]].setdefault(row["trajectory"], []).append(row)
    reviews = reviews_of(case.folder)
    keys = _keys(by_side)
    for (side, _), rollouts in sorted(case.stored.items()):
        name = content_hash([side, rollouts.key, case.seed, case.code_version], 22)
        target, draft = path / f"scan_id={name}", path / f".{name}.draft"
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            _write_scan(case, side, name, rollouts, by_side[side], reviews, keys, draft)
            _settle(draft, target, force=force)
        except OSError as error:
            raise as_user_error(error, target) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _settle(draft: Path, target: Path, *, force: bool) -> None:
    if target.exists():
        new, old = ({file.name for file in folder.iterdir()} for folder in (draft, target))
        same = new == old and not any(
            filecmp.cmpfiles(draft, target, sorted(new), shallow=False)[1:]
        )
        if not same and not force:
            raise UserError(
                f"{target} is there already and holds something else; delete it, or choose another"
                " path"
            )
        shutil.rmtree(target)
    draft.replace(target)


def _keys(found: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, str]:
    """The table of each family: those of the scanner, and what else was found on any side."""
    others = {row["family"] for runs in found.values() for rows in runs.values() for row in rows}
    return {
        name: scanner_key(name) for name in sorted({family.id for family in families()} | others)
    }


def _write_scan(
    case: Case,
    side: str,
    name: str,
    rollouts: Rollouts,
    found: dict[str, list[dict[str, Any]]],
    reviews: dict[Key, dict[str, Any]],
    keys: dict[str, str],
    folder: Path,
) -> None:
    flagged = runs_of(rollouts, found)
    ahead = next(flagged, None)
    counts = dict.fromkeys(keys, 0)
    with Tables(folder, keys.values()) as tables:
        runs = 0
        for row in rollouts.rows(*_META):
            runs += 1
            run = None
            if ahead is not None and ahead.id == row["id"]:
                run, ahead = ahead, next(flagged, None)
            shared = _transcript(row, side) | _scan(name, side, case.code_version)
            seen = found.get(row["id"], [])
            text, bare = _input(row, run), _input(row, None)
            for family, key in keys.items():
                mine = [finding for finding in seen if finding["family"] == family]
                counts[family] += bool(mine)
                results = [_result(finding, reviews.get(key_of(finding))) for finding in mine] or [
                    _EMPTY
                ]
                for result in results:
                    mark = content_hash([name, key, row["id"], result["label"]], 22)
                    tables.add(
                        key,
                        {
                            **shared,
                            **_scanner(key, family, case.code_version),
                            **result,
                            "uuid": mark,
                            "input": text if mine else bare,
                            "input_ids": json.dumps([row["id"]]),
                        },
                    )
    _write_texts(
        folder, name, side, case, {key: (runs, counts[family]) for family, key in keys.items()}
    )


def scanner_key(family: str) -> str:
    """A family's name as a file name; one that is none gets a hash."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", family)[:80]
    return plain if plain and plain == family else f"{plain}-{content_hash(family, 8)}"


def _transcript(row: dict[str, Any], side: str) -> dict[str, Any]:
    outcome, errored = row["outcome"], row["end"] == "errored"
    return {
        "transcript_id": row["id"],
        "transcript_source_type": NAME,
        "transcript_source_id": side,
        "transcript_task_set": row["environment"],
        "transcript_task_id": row["task"],
        "transcript_task_repeat": row["sample"] + 1,
        "transcript_model": row["policy"],
        "transcript_model_options": json.dumps({"seed": row["seed"]}),
        "transcript_score": None if outcome is None else repr(float(outcome)),
        "transcript_success": None if outcome is None else outcome >= WIN,
        "transcript_message_count": len(row["steps"] or ()),
        "transcript_error": (row["end_reason"] or "errored") if errored else "",
        "transcript_limit": (row["end_reason"] or "limit") if row["end"] == "truncated" else "",
        "transcript_metadata": "{}",
    }


def _scan(name: str, side: str, code: str) -> dict[str, Any]:
    return {
        "scan_id": name,
        "scan_tags": "[]",
        "scan_metadata": json.dumps({"side": side, "code": code}),
    }


def _scanner(key: str, family: str, code: str) -> dict[str, Any]:
    return {
        "scanner_key": key,
        "scanner_name": f"{NAME}/{family}",
        "scanner_version": 1,
        "scanner_package_version": code.rsplit(" ", 1)[-1],
        "scanner_params": "{}",
    }


_EMPTY: dict[str, Any] = {
    "label": None,
    "value": None,
    "value_type": "null",
    "answer": None,
    "explanation": None,
    "metadata": "{}",
    "message_references": "[]",
}


def _result(row: dict[str, Any], review: dict[str, Any] | None) -> dict[str, Any]:
    cited = sorted({*row["attempt_steps"], *row["obtained_steps"]})
    answer = (
        None
        if review is None or review["answer"] is None
        else ("yes" if review["answer"] else "no")
    )
    metadata: dict[str, Any] = {name: row.get(name) for name in LINKS}
    if review is not None:
        metadata["review"] = {
            name: review[name] for name in ("answer", "undefined", "question", "words", "model")
        }
    references = [
        {"type": "message", "cite": f"[step {step}]", "id": f"step-{step}"} for step in cited
    ]
    explanation = " ".join((row["explanation"], *(f"[step {step}]" for step in cited)))
    return {
        "label": row["channel"],
        "value": level_of(row),
        "value_type": "string",
        "answer": answer,
        "explanation": explanation,
        "metadata": json.dumps(metadata),
        "message_references": json.dumps(references),
    }


def _input(row: dict[str, Any], run: Trajectory | None) -> str:
    """The transcript as Scout's `Transcript`; without messages for a run that is not flagged."""
    return json.dumps(
        {
            "transcript_id": row["id"],
            "source_type": NAME,
            "task_set": row["environment"],
            "task_id": row["task"],
            "task_repeat": row["sample"] + 1,
            "model": row["policy"],
            "metadata": {},
            "messages": [] if run is None else list(_messages(run)),
            "events": [],
        }
    )


def _messages(run: Trajectory) -> Iterator[dict[str, Any]]:
    for number, step in enumerate(run.steps):
        message: dict[str, Any] = {"id": f"step-{number}", "role": step.role, "content": step.text}
        if step.role == "assistant" and step.tool_calls:
            message["tool_calls"] = [
                {
                    "id": f"call-{number}-{place}",
                    "function": call.name,
                    "arguments": _arguments(call.arguments),
                }
                for place, call in enumerate(step.tool_calls)
            ]
        yield message


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {"input": text}
    return found if isinstance(found, dict) else {"input": text}


def _write_texts(
    folder: Path, name: str, side: str, case: Case, counts: dict[str, tuple[int, int]]
) -> None:
    scan = {
        "scan_id": name,
        "scan_name": f"{NAME} {side}",
        "metadata": {"side": side, "code": case.code_version},
        "packages": {"policy-forensics": case.code_version.rsplit(" ", 1)[-1]},
        "options": {},
        "scanners": {key: {"name": f"{NAME}/{key}", "version": 1, "params": {}} for key in counts},
    }
    summary = {
        "complete": True,
        "scanners": {
            key: {"scans": runs, "results": found, "errors": 0, "tokens": 0, "model_usage": {}}
            for key, (runs, found) in counts.items()
        },
    }
    for file, content in (("_scan.json", scan), ("_summary.json", summary)):
        (folder / file).write_text(json.dumps(content, indent=2), encoding="utf-8")
    (folder / "_errors.jsonl").write_text("")
