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

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forensics.readers.content import Unreadable, UnreadableContent, bare_name, log_name
from forensics.readers.json_rows import Row, first_value, read_document, trajectories_from
from forensics.readers.log_reader import Reader
from forensics.readers.messages import is_conversation, steps_of
from forensics.readers.submission import (
    benchmark_outcome,
    holds,
    is_benchmark_report,
    submission_of,
)
from forensics.readers.values import as_list, as_mapping, dig
from forensics.records import Step, ToolCall, Trajectory
from forensics.records.trajectory import Ending

NAME = "mini-swe-agent"
SUFFIX = ".traj.json"
BUDGETS = ("LimitsExceeded", "TimeExceeded", "ContextWindowExceededError", "UserInterruption")
DONE = ("MINI_SWE_AGENT_FINAL_OUTPUT", "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
UNKNOWN = "the log does not say how the run ended"


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
    folder, pattern = path.parent, f"*{SUFFIX}*"
    if is_benchmark_report(path) and (holds(folder, pattern) or holds(folder.parent, pattern)):
        return True
    known = (
        is_benchmark_report(path)
        or path.name in ("preds.json", "minisweagent.log")
        or path.match("exit_statuses_*.yaml")
    )
    return known and (holds(folder, pattern) or next(folder.glob(f"*/{pattern}"), None) is not None)


def read(path: Path) -> Iterator[Trajectory | Unreadable]:
    """The one run of the file."""
    return trajectories_from(path, read_document(path), lambda row: _run(row, path))


reader = Reader(
    name=NAME,
    version="1 (bare list, mini-swe-agent-1, mini-swe-agent-1.1)",
    recognises=recognises,
    accompanies=accompanies,
    reads=read,
)


def _run(row: Row, path: Path) -> Trajectory:
    run = row.value if isinstance(row.value, Mapping) else {"messages": row.value}
    if not isinstance(run.get("messages"), list):
        raise UnreadableContent("the run has no messages")
    last = as_mapping(run["messages"][-1] if run["messages"] else None)
    info = {**as_mapping(last.get("extra")), **as_mapping(run.get("info"))}
    steps = tuple(
        _steps(
            [message for message in run["messages"] if as_mapping(message).get("role") != "exit"]
        )
    )
    if "exit_status" not in info:
        info |= _bare_ending(steps)
    end, reason = _ending(info.get("exit_status"))
    task = str(run.get("instance_id") or log_name(path))
    outcome = benchmark_outcome(path, task)
    work = submission_of(info.get("submission"), finished=end == "terminated")
    return Trajectory(
        id=task,
        task=task,
        policy=str(dig(info, "config", "model", "model_name") or "unknown"),
        environment=NAME,
        seed=0,
        steps=steps,
        rewards={} if outcome is None else {"resolved": outcome},
        outcome=outcome,
        end=end,
        end_reason=reason,
        submission=work.submission,
        patch=work.patch,
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
        return _joined(steps_of(message["output"]))
    if (
        told.get("role") == "assistant"
        and not told.get("tool_calls")
        and (actions := _actions(told))
    ):
        return tuple(
            step.model_copy(update={"tool_calls": actions}) for step in steps_of([message])
        )
    return steps_of([message])


def _joined(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The items of one response as one step."""
    calls = tuple(call for step in steps for call in step.tool_calls)
    return (
        Step(
            role="assistant",
            text="\n".join(step.text for step in steps if step.text),
            tool_calls=calls,
        ),
    )


def _actions(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """The commands that were parsed from an answer, where the log tells them
    apart from its text.
    """
    commands = (
        as_mapping(action).get("command") for action in as_list(dig(message, "extra", "actions"))
    )
    texts = (command for command in commands if isinstance(command, str))
    return tuple(
        ToolCall(name="bash", arguments=json.dumps({"command": text}, ensure_ascii=False))
        for text in texts
    )


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


def _ending(status: Any) -> tuple[Ending, str | None]:
    if status == "Submitted":
        return "terminated", status
    if not status:
        return "errored", UNKNOWN
    return ("truncated" if status in BUDGETS else "errored"), str(status)[:500]
