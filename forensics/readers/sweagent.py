"""SWE-agent trajectories (`.traj`), from before 1.0 to after 1.1.

Format: SWE-agent 0.2 to 1.1, `types.py` (`TrajectoryStep`, `HistoryItem`,
`AgentInfo`) and `agent/agents.py`.

1. The turns are `trajectory`: `response` as the model wrote it, the `action`
   parsed from it, the `observation`. The prompt is what stands before the first
   answer in `history`, else in the first turn's `query` (since 1.1) or
   `messages` (1.0). Demonstrations are part of the prompt, whatever role they
   are given.
2. Tool calls and visible thinking stand in `history`; where the answers there
   do not match a turn, the action that was parsed is the call, to `bash`.
3. A turn without a response and an action is the harness handing in after a
   failure; only its observation is kept.
4. Runs with several attempts (`attempts`) are several trajectories.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forensics.readers.content import JsonObject, UnreadableContent, bare_name, log_name
from forensics.readers.json_rows import Row, first_value, parse_or, read_document
from forensics.readers.log_reader import Reader
from forensics.readers.messages import (
    answer_of,
    message_text,
    shell_call,
    steps_of,
    tool_step,
)
from forensics.readers.submission import exit_ending, is_report_of, judged_run, lies_with
from forensics.readers.values import as_list, as_mapping, dig, field_names
from forensics.records import Step, Trajectory

_NAMES = field_names("sweagent")
FOLDERS = (  # since 1.0, and before
    re.compile(r"^.+?__(?P<model>.+?)__t-[\d.]+__p-[\d.na]+__c-[\d.]+___.+$", re.IGNORECASE),
    re.compile(r"^(?P<model>.+?)__.+__t-[\d.]+__p-[\d.]+__c-[\d.]+__install-\d+$"),
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    run = as_mapping(first_value(head))
    attempts = as_list(run.get("attempts"))
    run = as_mapping(attempts[0]) if attempts else run
    turns = run.get("trajectory")
    if isinstance(turns, list) and turns:
        known = as_mapping(turns[0]).keys()
        if known >= {*_NAMES.turn} or (
            len(turns) == 1 and known and known <= {*_NAMES.fields}
        ):  # one that is cut
            return True
        if len(turns) > 1:
            return False
    return bare_name(path).endswith(".traj") and bool(run)


def accompanies(path: Path) -> bool:
    """What SWE-agent writes beside a trajectory and beside a batch of them."""
    beside = next(
        (path.name.removesuffix(suffix) for suffix in _NAMES.beside if path.name.endswith(suffix)),
        None,
    )
    if beside is not None and (path.parent / f"{beside}.traj").is_file():
        return True
    known = path.name in _NAMES.run_files and lies_with(path, "*.traj")
    return known or is_report_of(path, "*.traj")


def attempts(row: Row) -> Iterator[Row]:
    """One row for each attempt: beside its attempts a run repeats the one that was chosen."""
    run = as_mapping(row.value)
    listed = as_list(run.get("attempts")) or [run]
    for number, attempt in enumerate(listed):
        value = {"replay_config": run.get("replay_config"), **as_mapping(attempt)}
        where = row.where if len(listed) == 1 else f"attempt {number}"
        yield Row(where, {**value, "attempt": number})


def run(row: Row) -> Trajectory:
    """The run of an attempt."""
    value, number = row.value, row.value["attempt"]
    if not isinstance(value.get("trajectory"), list):
        raise UnreadableContent("the run has no trajectory")
    info, config = as_mapping(value.get("info")), as_mapping(parse_or(value.get("replay_config")))
    task = str(dig(config, "problem_statement", "id") or log_name(row.path))
    told = dig(config, "agent", "model", "name")
    folders = (pattern.match(folder.name) for folder in row.path.parents[:2] for pattern in FOLDERS)
    return judged_run(
        row.path,
        task,
        (*_prompt(value), *_turns(value)),
        exit_ending(info.get("exit_status"), _NAMES.done, field_names("cut_off").sweagent),
        info.get("submission"),
        id=f"{task}#{number}" if number else task,
        policy=told or next((match["model"] for match in folders if match), None),
        environment="swe-agent",
        sample=number,
    )


def _prompt(run: JsonObject) -> Iterator[Step]:
    first = as_mapping(next(iter(run["trajectory"]), None))
    messages: Any = next(
        (told for told in (run.get("history"), first.get("query"), first.get("messages")) if told),
        [],
    )
    for message in map(as_mapping, as_list(messages)):
        demonstration = bool(message.get("is_demo"))
        if message.get("role") == "assistant" and not demonstration:
            return
        if "role" in message:
            role = "user" if demonstration else message["role"]
            yield from steps_of([{"role": role, "content": message.get("content")}])


def _turns(run: JsonObject) -> Iterator[Step]:
    history = map(as_mapping, as_list(run.get("history")))
    answers = [
        message
        for message in history
        if message.get("role") == "assistant" and not message.get("is_demo")
    ]
    at = 0
    for turn in run["trajectory"]:
        written, action = message_text(turn.get("response")), message_text(turn.get("action"))
        shown = turn.get("observation")
        if written or action.strip():
            answer = answers[at] if at < len(answers) and _same(answers[at], turn) else {}
            at += bool(answer)
            yield _answer(written or message_text(turn.get("thought")), action, answer)
        if shown is not None and (written or action.strip() or message_text(shown)):
            yield tool_step(message_text(shown))


def _same(answer: JsonObject, turn: JsonObject) -> bool:
    return message_text(answer.get("content")) == turn.get("response") or (
        "action" in answer
        and (answer["action"], answer.get("thought")) == (turn.get("action"), turn.get("thought"))
    )


def _answer(written: str, action: str, answer: JsonObject) -> Step:
    thinking = [
        part for part in as_list(answer.get("thinking_blocks")) if isinstance(part, Mapping)
    ]
    step = answer_of(content=[*thinking, written], tool_calls=answer.get("tool_calls"))
    if step.tool_calls or not action.strip():
        return step
    return step.model_copy(update={"tool_calls": (shell_call(action),)})


reader = Reader(
    name="swe-agent",
    version="1 (SWE-agent 0.2 to 1.1)",
    recognises=recognises,
    accompanies=accompanies,
    rows=read_document,
    parts=attempts,
    run=run,
)
