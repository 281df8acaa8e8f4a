"""OpenHands runs: lists of events, and the `output.jsonl` of its benchmarks.

Format: OpenHands 0.9 to 0.62 `evaluation/utils/shared.py` (`EvalOutput`),
`events/serialization/event.py`, `events/observation/commands.py`;
OpenHands/benchmarks `utils/models.py`; openhands-sdk 1.58
`event/llm_convertible/`.

1. A list of events, or a file with an event a line, is one run; a broken line
   is told and the run goes on without it.
2. A row of `output.jsonl` is one run: `instance_id`, `history` (events, or
   pairs of them), `test_result` with the `git_patch` that was taken and, once
   evaluated, a `report`. The patch is taken however the run ended.
3. A folder of event files, one event each, is one run that is read with its
   first file.
4. Events are those of OpenHands 0.x (`action`, `observation`) and of its agent
   SDK 1.x (`kind`). The policy's are those whose source is `agent`. Their text
   and tool call are those of the model's response where the event keeps it,
   else the `thought` and the action with its arguments under OpenHands's name
   for the tool. Calls of one response that follow each other are one step; its
   text stands in it once.
5. What came back is the content, with the exit code behind it in the words in
   which OpenHands shows it to the model. Events of the harness about itself
   (states, recalls that show nothing) are no steps.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from forensics.actions.untrusted import first_of
from forensics.readers.content import JsonObject, Unreadable, UnreadableContent, log_name, read_head
from forensics.readers.json_rows import (
    Row,
    Rows,
    Runs,
    first_row,
    first_value,
    read_document,
    read_rows,
    trajectories_from,
)
from forensics.readers.log_reader import Reader
from forensics.readers.messages import answer_of, message_text, steps_of, tool_call, tool_step
from forensics.readers.submission import benchmark_outcome, is_report_of, submission_of
from forensics.readers.values import (
    End,
    as_list,
    as_mapping,
    dig,
    ending,
    field_names,
    integer,
    run_of,
    score_of,
)
from forensics.records import Step, ToolCall, Trajectory
from forensics.records.trajectory import Role

_NAMES = field_names("openhands")
_BUDGETS = field_names("cut_off").openhands
TOOLS = {"run": "execute_bash", "run_ipython": "execute_ipython_cell"}
MERGED = 1000  # calls in one step
EXIT = "[Command finished with exit code {}]"
NAME = "openhands"
ONE_EVENT = re.compile(r"^(?:event-)?(\d+)(?:-[0-9a-f-]+)?\.json$")
INSTANCE = re.compile(r"^[\w.-]+__[\w.-]+-\d+$")
CACHE = "event_cache"  # beside a folder of events: the same ones again


def is_event(value: Any) -> bool:
    """Whether a JSON value looks like an event of either kind."""
    event = as_mapping(value)
    if "kind" in event:
        return str(event["kind"]).endswith(("Event", "Observation")) and "source" in event
    return ("action" in event and ("args" in event or "source" in event)) or (
        "observation" in event and ("extras" in event or "cause" in event or "source" in event)
    )


@dataclass
class Run:
    """The steps of the events so far, and how the run ended as far as they tell."""

    steps: list[Step] = field(default_factory=list)
    finished: bool = False
    failure: str | None = None
    _response: str | None = None  # whose call the last step holds
    _spoken: str | None = None  # whose text was told last

    def add(self, event: JsonObject) -> None:
        """One more event. Raises `ValueError` or the like where it is none."""
        if not is_event(event):
            raise ValueError("it is no event")
        before = len(self.steps)
        if "kind" in event:
            self._add_new(event)
        elif "action" in event:
            self._add_action(event)
        else:
            self._add_observation(event)
        if len(self.steps) > before and self.steps[-1].role != "assistant":
            self._response = None

    def ending(self) -> End:
        """How the run ended: finished by the policy, cut off by a budget, or failed."""
        if self.finished:
            return "terminated", "finish"
        return ending(
            self.failure or "the run ends without a finish",
            _BUDGETS,
            "truncated" if self.failure is None else "errored",
        )

    def _say(self, role: Role, content: Any) -> None:
        self.steps.append(Step(role=role, text=message_text(content)))

    def _add_new(self, event: JsonObject) -> None:
        kind = event["kind"]
        if kind == "SystemPromptEvent":
            self._say("system", [event.get("system_prompt")])
        elif kind == "MessageEvent":
            message = as_mapping(event.get("llm_message"))
            content = [*as_list(message.get("content")), *as_list(event.get("extended_content"))]
            self.steps += steps_of([{**message, "content": content}])
        elif kind == "ActionEvent":
            thought, reasoning = event.get("thought"), event.get("reasoning_content")
            text = answer_of(content=thought, reasoning=reasoning).text
            call = answer_of(tool_calls=[as_mapping(event.get("tool_call"))]).tool_calls[0]
            self._act(text, call, event.get("llm_response_id"))
            self.finished = event.get("tool_name") == "finish"
        elif kind == "ConversationErrorEvent":
            self.failure = f"{event.get('code')}: {event.get('detail')}"
        elif kind in _NAMES.kinds:
            self.steps.append(tool_step(_shown(event)))

    def _add_action(self, event: JsonObject) -> None:
        action, args, source = event["action"], as_mapping(event.get("args")), event.get("source")
        if action in _NAMES.silent:
            return
        if action == "system":
            self._say("system", args.get("content"))
        elif source == "user" or (source is None and action == "message" and not self.steps):
            self._say("user", args.get("content", args.get("command")))
        elif action == "message":
            self._say("assistant", args.get("content", event.get("message")))
        else:
            response = as_mapping(dig(event, "tool_call_metadata", "model_response"))
            self._act(_response_text(response, args), _called(event, response), response.get("id"))
            self.finished = action in ("finish", "reject")

    def _add_observation(self, event: JsonObject) -> None:
        extras = as_mapping(event.get("extras"))
        if event["observation"] == "agent_state_changed":
            state = extras.get("agent_state")
            self.failure = str(extras.get("reason") or state) if state == "error" else self.failure
            self.finished = self.finished or state == "finished"
        elif event["observation"] not in _NAMES.silent:
            self.steps.append(tool_step(_with_code(event.get("content"), extras)))

    def _act(self, text: str, call: ToolCall, response: Any) -> None:
        """One call of a response, in the step of the calls of the same response
        that stand just before.
        """
        again = response is not None and response == self._response
        if again and len(self.steps[-1].tool_calls) < MERGED:
            calls = (*self.steps[-1].tool_calls, call)
            self.steps[-1] = self.steps[-1].model_copy(update={"tool_calls": calls})
        else:
            repeated = response is not None and response == self._spoken
            said = "" if repeated else text
            self.steps.append(Step(role="assistant", text=said, tool_calls=(call,)))
        self._response = self._spoken = response if isinstance(response, str) else None


def events_in(history: Iterable[Any]) -> Iterator[Any]:
    """The events of a history, which older versions keep as pairs of an action
    and what came back.
    """
    for entry in history:
        yield from entry if isinstance(entry, list) else [entry]


def _shown(event: JsonObject) -> str:
    if "error" in event or "rejection_reason" in event:
        return str(event.get("error") or f"Action rejected: {event.get('rejection_reason')}")
    observation = as_mapping(event.get("observation"))
    content = observation.get("content", observation.get("output", observation.get("message")))
    return _with_code(content, observation)


def _with_code(content: Any, fields: JsonObject) -> str:
    text, code = message_text(content), dig(fields, "metadata", "exit_code")
    known = integer(fields.get("exit_code") if code is None else code)
    if known is None or known == -1 or EXIT.format(known) in text:
        return text
    return f"{text}\n{EXIT.format(known)}"


def _response_text(response: JsonObject, args: JsonObject) -> str:
    choices = as_list(response.get("choices"))
    message = as_mapping(dig(choices[0], "message")) if choices else {}
    if not message:
        return message_text(args.get("thought"))
    return answer_of(**{**message, "tool_calls": None, "function_call": None}).text


def _called(event: JsonObject, response: JsonObject) -> ToolCall:
    """The call that an action was made from, else the action itself as a call."""
    asked = dig(event, "tool_call_metadata", "tool_call_id")
    for choice in as_list(response.get("choices")):
        for call in as_list(dig(choice, "message", "tool_calls")):
            if as_mapping(call).get("id") == asked and asked is not None:
                return answer_of(tool_calls=[call]).tool_calls[0]
    args = {
        key: value
        for key, value in as_mapping(event.get("args")).items()
        if key not in _NAMES.about and value is not None
    }
    name = dig(event, "tool_call_metadata", "function_name") or TOOLS.get(
        event["action"], event["action"]
    )
    return tool_call(name, args)


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    value, first = first_value(head), first_row(head)
    if isinstance(value, dict) and is_event(first) and ONE_EVENT.match(path.name):
        return True
    held = first_of(first, ("history", "trajectory"))
    begins = is_event(next(events_in(as_list(held)), None))
    return is_event(first) or {"instance_id", "test_result"} <= first.keys() or begins


def read(path: Path) -> Runs:
    """The runs of the file."""
    if path.parent.name == CACHE and (path.parent.parent / "events").is_dir():
        return iter(())
    if ONE_EVENT.match(path.name):
        return _of_folder(path)
    rows = read_rows(path)
    first = next(rows, None)
    if isinstance(first, Row) and not is_event(first.value):
        return trajectories_from(path, chain([first], rows), _output)
    stem = log_name(path)
    name = path.parent.name or stem if stem in _NAMES.plain else stem
    return _of_events(path, chain([first] if first else (), rows), name)


def _of_folder(path: Path) -> Runs:
    """The run whose events lie in a folder; only its first file is the run, the
    others are read with it.
    """
    matches = (ONE_EVENT.match(file.name) for file in path.parent.iterdir())
    names = [name for _, name in sorted((int(m[1]), m.string) for m in matches if m)]
    if path.name == next(n for n in names if n == path.name or _holds_event(path.parent / n)):
        rows = (row for name in names for row in _event_of(path.parent / name))
        folder = path.parent.parent if path.parent.name == "events" else path.parent
        yield from _of_events(path, rows, folder.name)


def _holds_event(path: Path) -> bool:
    try:
        return is_event(first_row(read_head(path)))
    except UnreadableContent:
        return False


def _event_of(path: Path) -> Rows:
    for row in read_document(path):
        if isinstance(row, Row):
            yield replace(row, where=path.name)
        elif _holds_event(path):  # else it is told as a file that nobody reads
            yield row


def _of_events(path: Path, rows: Iterable[Row | Unreadable], name: str) -> Runs:
    run = Run()
    yield from trajectories_from(path, iter(rows), lambda row: run.add(row.value))
    if run.steps:
        outcome = benchmark_outcome(path, name)
        yield run_of(
            run.steps,
            run.ending(),
            id=name,
            task=name if INSTANCE.match(name) else None,
            environment=NAME,
            rewards={} if outcome is None else {"resolved": outcome},
            outcome=outcome,
        )


def _output(row: Row) -> Trajectory:
    output = row.value
    run = Run()
    for event in events_in(first_of(output, ("history", "trajectory")) or ()):
        run.add(event)
    task, error = str(output["instance_id"]), output.get("error")
    outcome = _outcome(output, row.path, task)
    patch, metadata = dig(output, "test_result", "git_patch"), output.get("metadata")
    work = output.get("git_patch") if patch is None else patch
    attempt = integer(output.get("attempt")) or 1
    return run_of(
        run.steps,
        ending(str(error), _BUDGETS, "errored") if error else run.ending(),
        id=task if attempt < 2 else f"{task}#{attempt}",
        task=task,
        policy=dig(metadata, "llm_config", "model") or dig(metadata, "llm", "model"),
        environment=dig(metadata, "dataset") or NAME,
        sample=attempt - 1,
        rewards={} if outcome is None else {"outcome": outcome},
        outcome=outcome,
        work=submission_of(work, finished=not error),
    )


def _outcome(output: JsonObject, path: Path, task: str) -> float | None:
    """What the evaluation wrote into the row, else beside the file. A report on
    an error is no verdict.
    """
    result = as_mapping(output.get("test_result"))
    reports = (as_mapping(holder.get("report")) for holder in (result, output))
    for told in (*reports, result, output):
        if told.get("error_eval"):
            return None
        for score in map(score_of, map(told.get, _NAMES.outcomes)):
            if score is not None:
                return score
    return benchmark_outcome(path, task)


reader = Reader(
    name=NAME,
    version="1 (OpenHands 0.9 to 0.62, agent SDK 1.x)",
    recognises=recognises,
    reads=read,
    accompanies=lambda path: is_report_of(path, "output*.jsonl*"),
)
