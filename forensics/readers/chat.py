"""Chat conversations as JSON lines, in the shapes that tools write most; asked
last, since many formats hold messages.

A row is a run: a bare list of messages, or an object with the messages under
one of `MESSAGES`, in it or in its `request` or `body`, with what was answered
(`choices`, `response`, `completion`), and with what is known about the run
under the names that follow. A file that is one list of messages is one run. A
question and the text that was answered (`QUESTIONS`, `TEXT_ANSWERS`), as studies of
single answers publish them, are a run of two messages, be the answer empty; where it is
null and the row is scored or ended, a run that gave none. What a row does not name
stays unknown: the task is then the hash of the prompt, the outcome `None`; the run is
called by its place, where it is one row of several. A message of a role that nobody knows
stays as `[not understood: ...]`, so that its run counts as one that was not looked at; marks
(`_checkpoint`) are left out. A prompt with no answer, no score
and no word on how it ended is a task and no run; a file that holds nothing else is told
once, as a data set of tasks.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forensics.actions.unread import NOT_UNDERSTOOD
from forensics.actions.untrusted import first_of
from forensics.phrases import printable
from forensics.readers.content import JsonObject, Unreadable, UnreadableContent, bare_name
from forensics.readers.json_rows import (
    PARQUET,
    Row,
    Rows,
    Runs,
    first_value,
    parse_or,
    read_json_lines,
    read_parquet,
    read_rows,
    trajectories_from,
)
from forensics.readers.log_reader import Reader
from forensics.readers.messages import is_conversation, is_message, steps_of, without_empty
from forensics.readers.submission import is_patch, submission_of
from forensics.readers.values import (
    NO_WORK,
    End,
    Work,
    as_mapping,
    ending,
    field_names,
    number,
    prompt_of,
    run_of,
)
from forensics.records import Step, Trajectory, content_hash

_NAMES = field_names("chat")
_TALK = re.compile(r"\s*\[\s*\{\s*\"(?:role|from)\"")
ENTRIES = ("choices", "body", *_NAMES.answers)  # where an answer stands, be it empty
TOLD = frozenset([*_NAMES.outcome, *_NAMES.status, "error", "rewards"])
NO_ANSWER = "the row holds a prompt without an answer: a task, no run"
TASKS = "holds prompts without answers: a data set of tasks, no runs"


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    table = head.startswith(PARQUET)
    first = getattr(next(read_parquet(path), None), "value", None) if table else first_value(head)
    if isinstance(first, list) and not is_conversation(first) and first:
        first = first[0]
    if not isinstance(first, Mapping):
        return is_conversation(first)
    whole = (
        any(key in first for key in _NAMES.says) and "messageID" not in first
    )  # else a part of one
    return (is_message(first) and whole) or _messages(first) is not None


def _talk(value: Any) -> list[Any] | None:
    """A conversation, be it a text of JSON (maybe cut off by a head), `None` for another value."""
    if isinstance(value, str) and _TALK.match(value):
        value = parse_or(value)
        if value is None:
            return [{"role": "user", "content": ""}]
    return list(value) if is_conversation(value) else None


def conversations(path: Path) -> Rows:
    """The rows of the file; a file that is one conversation is one row."""
    rows = read_rows(path)
    first = next(rows, None)
    if not isinstance(first, Row) or not is_message(first.value) or _messages(first.value):
        yield from (first,) if first else ()
        yield from rows
        return
    lines = list(read_json_lines(path)) if first.where.startswith("element") else []
    if lines and all(isinstance(line, Row) and isinstance(line.value, list) for line in lines):
        yield from lines  # lists, a line each, the first of them longer than a head
        return
    rest = list(rows)
    found = [first.value, *(row.value for row in rest if isinstance(row, Row))]
    yield Row("the list", found)
    yield from (row for row in rest if isinstance(row, Unreadable))


def _messages(row: JsonObject) -> list[Any] | None:
    """The messages of a row, `None` where it has none."""
    for holder in (row, *(row[key] for key in _NAMES.holders if isinstance(row.get(key), Mapping))):
        for key in _NAMES.messages:
            if (talk := _talk(holder.get(key))) is not None:
                return talk
        if holder is not row and isinstance(holder.get("body"), Mapping):
            return _messages(holder["body"])
    asked = first_of(row, _NAMES.questions, str)
    answered = any(isinstance(row.get(key, 0), str | None) for key in _NAMES.text_answers)
    only_asks = not any(key in row for key in ENTRIES) and not row.keys() & TOLD
    return [{"role": "user", "content": asked}] if asked and (answered or only_asks) else None


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
    return next(filter(None, map(_answers, map(row.get, ("body", *_NAMES.answers)))), [])


def run(row: Row) -> Trajectory:
    """The run of a row."""
    value: JsonObject = {"messages": row.value} if isinstance(row.value, list) else row.value
    stem = bare_name(row.path).split(".")[0]
    messages = _messages(value)
    if messages is None:
        raise UnreadableContent("the row has no messages")
    if row.where.startswith("row "):  # a table gives every message the fields of all
        messages = [without_empty(message) for message in messages]
    answers = _answers({key: value[key] for key in ("choices", *_NAMES.answers) if key in value})
    steps = steps_of(_understood([*messages, *answers]))
    known = _known(value)
    if not answers and _is_task(value, known, steps):
        raise UnreadableContent(NO_ANSWER)
    rewards = known.get("rewards")
    return run_of(
        steps,
        _ending(known),
        id=first_of(known, _NAMES.name, str | int) or row.place or content_hash([stem, row.value]),
        task=first_of(known, _NAMES.task, str | int) or content_hash(prompt_of(steps)),
        policy=first_of(known, _NAMES.policy, str | int) or stem,
        environment=first_of(known, _NAMES.environment, str | int) or "chat",
        seed=known.get("seed"),
        sample=first_of(known, _NAMES.sample, str | int),
        rewards=rewards
        if isinstance(rewards, Mapping)
        else {key: known[key] for key in _NAMES.outcome if key in known},
        outcome=next(
            (known[key] for key in _NAMES.outcome if number(known.get(key)) is not None), None
        ),
        work=_work(known),
    )


def _understood(messages: Sequence[Any]) -> Iterator[Any]:
    """The messages, those of unknown roles named."""
    for message in messages:
        role = message.get("role") if isinstance(message, Mapping) else None
        if not isinstance(role, str) or is_message(message):
            yield message
        elif not role.startswith("_"):
            text = f"{NOT_UNDERSTOOD}the role {printable(role, 40)}]"
            yield {"role": "assistant", "content": text}


def _work(known: JsonObject) -> Work:
    """The patch that a row says its run left. In a row with the fields of a task `patch` is the
    answer of the task.
    """
    named = [key for key in _NAMES.patch if isinstance(known.get(key), str)]
    if any(key in known for key in _NAMES.of_tasks):
        named = [key for key in named if key not in ("patch", "diff")]
    text = known[named[0]] if named else ""
    blank = bool(named) and not text.strip()
    return submission_of(text, finished=True) if blank or is_patch(text) else NO_WORK


def _is_task(value: JsonObject, known: JsonObject, steps: Sequence[Step]) -> bool:
    """Whether a row only asks: nothing answers, scores or ends it. Beside a question in words an
    answer of null is none.
    """
    asks = all(step.role in ("system", "user") for step in steps)
    in_words = any(isinstance(value.get(key), str) for key in _NAMES.questions)
    answered = any(key in value and not (in_words and value[key] is None) for key in ENTRIES)
    return asks and not answered and not known.keys() & TOLD


def runs(path: Path) -> Runs:
    """Every run of the file. Tasks are told one by one where there are runs beside
    them, else once.
    """
    tasks: list[Unreadable] = []
    alone = True
    for found in trajectories_from(path, conversations(path), run):
        task = isinstance(found, Unreadable) and found.reason == NO_ANSWER
        if isinstance(found, Unreadable) and task and alone:
            tasks.append(found)
            continue
        if alone and isinstance(found, Trajectory):
            alone = False
            yield from tasks
        yield found
    if alone and tasks:
        yield Unreadable(path, TASKS)


def _known(run: JsonObject) -> dict[str, Any]:
    """What a row says about its run: its own entries before those of
    `metadata`, `info`, the request and the answer.
    """
    parts = [run.get(key) for key in ("response", "request", "body", "info", "metadata")]
    return {
        key: value
        for part in (*parts, run)
        for key, value in as_mapping(part).items()
        if value is not None
    }


def _ending(known: JsonObject) -> End:
    choices = known.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    end = ending(
        first_of({**known, **as_mapping(first)}, _NAMES.status, str | int), error=known.get("error")
    )
    word = (end[1] or "").lower()
    if end[0] == "terminated" and (known.get("truncated") is True or word in _NAMES.cut_off):
        return "truncated", end[1]
    failed = word in ("error", "errored", "failed")
    return ("errored", end[1]) if failed else end


reader = Reader(
    name="chat",
    version="1 (OpenAI chat and responses, Anthropic, from/value pairs, single answers)",
    rank=-10,  # others know more about their own messages
    recognises=recognises,
    reads=runs,
)
