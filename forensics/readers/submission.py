"""What a run handed in, and what a benchmark said of it beside the log.

1. A unified diff is kept whole as `patch`; the lines that it adds are the
   `submission`. What is no diff (an answer) was handed in as a whole.
2. An empty hand-in of a run that finished is an empty submission; a run that
   handed in nothing has none.
3. The verdict on a task is looked up beside the log, under the names that
   SWE-bench's harness and sb-cli write: `reports/ID.report.json`,
   `ID.report.json`, `report.json` (of one instance), `results.json` (lists of
   ids), `MODEL.RUN.json` (what `run_evaluation` writes). An instance whose evaluation failed
   has no verdict.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from forensics.actions.unified_diff import added_lines
from forensics.readers.content import UnreadableContent, read_whole
from forensics.readers.json_rows import parse
from forensics.readers.values import (
    End,
    Work,
    as_list,
    as_mapping,
    ending,
    field_names,
    run_of,
    score_of,
)
from forensics.records import Step, Trajectory

HUNK = re.compile(r"^@@ -\d+(,\d+)? \+\d+(,\d+)? @@", re.MULTILINE)
_NAMES = field_names("reports")
MOST_SUMMARIES = 200  # files of a folder whose beginning is looked at
_SUMMARY = b'"resolved_instances"'
LONGEST_REPORT = 32 << 20  # bytes


def is_patch(text: str) -> bool:
    """Whether a text is a unified diff, be it one that only renames or changes modes."""
    return text.lstrip().startswith("diff --git ") or HUNK.search(text) is not None


def submission_of(text: Any, *, finished: bool) -> Work:
    """The work of a run whose log says that `text` was handed in."""
    if not isinstance(text, str) or not text.strip():
        return Work("" if finished and isinstance(text, str) else None)
    if not is_patch(text):
        return Work(text)
    return Work(added_lines(text.replace("\r\n", "\n")), text)


def exit_ending(status: Any, done: Sequence[str], budgets: Sequence[str]) -> End:
    """How a run ended by its harness's exit status: those of `done` are of the rules,
    what holds one of the words `budgets` is a cut.
    """
    if status in done:
        return "terminated", str(status)
    return ending(status or "the log does not say how the run ended", budgets, "errored")


def judged_run(
    path: Path, task: str, steps: Iterable[Step], end: End, handed_in: Any, **known: Any
) -> Trajectory:
    """A run on a benchmark of patches: what it handed in, and the verdict beside its
    log. `known`: what `run_of` takes, too.
    """
    outcome = benchmark_outcome(path, task)
    return run_of(
        steps,
        end,
        task=task,
        rewards={} if outcome is None else {"resolved": outcome},
        outcome=outcome,
        work=submission_of(handed_in, finished=end[0] == "terminated"),
        **known,
    )


def benchmark_outcome(path: Path, task: str) -> float | None:
    """What the benchmark's own files beside the log say of a task: 1 resolved,
    0 not, `None` unknown.
    """
    if not task or Path(task).name != task:
        return None
    for folder in (path.parent, path.parent.parent):
        for found in _verdicts(folder, task):
            return found
    return None


def summaries(folder: Path) -> tuple[Path, ...]:
    """The files of a folder that hold what SWE-bench's harness says of a whole run."""
    try:
        return _summaries(folder, folder.stat().st_mtime_ns)
    except OSError:
        return ()


@lru_cache(maxsize=64)
def _summaries(folder: Path, _: int) -> tuple[Path, ...]:
    with os.scandir(folder) as found:
        named = sorted(
            Path(entry.path)
            for entry in found
            if entry.name.count(".") > 1 and entry.name.endswith(".json") and entry.is_file()
        )
    return tuple(path for path in named[:MOST_SUMMARIES] if _SUMMARY in _head(path))


def _head(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(2000)
    except OSError:
        return b""


def is_report_of(path: Path, pattern: str) -> bool:
    """Whether a verdict on a log with such a name is looked up in this file."""
    known = path.name in _NAMES.names or path.name.endswith(".report.json")
    told = known or path in summaries(path.parent)
    return told and any(
        lies_with(folder / path.name, pattern) for folder in (path.parent, path.parent.parent)
    )


def _verdicts(folder: Path, task: str) -> Iterator[float]:
    for pattern in _NAMES.files:
        report = as_mapping(content_beside(folder / pattern.format(task)))
        resolved = score_of(as_mapping(report.get(task, report)).get("resolved"))
        if resolved is not None:
            yield resolved
    for found in (*(folder / name for name in _NAMES.tables), *summaries(folder)):
        table = as_mapping(content_beside(found))
        if any(task in as_list(table.get(key)) for key in _NAMES.right):
            yield 1.0
        elif task not in as_list(table.get("error_ids")) and any(
            task in as_list(table.get(key)) for key in _NAMES.wrong
        ):
            yield 0.0


def content_beside(path: Path) -> Any:
    """What a JSON file beside a log holds, `None` where there is none."""
    try:
        return _parsed(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=8)
def _parsed(path: Path, _: int) -> Any:
    try:
        return parse(read_whole(path, LONGEST_REPORT))
    except UnreadableContent:
        return None


def lies_with(path: Path, pattern: str) -> bool:
    """Whether files with such names lie beside a file, or in folders beside it."""
    folder = path.parent
    return holds(folder, pattern) or next(folder.glob(f"*/{pattern}"), None) is not None


def holds(folder: Path, pattern: str) -> bool:
    """Whether a folder has an entry whose name fits; looked up once as long as
    the folder stays as it is.
    """
    try:
        return _holds(folder, pattern, folder.stat().st_mtime_ns)
    except OSError:
        return False


@lru_cache(maxsize=256)
def _holds(folder: Path, pattern: str, _: int) -> bool:
    with os.scandir(folder) as found:
        return any(fnmatchcase(entry.name, pattern) for entry in found)
