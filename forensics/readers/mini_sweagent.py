"""mini-swe-agent trajectories, of every format that it has written.

Format: mini-swe-agent 1.0 to 2.4.6, `agents/default.py`, `run/utils/save.py`,
`models/utils/actions_*.py`.

1. Three shapes: a bare list of messages (before 1.0); `mini-swe-agent-1` with
   `info` and `messages`, where the action is the one bash block of an answer;
   `mini-swe-agent-1.1` (version 2), where `extra.actions` tells the actions
   that were parsed, tool calls or not, a last message with the role `exit`
   tells the end, and answers may be whole responses of the Responses API.
2. The message that follows an answer without tool calls is what came back,
   though its role is `user`.
3. Outcomes stand in the benchmark's own reports beside the trajectories
   (`submission`).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forensics.readers.content import UnreadableContent, bare_name, log_name
from forensics.readers.json_rows import Row, first_value, read_document
from forensics.readers.log_reader import Reader
from forensics.readers.messages import is_conversation, shell_call, steps_of
from forensics.readers.submission import (
    exit_ending,
    is_report_of,
    judged_run,
    lies_with,
)
from forensics.readers.values import as_list, as_mapping, dig, field_names
from forensics.records import Step, Trajectory

NAME = "mini-swe-agent"
SUFFIX = ".traj.json"
DONE = ("MINI_SWE_AGENT_FINAL_OUTPUT", "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    value = first_value(head)
    if is_conversation(value):
        return bare_name(path).endswith(SUFFIX)
    run = as_mapping(value)
    info = as_mapping(run.get("info"))
    named = str(run.get("trajectory_format", "")).startswith(NAME) or "mini_version" in info
    return named or ("info" in run and bare_name(path).endswith(SUFFIX))


def accompanies(path: Path) -> bool:
    """Reports and tables of results that lie with trajectories."""
    pattern = f"*{SUFFIX}*"
    known = path.name in ("preds.json", "minisweagent.log") or path.match("exit_statuses_*.yaml")
    return (known and lies_with(path, pattern)) or is_report_of(path, pattern)


def run(row: Row) -> Trajectory:
    """The run of a file."""
    value = row.value if isinstance(row.value, Mapping) else {"messages": row.value}
    if not isinstance(value.get("messages"), list):
        raise UnreadableContent("the run has no messages")
    last = as_mapping(value["messages"][-1] if value["messages"] else None)
    info = {**as_mapping(last.get("extra")), **as_mapping(value.get("info"))}
    steps = tuple(
        _steps(
            [message for message in value["messages"] if as_mapping(message).get("role") != "exit"]
        )
    )
    if "exit_status" not in info:
        info |= _bare_ending(steps)
    task = str(value.get("instance_id") or log_name(row.path))
    return judged_run(
        row.path,
        task,
        steps,
        exit_ending(info.get("exit_status"), ("Submitted",), field_names("cut_off").mini),
        info.get("submission"),
        id=task,
        policy=dig(info, "config", "model", "model_name"),
        environment=NAME,
    )


def _steps(messages: Sequence[Any]) -> Iterator[Step]:
    awaited = False  # whether what came back stands under the role of the user
    for message in messages:
        told = as_mapping(message)
        if awaited and told.get("role") == "user":
            message = {**told, "role": "tool"}
        steps = _message(message)
        yield from steps
        awaited = bool(steps) and steps[-1].role == "assistant" and not told.get("tool_calls")


def _message(message: Any) -> tuple[Step, ...]:
    told = as_mapping(message)
    if "role" not in told and isinstance(told.get("output"), list):
        return (_joined(steps_of(told["output"])),)
    steps = steps_of([message])
    if told.get("role") != "assistant" or told.get("tool_calls"):
        return steps
    parsed = [dig(action, "command") for action in as_list(dig(told, "extra", "actions"))]
    calls = tuple(shell_call(line) for line in parsed if isinstance(line, str))
    return (
        tuple(step.model_copy(update={"tool_calls": calls}) for step in steps) if calls else steps
    )


def _joined(steps: tuple[Step, ...]) -> Step:
    """The items of one response as one step."""
    calls = tuple(call for step in steps for call in step.tool_calls)
    text = "\n".join(step.text for step in steps if step.text)
    return Step(role="assistant", text=text, tool_calls=calls)


def _bare_ending(steps: Sequence[Step]) -> dict[str, Any]:
    """The ending of a run whose log has messages only: what came back on the
    command that hands in is handed in.
    """
    for asked, answer in zip(steps[-2:-1], steps[-1:], strict=False):
        if (
            asked.role == "assistant"
            and answer.role == "tool"
            and any(word in asked.text for word in DONE)
        ):
            return {"exit_status": "Submitted", "submission": answer.text}
    return {}


reader = Reader(
    name=NAME,
    version="1 (bare list, mini-swe-agent-1, mini-swe-agent-1.1)",
    recognises=recognises,
    accompanies=accompanies,
    rows=read_document,
    run=run,
)
