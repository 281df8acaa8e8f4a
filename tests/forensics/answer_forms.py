"""The same single answers in the forms that tools write: each function takes rows
(`id`, `task`, `prompt`, `response`, `outcome`, which may be `None`), writes a file in
the folder and gives its path.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = Iterable[Mapping[str, Any]]


def chat_jsonl(rows: Rows, folder: Path) -> Path:
    """A question and what was answered, a line each."""
    return _lines(folder / "chat.jsonl", rows)


def trl_parquet(rows: Rows, folder: Path) -> Path:
    """What TRL's GRPO trainer logs of a step."""
    path = folder / "completions_00010.parquet"
    pq.write_table(pa.Table.from_pylist([_completion(row) for row in rows]), path)
    return path


def trl_jsonl(rows: Rows, folder: Path) -> Path:
    """The same as JSON lines, the rewards as entries of their own."""
    return _lines(folder / "completions.jsonl", map(_completion, rows))


def verl_jsonl(rows: Rows, folder: Path) -> Path:
    """A dump of verl's generations."""
    dumped = (
        {
            "input": row["prompt"],
            "output": row["response"],
            "gts": "",
            "score": row["outcome"],
            "step": 10,
        }
        for row in rows
    )
    return _lines(folder / "10.jsonl", dumped)


def inspect_json(rows: Rows, folder: Path) -> Path:
    """A JSON log of Inspect."""
    header = {"run_id": "r", "task": "answers", "model": "lab/model"}
    log = {"version": 2, "status": "success", "eval": header, "samples": [*map(_sample, rows)]}
    path = folder / "log.json"
    path.write_text(json.dumps(log))
    return path


FORMS: dict[str, Callable[[Rows, Path], Path]] = {
    made.__name__: made for made in (chat_jsonl, trl_parquet, trl_jsonl, verl_jsonl, inspect_json)
}


def _completion(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "step": 10,
        "prompt": row["prompt"],
        "completion": row["response"],
        "accuracy_reward": None if row["outcome"] is None else float(row["outcome"]),
        "advantage": 0.0,
    }


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    said = {"role": "assistant", "content": row["response"]}
    return {
        "id": row["id"],
        "epoch": 1,
        "input": row["prompt"],
        "target": "",
        "messages": [{"role": "user", "content": row["prompt"]}, said],
        "output": {
            "model": "lab/model",
            "choices": [{"message": said, "stop_reason": "stop"}],
            "completion": row["response"],
        },
        "scores": {} if row["outcome"] is None else {"accuracy": {"value": row["outcome"]}},
    }


def _lines(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(dict(row)) + "\n" for row in rows))
    return path
