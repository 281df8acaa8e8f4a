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

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pyarrow as pa

from forensics.case import Case, Rollouts
from forensics.records import Trajectory, content_hash
from forensics.records.tables import open_writer
from forensics.shortcuts.export import (
    REVIEWED,
    Key,
    findings_of,
    key_of,
    level_of,
    reviews_of,
    runs_of,
    write_export,
)
from forensics.shortcuts.family import families

ROWS_AT_ONCE = 512
LETTERS_AT_ONCE = 8_000_000  # over all tables
_TYPES = tomllib.loads((files(__package__) / "scout_columns.toml").read_text(encoding="utf-8"))
SCHEMA = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in _TYPES.items()])
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
        with ExitStack() as opened:
            self._writers = {
                key: opened.enter_context(open_writer(folder / f"{key}.parquet", SCHEMA))
                for key in keys
            }
            self._open = opened.pop_all()
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
        with self._open:
            if kind is None:
                self._write()

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
    found = {family.id for family in families()}
    for row in findings_of(case.folder):
        by_side[row["side"]].setdefault(row["trajectory"], []).append(row)
        found.add(row["family"])
    keys = {name: scanner_key(name) for name in sorted(found)}
    reviews = reviews_of(case.folder)
    for (side, _), rollouts in sorted(case.stored.items()):
        name = content_hash([side, rollouts.key, case.seed, case.code_version], 22)
        scan = ScoutScan(name, side, case.code_version, keys, reviews)
        write = partial(scan.write, rollouts, by_side[side])
        write_export(path / f"scan_id={name}", write, force=force)


class ScoutScan(NamedTuple):
    """One side's scan: its id, and the table of each family that was looked for."""

    id: str
    side: str
    code: str
    keys: Mapping[str, str]
    reviews: Mapping[Key, dict[str, Any]]

    @property
    def version(self) -> str:
        return self.code.rsplit(" ", 1)[-1]

    @property
    def metadata(self) -> dict[str, str]:
        return {"side": self.side, "code": self.code}

    def write(
        self, rollouts: Rollouts, found: dict[str, list[dict[str, Any]]], folder: Path
    ) -> None:
        """The scan of a log in which `found` was found, as a new folder."""
        folder.mkdir()
        flagged = runs_of(rollouts, found)
        ahead = next(flagged, None)
        counts = dict.fromkeys(self.keys, 0)
        runs = 0
        with Tables(folder, self.keys.values()) as tables:
            for row in rollouts.rows(*_META):
                runs += 1
                run = None
                if ahead is not None and ahead.id == row["id"]:
                    run, ahead = ahead, next(flagged, None)
                shared = _transcript(row, self.side) | {
                    "scan_id": self.id,
                    "scan_tags": "[]",
                    "scan_metadata": json.dumps(self.metadata),
                    "scanner_version": 1,
                    "scanner_package_version": self.version,
                    "scanner_params": "{}",
                    "input_ids": json.dumps([row["id"]]),
                }
                text, bare = scout_transcript(row, run), scout_transcript(row, None)
                for family, key in self.keys.items():
                    mine = [one for one in found.get(row["id"], ()) if one["family"] == family]
                    counts[family] += bool(mine)
                    shared |= {
                        "scanner_key": key,
                        "scanner_name": f"{NAME}/{family}",
                        "input": text if mine else bare,
                    }
                    results = [_result(one, self.reviews.get(key_of(one))) for one in mine]
                    for result in results or [_EMPTY]:
                        mark = content_hash([self.id, key, row["id"], result["label"]], 22)
                        tables.add(key, {**shared, **result, "uuid": mark})
        self._write_texts(
            folder, {key: (runs, counts[family]) for family, key in self.keys.items()}
        )

    def _write_texts(self, folder: Path, counts: Mapping[str, tuple[int, int]]) -> None:
        stated = {
            "scan_id": self.id,
            "scan_name": f"{NAME} {self.side}",
            "metadata": self.metadata,
            "packages": {"policy-forensics": self.version},
            "options": {},
            "scanners": {
                key: {"name": f"{NAME}/{key}", "version": 1, "params": {}} for key in counts
            },
        }
        summary = {
            "complete": True,
            "scanners": {
                key: {"scans": runs, "results": found, "errors": 0, "tokens": 0, "model_usage": {}}
                for key, (runs, found) in counts.items()
            },
        }
        for file, content in (("_scan.json", stated), ("_summary.json", summary)):
            (folder / file).write_text(json.dumps(content, indent=2), encoding="utf-8")
        (folder / "_errors.jsonl").write_text("")


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
    answer = None if review is None else {True: "yes", False: "no"}.get(review["answer"])
    metadata: dict[str, Any] = {name: row.get(name) for name in LINKS}
    if review is not None:
        metadata["review"] = {name: review[name] for name in REVIEWED}
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


def scout_transcript(row: dict[str, Any], run: Trajectory | None) -> str:
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
