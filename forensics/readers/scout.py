"""Inspect Scout's transcript databases: Parquet files with a row for each
transcript.

Format: inspect_scout 0.6.2, `_transcript/database/schema.py`. Only
`transcript_id` is always there; `messages` and `score` are JSON texts. Files
below `_index/` list what others hold and are read with them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forensics.readers.content import Unreadable, UnreadableContent
from forensics.readers.json_rows import Row, columns_of, parse, read_parquet, trajectories_from
from forensics.readers.log_reader import Reader
from forensics.readers.messages import steps_of
from forensics.readers.values import integer, named, score_of
from forensics.records import Trajectory, content_hash
from forensics.records.trajectory import Ending

COLUMNS = (
    "transcript_id",
    "task_set",
    "task_id",
    "task_repeat",
    "model",
    "model_options",
    "score",
    "success",
    "error",
    "limit",
    "messages",
)
INDEX = "_index"


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    return {"transcript_id", "messages"} <= set(columns_of(path, head))


def accompanies(path: Path) -> bool:
    """Whether a file is read with a log of this format."""
    return path.parent.name == INDEX and path.suffix in (".parquet", ".idx")


def read(path: Path) -> Iterator[Trajectory | Unreadable]:
    """Every transcript of the file."""
    return trajectories_from(path, read_parquet(path, COLUMNS), _run)


reader = Reader(
    name="inspect-scout",
    version="1 (inspect_scout 0.6)",
    recognises=recognises,
    accompanies=accompanies,
    reads=read,
)


def _run(row: Row) -> Trajectory:
    run: Mapping[str, Any] = row.value
    if run["messages"] is None:
        raise UnreadableContent("the transcript was stored without its messages")
    steps = steps_of(parse(run["messages"]))
    name = str(run["transcript_id"])
    score = _json(run.get("score"))
    found = score_of(score)
    success = run.get("success")
    end, reason = _ending(run)
    return Trajectory(
        id=name,
        task=str(run.get("task_id") or _prompt_hash(steps)),
        policy=str(run.get("model") or "unknown"),
        environment=str(run.get("task_set") or "unknown"),
        seed=_seed(run),
        steps=steps,
        sample=max((integer(run.get("task_repeat")) or 1) - 1, 0),
        rewards={} if score is None else dict(named("score", score)),
        outcome=found if found is not None or success is None else float(success),
        end=end,
        end_reason=reason,
    )


def _prompt_hash(steps: Any) -> str:
    """A name for the task of a run that has none: its prompt, whoever answers it."""
    prompt = []
    for step in steps:
        if step.role == "assistant":
            break
        prompt.append([step.role, step.text])
    return content_hash(prompt)


def _ending(run: Mapping[str, Any]) -> tuple[Ending, str | None]:
    if run.get("error"):
        return "errored", str(run["error"])[:500]
    return ("truncated", f"{run['limit']} limit") if run.get("limit") else ("terminated", None)


def _seed(run: Mapping[str, Any]) -> int:
    options = _json(run.get("model_options"))
    return integer(options.get("seed")) or 0 if isinstance(options, Mapping) else 0


def _json(text: Any) -> Any:
    """A column that may hold JSON, or a plain text."""
    try:
        return parse(text) if isinstance(text, str) else text
    except UnreadableContent:
        return text
