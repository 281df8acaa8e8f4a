"""Inspect Scout's transcript databases: Parquet files with a row for each
transcript.

Format: inspect_scout 0.6.2, `_transcript/database/schema.py`. Only
`transcript_id` is always there; `messages` and `score` are JSON texts. Files
below `_index/` list what others hold and are read with them.
"""

from forensics.readers.content import JsonObject, UnreadableContent
from forensics.readers.json_rows import Row, parquet_schema, parse, parse_or, read_parquet
from forensics.readers.log_reader import Reader
from forensics.readers.messages import steps_of
from forensics.readers.values import (
    as_mapping,
    ending,
    field_names,
    integer,
    named,
    prompt_of,
    run_of,
    score_of,
)
from forensics.records import Trajectory, content_hash


def run(row: Row) -> Trajectory:
    """The run of a transcript."""
    value: JsonObject = row.value
    if value["messages"] is None:
        raise UnreadableContent("the transcript was stored without its messages")
    steps = steps_of(parse(value["messages"]))
    score, limit = parse_or(value.get("score"), value.get("score")), value.get("limit")
    found = score_of(score)
    return run_of(
        steps,
        ending(f"{limit} limit" if limit else None, ("limit",), error=value.get("error")),
        id=value["transcript_id"],
        task=value.get("task_id") or content_hash(prompt_of(steps)),
        policy=value.get("model"),
        environment=value.get("task_set") or "unknown",
        seed=as_mapping(parse_or(value.get("model_options"))).get("seed"),
        sample=(integer(value.get("task_repeat")) or 1) - 1,
        rewards={} if score is None else dict(named("score", score)),
        outcome=value.get("success") if found is None else found,
    )


reader = Reader(
    name="inspect-scout",
    version="1 (inspect_scout 0.6)",
    recognises=lambda path, head: (
        {"transcript_id", "messages"} <= set(parquet_schema(path, head).names)
    ),
    accompanies=lambda path: path.parent.name == "_index" and path.suffix in (".parquet", ".idx"),
    rows=lambda path: read_parquet(path, field_names("scout").columns),
    run=run,
)
