"""OpenHands runs: lists of events, and the `output.jsonl` of its benchmarks.

Format: OpenHands 0.x `evaluation/utils/shared.py` (`EvalOutput`), OpenHands/benchmarks `utils/models.py`, and the
events of both generations (`openhands_events`).

1. A list of events, or a file with an event a line, is one run; a broken line is told and the run goes on without it.
2. A row of `output.jsonl` is one run: `instance_id`, `history` (events, or pairs of them), `test_result` with the
   `git_patch` that was taken and, once evaluated, a `report`. The patch is taken however the run ended.
3. A folder of event files, one event each, is one run that is read with its first file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forensics.readers.documents import entries, listed, prompt_hash, read_document, stem_of, within
from forensics.readers.openhands_events import Run, ending_of, events_in, is_event
from forensics.readers.opening import Refused, read_head
from forensics.readers.parsing import CUT, Row, each_run, first_row, glimpse, in_words, read_rows
from forensics.readers.reading import Unreadable
from forensics.readers.scores import share, whole
from forensics.readers.submitting import Work, handed_in, verdict_beside
from forensics.records import Trajectory

NAME = "openhands"
OUTCOMES = ("resolved", "success", "score", "reward", "correct")
ONE_EVENT = re.compile(r"^(?:event-)?(\d+)(?:-[0-9a-f-]+)?\.json$")
INSTANCE = re.compile(r"^[\w.-]+__[\w.-]+-\d+$")
CACHE = "event_cache"  # beside a folder of events: the same ones again
PLAIN = ("trajectory", "openhands.trajectory", "events", "output", "history")


@dataclass(frozen=True, kw_only=True)
class OpenHands:
    """Reads events and benchmark outputs."""

    name: str = NAME
    version: str = "1 (OpenHands 0.9 to 0.62, agent SDK 1.x)"

    def recognises(self, path: Path, head: bytes) -> bool:
        value = glimpse(head)
        first = first_row(head)
        if isinstance(value, dict) and is_event(first) and ONE_EVENT.match(path.name):
            return True
        held = next((first[key] for key in ("history", "trajectory") if key in first), None)
        output = {"instance_id", "test_result"} <= first.keys()
        return is_event(first) or output or (bool(held) and is_event(next(events_in(listed(held)), None)))

    def read(self, path: Path) -> Iterator[Trajectory | Unreadable]:
        """The runs of the file."""
        if path.parent.name == CACHE and (path.parent.parent / "events").is_dir():
            return iter(())
        if ONE_EVENT.match(path.name):
            return _of_folder(path)
        rows = read_rows(path)
        first = next(rows, None)
        if isinstance(first, Row) and not is_event(first.value):
            return each_run(path, _again(first, rows), lambda row: _output(row, path))
        return _of_events(path, _again(first, rows) if first is not None else rows, _name(path))


reader = OpenHands()


def _again(first: Row | Unreadable, rest: Iterator[Row | Unreadable]) -> Iterator[Row | Unreadable]:
    yield first
    yield from rest


def _name(path: Path) -> str:
    stem = stem_of(path)
    return path.parent.name or stem if stem in PLAIN else stem


def _of_folder(path: Path) -> Iterator[Trajectory | Unreadable]:
    """The run whose events lie in a folder; only its first file is the run, the others are read with it."""
    matches = (ONE_EVENT.match(file.name) for file in path.parent.iterdir())
    names = sorted((int(match[1]), match.string) for match in matches if match)
    if next(name for _, name in names if name == path.name or _holds_event(path.parent / name)) == path.name:
        rows = (row for _, name in names for row in _named(path.parent / name))
        folder = path.parent.parent if path.parent.name == "events" else path.parent
        yield from _of_events(path, rows, folder.name)


def _holds_event(path: Path) -> bool:
    try:
        return is_event(first_row(read_head(path)))
    except Refused:
        return False


def _named(path: Path) -> Iterator[Row | Unreadable]:
    for row in read_document(path):
        if isinstance(row, Row):
            yield Row(where=path.name, value=row.value)
        elif _holds_event(path):  # else it is told as a file that nobody reads
            yield row


def _of_events(path: Path, rows: Iterable[Row | Unreadable], name: str) -> Iterator[Trajectory | Unreadable]:
    run = Run()
    for row in rows:
        if isinstance(row, Unreadable):
            yield row
            continue
        try:
            run.add(row.value)
        except CUT as error:
            yield Unreadable(path=path, where=row.where, reason=in_words(error))
    if run.steps:
        end, reason = run.ending()
        outcome = verdict_beside(path, name)
        yield Trajectory(
            id=name, task=name if INSTANCE.match(name) else prompt_hash(run.steps), policy="unknown", environment=NAME,
            seed=0, steps=tuple(run.steps), rewards={} if outcome is None else {"resolved": outcome}, outcome=outcome,
            end=end, end_reason=reason,
        )


def _output(row: Row, path: Path) -> Trajectory:
    output = row.value
    run = Run()
    history: Any = next((output[key] for key in ("history", "trajectory") if output.get(key) is not None), [])
    for event in events_in(history):
        run.add(event)
    task = str(output["instance_id"])
    error = output.get("error")
    end, reason = ending_of(str(error)) if error else run.ending()
    outcome = _outcome(output, path, task)
    work = _work(output)
    attempt = whole(output.get("attempt")) or 1
    return Trajectory(
        id=task if attempt < 2 else f"{task}#{attempt}", task=task, policy=_policy(output.get("metadata")),
        environment=str(within(output, "metadata", "dataset") or NAME), seed=0, sample=max(attempt - 1, 0),
        steps=tuple(run.steps), rewards={} if outcome is None else {"outcome": outcome}, outcome=outcome, end=end,
        end_reason=reason, submission=work.submission, patch=work.patch,
    )


def _outcome(output: Mapping[str, Any], path: Path, task: str) -> float | None:
    """What the evaluation wrote into the row, else beside the file. A report on an error is no verdict."""
    result = entries(output.get("test_result"))
    for told in (entries(result.get("report")), entries(output.get("report")), result, output):
        if told.get("error_eval"):
            return None
        found = next((value for key in OUTCOMES if (value := share(told.get(key))) is not None), None)
        if found is not None:
            return found
    return verdict_beside(path, task)


def _work(output: Mapping[str, Any]) -> Work:
    patch = within(output, "test_result", "git_patch")
    return handed_in(patch if patch is not None else output.get("git_patch"), finished=not output.get("error"))


def _policy(metadata: Any) -> str:
    told = within(metadata, "llm_config", "model") or within(metadata, "llm", "model")
    return str(told or "unknown")
