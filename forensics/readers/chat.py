"""Chat conversations as JSON lines, in the shapes that tools write most; asked
last, since many formats hold messages.

A row is a run: a bare list of messages, or an object with the messages under
one of `MESSAGES`, in it or in its `request` or `body`, with what was answered
(`choices`, `response`, `completion`), and with what is known about the run
under the names that follow. A file that is one list of messages is one run. A
question and the text that was answered (`EXCHANGES`), as studies of single
answers publish them, are a run of two messages. What a row does not name stays
unknown: the task is then the hash of the prompt, the outcome `None`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forensics.readers.content import Unreadable, UnreadableContent, bare_name
from forensics.readers.json_rows import (
    Row,
    first_value,
    read_json_lines,
    read_rows,
    trajectories_from,
)
from forensics.readers.log_reader import Reader
from forensics.readers.messages import is_conversation, is_message, steps_of
from forensics.readers.values import integer, number, score_of
from forensics.records import Step, Trajectory, content_hash
from forensics.records.trajectory import Ending

MESSAGES = (
    "messages",
    "conversation",
    "conversations",
    "trajectory",
    "traj",
    "history",
    "input",
    "prompt",
)
ANSWERS = ("response", "responses", "completion", "completions", "output", "response_text")
EXCHANGES = (("question", "response"), ("prompt", "response"), ("cue_text", "response_text"))
HOLDERS = ("request", "body")
TASK = (
    "task_id",
    "instance_id",
    "problem_id",
    "question_id",
    "prompt_id",
    "sample_id",
    "task",
    "custom_id",
)
NAME = ("trajectory_id", "run_id", "uuid", "id", "custom_id")
POLICY = ("model", "policy", "model_name", "model_id", "_model")
ENVIRONMENT = ("environment", "env", "benchmark", "dataset", "task_set", "data_source", "_dataset")
OUTCOME = ("outcome", "score", "reward", "success", "resolved", "correct", "passed", "is_correct")
SAMPLE = ("sample", "trial", "attempt", "rollout", "sample_index", "epoch")
STATUS = ("exit_status", "finish_reason", "stop_reason", "end_reason", "status", "end")
CUT_OFF = (
    "length",
    "max_tokens",
    "max_steps",
    "max_turns",
    "limit",
    "truncated",
    "timeout",
    "max_iterations",
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    first = first_value(head)
    if isinstance(first, list) and not is_conversation(first) and first:
        first = first[0]
    if not isinstance(first, Mapping):
        return is_conversation(first)
    return is_message(first) or _messages(first) is not None


def read(path: Path) -> Iterator[Trajectory | Unreadable]:
    """Every conversation of the file."""
    stem = bare_name(path).split(".")[0]
    return trajectories_from(path, _rows(path), lambda row: _run(row, stem))


reader = Reader(
    name="chat",
    version="1 (OpenAI chat and responses, Anthropic, from/value pairs, single answers)",
    rank=-10,  # others know more about their own messages
    recognises=recognises,
    reads=read,
)


def _rows(path: Path) -> Iterator[Row | Unreadable]:
    """The rows of the file; a file that is one conversation is one row."""
    rows = read_rows(path)
    first = next(rows, None)
    if first is None:
        return
    if isinstance(first, Unreadable) or not (
        is_message(first.value) and _messages(first.value) is None
    ):
        yield first
        yield from rows
        return
    lines = list(read_json_lines(path)) if first.where.startswith("element") else []
    if lines and all(isinstance(line, Row) and isinstance(line.value, list) for line in lines):
        yield from lines  # lists, a line each, the first of them longer than a head
        return
    found, problems = [first.value], []
    for row in rows:
        found.append(row.value) if isinstance(row, Row) else problems.append(row)
    yield Row(where="the list", value=found)
    yield from problems


def _messages(row: Mapping[str, Any]) -> list[Any] | None:
    """The messages of a row, `None` where it has none."""
    for holder in (row, *(row[key] for key in HOLDERS if isinstance(row.get(key), Mapping))):
        for key in MESSAGES:
            if is_conversation(holder.get(key)):
                return list(holder[key])
        if holder is not row and isinstance(holder.get("body"), Mapping):
            return _messages(holder["body"])
    for asked, answered in EXCHANGES:
        texts = row.get(asked), row.get(answered)
        if all(isinstance(text, str) and text for text in texts):
            return [{"role": "user", "content": texts[0]}]
    return None


def _answers(row: Any) -> list[Any]:
    """What was answered, behind the messages: of an object with choices, a
    message, a list of them, or a text.
    """
    if isinstance(row, str):
        return [{"role": "assistant", "content": row}]
    if is_conversation(row):
        return list(row)
    if not isinstance(row, Mapping):
        return []
    if is_message(row):
        return [row]
    choices = row.get("choices")
    if isinstance(choices, Sequence) and choices and isinstance(choices[0], Mapping):
        return _answers(choices[0].get("message", choices[0].get("text")))
    return next((found for key in ("body", *ANSWERS) if (found := _answers(row.get(key)))), [])


def _run(row: Row, stem: str) -> Trajectory:
    run: Mapping[str, Any] = {"messages": row.value} if isinstance(row.value, list) else row.value
    messages = _messages(run)
    if messages is None:
        raise UnreadableContent("the row has no messages")
    steps = steps_of(
        [*messages, *_answers({key: run[key] for key in ("choices", *ANSWERS) if key in run})]
    )
    known = _known(run)
    task = str(_first(known, TASK) or _prompt_hash(steps))
    rewards = known.get("rewards")
    outcome = next((known[key] for key in OUTCOME if number(known.get(key)) is not None), None)
    named = (
        rewards
        if isinstance(rewards, Mapping)
        else {key: known[key] for key in OUTCOME if key in known}
    )
    end, reason = _ending(known, run)
    return Trajectory(
        id=str(_first(known, NAME) or content_hash([stem, row.value])),
        task=task,
        policy=str(_first(known, POLICY) or stem),
        environment=str(_first(known, ENVIRONMENT) or "chat"),
        seed=integer(known.get("seed")) or 0,
        sample=max(integer(_first(known, SAMPLE)) or 0, 0),
        steps=steps,
        rewards={str(name): number(value) for name, value in named.items()},
        outcome=score_of(outcome),
        end=end,
        end_reason=reason,
    )


def _known(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says about its run: its own entries before those of
    `metadata`, `info`, the request and the answer.
    """
    response = run.get("response")
    held = [response if isinstance(response, Mapping) else {}, run.get("request"), run.get("body")]
    found: dict[str, Any] = {}
    for part in (*held, run.get("info"), run.get("metadata"), run):
        found |= (
            {key: value for key, value in part.items() if value is not None}
            if isinstance(part, Mapping)
            else {}
        )
    return found


def _first(known: Mapping[str, Any], keys: Sequence[str]) -> str | int | None:
    return next((known[key] for key in keys if isinstance(known.get(key), str | int)), None)


def _prompt_hash(steps: Sequence[Step]) -> str:
    """A name for a task that has none: what stands before the first answer."""
    first = next((at for at, step in enumerate(steps) if step.role == "assistant"), len(steps))
    return content_hash([[step.role, step.text] for step in steps[:first]])


def _ending(known: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[Ending, str | None]:
    if error := known.get("error"):
        return "errored", str(error)[:500]
    choices = run.get("choices") or (known.get("choices"))
    first = (
        choices[0]
        if isinstance(choices, list) and choices and isinstance(choices[0], Mapping)
        else {}
    )
    reason = _first({**known, **first}, STATUS)
    told = None if reason is None else str(reason)
    if known.get("truncated") is True or (told or "").lower() in CUT_OFF:
        return "truncated", told
    return (
        ("errored", told)
        if (told or "").lower() in ("error", "errored", "failed")
        else ("terminated", told)
    )
