"""Logs of Inspect (inspect_ai 0.3.285): a sample as a run, and the samples of JSON logs (those of
`.eval` archives: `inspect_archive`).

Format: `log/_log.py`, `log/_condense.py`, `log/_recorders/json.py`.

1. A JSON log is one document with the header and all samples, which are
   streamed, so a log of any length can be read.
2. The conversation is `messages`. Where model calls generated messages that are
   not there (a history that was compacted, an agent with a conversation of its
   own), the calls up to the first scorer are merged in, in their order.
3. `attachment://` stands for a longer text: resolved, within a budget, since a
   short text may name a long one often.
4. The score that counts is the first scorer's, in [0, 1] as Inspect's own
   `value_to_float` has it; all scores are rewards under their scorer's name. A
   score that is no number is `None` (Inspect turns it to 0).
5. An error ends a run as errored, a limit as truncated, and so does a last
   answer that the token budget cut off.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from forensics.actions.unified_diff import added_lines
from forensics.readers.content import LIMITS, JsonObject, Unreadable, UnreadableContent
from forensics.readers.json_rows import (
    Row,
    Rows,
    first_value,
    read_entries,
)
from forensics.readers.log_reader import Reader
from forensics.readers.messages import steps_of
from forensics.readers.values import End, Work, ending, integer, named, run_of
from forensics.records import Trajectory, content_hash

ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32}|\d+)")
SCORERS = ("scorers", "scorer")
CUT_OFF = ("max_tokens", "model_length")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sample: `shell` has its plain fields; `events` are read only where
    `messages` lack a generation.
    """

    shell: JsonObject
    messages: Sequence[Any]
    pool: Sequence[Any]
    events: Callable[[], Iterable[Any]]
    attachment: Callable[[str], str | None]


def from_monolith(content: JsonObject) -> Sample:
    """A sample that is one JSON object."""
    older = content.get("transcript") or {}
    texts = content.get("attachments") or older.get("content") or {}
    data = content.get("events_data") or {}
    return Sample(
        shell=content,
        messages=content.get("messages") or [],
        pool=data.get("messages") or content.get("message_pool") or [],
        events=lambda: content.get("events") or older.get("events") or [],
        attachment=texts.get,
    )


def to_trajectory(sample: Sample, evaluation: JsonObject) -> Trajectory:
    """A sample of the log whose `eval` entry is given. Raises `ValueError` or
    `KeyError` where it is no sample.
    """
    shell, resolve = sample.shell, _Resolver(sample.attachment)
    task, epoch = str(shell["id"]), integer(shell.get("epoch")) or 1
    scores = _scores(shell)
    task_run = [evaluation.get(key) for key in ("run_id", "task_id", "task", "model")]
    configs = [evaluation.get(key) or {} for key in ("model_generate_config", "config")]
    seeds = (integer(config.get("seed")) for config in configs)
    return run_of(
        steps_of(conversation(sample), resolve),
        _ending(shell),
        id=shell.get("uuid") or content_hash([*task_run, task, epoch]),
        task=task,
        policy=evaluation.get("model"),
        environment=evaluation.get("task") or "unknown",
        seed=next((seed for seed in seeds if seed is not None), 0),
        sample=epoch - 1,
        rewards=dict(pair for name, score in scores.items() for pair in named(name, score)),
        outcome=next(iter(scores.values()), None),
        work=_work(shell, resolve),
    )


def run(row: Row) -> Trajectory:
    """The run of a row of either kind of log."""
    sample, evaluation = row.value
    return to_trajectory(sample(), evaluation)


def conversation(sample: Sample) -> list[Any]:
    """The messages of the run, those of model calls merged in where `messages`
    lack some that were generated.
    """
    known = {message.get("id") for message in sample.messages}
    calls = list(model_calls(sample.events()))
    names = ((_generated(call) or {}).get("id") for call in calls)
    if all(name is None or name in known for name in names):
        return list(sample.messages)
    merged: dict[str, Any] = {}
    for call in calls:
        pooled = (sample.pool[start:end] for start, end in call.get("input_refs") or ())
        for message in chain(call.get("input") or (), *pooled, [_generated(call)]):
            if message is not None:
                merged.setdefault(message.get("id") or content_hash(message), message)
    for message in sample.messages:
        merged.setdefault(message.get("id") or content_hash(message), message)
    return list(merged.values())


def model_calls(events: Iterable[Any]) -> Iterator[JsonObject]:
    """The policy's calls: before the first scorer, and of no other role than
    the model under test.
    """
    for event in events:
        if event.get("event") in ("span_begin", "step") and event.get("type") in SCORERS:
            return
        if event.get("event") == "model" and not event.get("role") and not event.get("error"):
            yield event


def _generated(call: JsonObject) -> Any:
    return _choice(call).get("message")


def _choice(call: JsonObject) -> JsonObject:
    choices = (call.get("output") or {}).get("choices") or [{}]
    first: JsonObject = choices[0]
    return first


def _scores(shell: JsonObject) -> dict[str, Any]:
    """The value of each scorer; very old logs have one score without a name."""
    scores = shell.get("scores") or ({"score": shell["score"]} if shell.get("score") else {})
    return {
        str(name): score.get("value")
        for name, score in scores.items()
        if isinstance(score, Mapping)
    }


def _ending(shell: JsonObject) -> End:
    error, limit = shell.get("error"), shell.get("limit")
    if limit and not error:
        return "truncated", f"{limit.get('type') if isinstance(limit, Mapping) else limit} limit"
    told = error.get("message") if isinstance(error, Mapping) else error
    stop = _choice(shell).get("stop_reason")
    return ("errored", str(told)) if error else ending(stop, CUT_OFF)


def _work(shell: JsonObject, resolve: Callable[[Any], Any]) -> Work:
    """The patch that a scorer kept and its added lines, else the last answer."""
    for score in (shell.get("scores") or {}).values():
        kept = (score.get("metadata") if isinstance(score, Mapping) else None) or {}
        if isinstance(kept.get("model_patch"), str):
            patch = str(resolve(kept["model_patch"]))
            return Work(added_lines(patch), patch)
    message = _generated(shell)
    answer = (shell.get("output") or {}).get("completion") or (
        "\n".join(step.text for step in steps_of([message])) if message else ""
    )
    return Work(str(resolve(answer)) or None)


class _Resolver:
    """Replaces what `attachment://` stands for in any value, as long as the
    budget of a sample lasts.
    """

    def __init__(self, attachment: Callable[[str], str | None]) -> None:
        self._attachment, self._left = attachment, LIMITS.line

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            return ATTACHMENT.sub(self._text, value) if "attachment://" in value else value
        if isinstance(value, list):
            return [self(item) for item in value]
        return (
            {key: self(item) for key, item in value.items()} if isinstance(value, dict) else value
        )

    def _text(self, found: re.Match[str]) -> str:
        text = self._attachment(found[1])
        if not isinstance(text, str):
            return found[0]  # not in the log: left as it stands, as Inspect does
        self._left -= len(text)
        if self._left < 0:
            raise UnreadableContent("its attachments are larger than one sample may be")
        return text


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    found = first_value(head)
    return isinstance(found, dict) and {"version", "status", "eval"} <= found.keys()


def samples(path: Path) -> Rows:
    """A row for each sample: what opens it, and what was run. The log is streamed twice,
    since it may say what was run behind its samples.
    """
    entries = (each for each in read_entries(path, "samples") if not isinstance(each, Unreadable))
    evaluation = next((row.value for key, row in entries if key == "eval"), None)
    if not isinstance(evaluation, Mapping):
        reason = "it lacks the entry `eval`, so it is no Inspect log"
        yield Unreadable(path, reason, "the document")
        return
    found = False
    for entry in read_entries(path, "samples"):
        if isinstance(entry, Unreadable):
            yield entry
        elif entry[0] != "samples" or entry[1].value is None:
            continue
        else:
            sample = partial(from_monolith, entry[1].value)
            yield Row(entry[1].where, (sample, evaluation))
        found = True
    if not found:
        yield Unreadable(path, "the log holds no samples", "samples")


reader = Reader(
    name="inspect-json",
    version="1 (Inspect log versions 1 to 3)",
    recognises=recognises,
    rows=samples,
    run=run,
)
