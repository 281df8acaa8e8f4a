"""The samples of an Inspect log as trajectories, whichever shape they were stored in.

Format: inspect_ai 0.3.285, `log/_log.py`, `log/_condense.py`, `log/_recorders/chunked/format.py`.

1. The conversation is `messages`. Where model calls generated messages that are not there (a history that was
   compacted, an agent with a conversation of its own), the calls up to the first scorer are merged in, in their order.
2. `attachment://` stands for a longer text: resolved, within a budget, since a short text may name a long one often.
3. The score that counts is the first scorer's, in [0, 1] as Inspect's own `value_to_float` has it; all scores are
   rewards under their scorer's name. A score that is no number is `None` (Inspect turns it to 0).
4. An error ends a run as errored, a limit as truncated, and so does a last answer that the token budget cut off.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forensics.readers.messages import steps_of
from forensics.readers.opening import LIMITS, Refused
from forensics.readers.patches import added_lines
from forensics.readers.scores import named, share, whole
from forensics.records import Trajectory, content_hash
from forensics.records.trajectory import Ending

ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32}|\d+)")
SCORERS = ("scorers", "scorer")
CUT = ("max_tokens", "model_length")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sample: `shell` has its plain fields; `events` are read only where `messages` lack a generation."""

    shell: Mapping[str, Any]
    messages: Sequence[Any]
    pool: Sequence[Any]
    events: Callable[[], Iterable[Any]]
    attachment: Callable[[str], str | None]


def from_monolith(content: Mapping[str, Any]) -> Sample:
    """A sample that is one JSON object."""
    older = content.get("transcript") or {}
    texts = content.get("attachments") or older.get("content") or {}
    data = content.get("events_data") or {}
    return Sample(
        shell=content, messages=content.get("messages") or [],
        pool=data.get("messages") or content.get("message_pool") or [],
        events=lambda: content.get("events") or older.get("events") or [], attachment=texts.get,
    )


def to_trajectory(sample: Sample, evaluation: Mapping[str, Any]) -> Trajectory:
    """A sample of the log whose `eval` entry is given. Raises `ValueError` or `KeyError` where it is no sample."""
    shell, resolve = sample.shell, _Resolver(sample.attachment)
    task, epoch = str(shell["id"]), whole(shell.get("epoch")) or 1
    scores = _scores(shell)
    end, reason = _ending(shell)
    patch = _patch(shell, resolve)
    run = [evaluation.get(key) for key in ("run_id", "task_id", "task", "model")]  # newer versions leave these
    return Trajectory(
        id=str(shell.get("uuid") or content_hash([*run, task, epoch])), task=task,
        policy=str(evaluation.get("model") or "unknown"), environment=str(evaluation.get("task") or "unknown"),
        seed=_seed(evaluation), sample=max(epoch - 1, 0), steps=steps_of(conversation(sample), resolve),
        rewards=dict(pair for name, score in scores.items() for pair in named(name, score)),
        outcome=share(next(iter(scores.values()), None)), submission=_submission(shell, resolve, patch), patch=patch,
        end=end, end_reason=reason,
    )


def conversation(sample: Sample) -> list[Any]:
    """The messages of the run, those of model calls merged in where `messages` lack some that were generated."""
    known = {message.get("id") for message in sample.messages}
    calls = list(_model_calls(sample.events()))
    if all(name is None or name in known for name in map(_generated_id, calls)):
        return list(sample.messages)
    merged: dict[str, Any] = {}
    for call in calls:
        for message in [*_input(call, sample.pool), _generated(call)]:
            if message is not None:
                merged.setdefault(message.get("id") or content_hash(message), message)
    for message in sample.messages:
        merged.setdefault(message.get("id") or content_hash(message), message)
    return list(merged.values())


def _model_calls(events: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """The policy's calls: before the first scorer, and of no other role than the model under test."""
    for event in events:
        if event.get("event") in ("span_begin", "step") and event.get("type") in SCORERS:
            return
        if event.get("event") == "model" and not event.get("role") and not event.get("error"):
            yield event


def _generated(call: Mapping[str, Any]) -> Any:
    choices = (call.get("output") or {}).get("choices") or [{}]
    return choices[0].get("message")


def _generated_id(call: Mapping[str, Any]) -> str | None:
    return (_generated(call) or {}).get("id")


def _input(call: Mapping[str, Any], pool: Sequence[Any]) -> list[Any]:
    pooled = [message for start, end in call.get("input_refs") or () for message in pool[start:end]]
    return [*(call.get("input") or ()), *pooled]


def _scores(shell: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each scorer; very old logs have one score without a name."""
    scores = shell.get("scores") or ({"score": shell["score"]} if shell.get("score") else {})
    return {str(name): score.get("value") for name, score in scores.items() if isinstance(score, Mapping)}


def _ending(shell: Mapping[str, Any]) -> tuple[Ending, str | None]:
    if error := shell.get("error"):
        return "errored", str(error.get("message") if isinstance(error, Mapping) else error)[:500]
    if limit := shell.get("limit"):
        return "truncated", f"{limit.get('type') if isinstance(limit, Mapping) else limit} limit"
    choices = (shell.get("output") or {}).get("choices") or [{}]
    stop = choices[0].get("stop_reason")
    return ("truncated", stop) if stop in CUT else ("terminated", stop)


def _patch(shell: Mapping[str, Any], resolve: Callable[[Any], Any]) -> str | None:
    """The patch that a scorer kept."""
    for score in (shell.get("scores") or {}).values():
        patch = (score.get("metadata") or {}).get("model_patch") if isinstance(score, Mapping) else None
        if isinstance(patch, str):
            return str(resolve(patch))
    return None


def _submission(shell: Mapping[str, Any], resolve: Callable[[Any], Any], patch: str | None) -> str | None:
    """The added lines of the patch, else the last answer."""
    if patch is not None:
        return added_lines(patch)
    output = shell.get("output") or {}
    message = _generated(shell)
    answer = output.get("completion") or ("\n".join(step.text for step in steps_of([message])) if message else "")
    return str(resolve(answer)) or None


def _seed(evaluation: Mapping[str, Any]) -> int:
    configs = [evaluation.get("model_generate_config") or {}, evaluation.get("config") or {}]
    return next((seed for config in configs if (seed := whole(config.get("seed"))) is not None), 0)


class _Resolver:
    """Replaces what `attachment://` stands for in any value, as long as the budget of a sample lasts."""

    def __init__(self, attachment: Callable[[str], str | None]) -> None:
        self._attachment, self._left = attachment, LIMITS.line

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            return ATTACHMENT.sub(self._text, value) if "attachment://" in value else value
        if isinstance(value, list):
            return [self(item) for item in value]
        return {key: self(item) for key, item in value.items()} if isinstance(value, dict) else value

    def _text(self, found: re.Match[str]) -> str:
        text = self._attachment(found[1])
        if not isinstance(text, str):
            return found[0]  # not in the log: left as it stands, as Inspect does
        self._left -= len(text)
        if self._left < 0:
            raise Refused("its attachments are larger than one sample may be")
        return text
