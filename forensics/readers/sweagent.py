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

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forensics.readers.content import Unreadable, UnreadableContent, bare_name, log_name
from forensics.readers.json_rows import (
    MALFORMED as BROKEN,
    Row,
    first_value,
    in_words,
    parse,
    read_document,
)
from forensics.readers.log_reader import Reader
from forensics.readers.messages import message_text, steps_of
from forensics.readers.submission import (
    benchmark_outcome,
    holds,
    is_benchmark_report,
    submission_of,
)
from forensics.readers.values import as_list, as_mapping, dig
from forensics.records import Step, ToolCall, Trajectory
from forensics.records.trajectory import Ending

TURN = {"action", "observation", "response"}
EVENT = {"args", "source", "kind", "cause"}  # of OpenHands, whose events are named alike
BUDGETS = (
    "exit_cost",
    "exit_context",
    "exit_total_execution_time",
    "exit_command_timeout",
    "exit_api_limit",
)
BESIDE = (".pred", ".patch", ".config.yaml", ".trace.log", ".debug.log", ".info.log", ".log")
RUN_FILES = (
    "preds.json",
    "all_preds.jsonl",
    "args.yaml",
    "run_batch.config.yaml",
    "run_batch_exit_statuses.yaml",
)
FOLDER = re.compile(
    r"^(?P<model>.+?)__.+__t-[\d.]+__p-[\d.]+__c-[\d.]+__install-\d+$"
)  # before 1.0
NEWER_FOLDER = re.compile(
    r"^.+?__(?P<model>.+?)__t-[\d.]+__p-[\d.na]+__c-[\d.]+___.+$", re.IGNORECASE
)
UNKNOWN = "the log does not say how the run ended"


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    run = as_mapping(first_value(head))
    attempts = as_list(run.get("attempts"))
    run = as_mapping(attempts[0]) if attempts else run
    turns = run.get("trajectory")
    if isinstance(turns, list) and turns:
        return as_mapping(turns[0]).keys() >= TURN
    return bare_name(path).endswith(".traj") and bool(run)


def accompanies(path: Path) -> bool:
    """What SWE-agent writes beside a trajectory and beside a batch of them."""
    beside = next(
        (path.name.removesuffix(suffix) for suffix in BESIDE if path.name.endswith(suffix)),
        None,
    )
    if beside is not None and (path.parent / f"{beside}.traj").is_file():
        return True
    known = path.name in RUN_FILES or is_benchmark_report(path)
    return known and (
        holds(path.parent, "*.traj") or next(path.parent.glob("*/*.traj"), None) is not None
    )


def read(path: Path) -> Iterator[Trajectory | Unreadable]:
    """The runs of the file: one, or one for each attempt."""
    for row in read_document(path):
        yield from _runs(row, path) if isinstance(row, Row) else [row]


reader = Reader(
    name="swe-agent",
    version="1 (SWE-agent 0.2 to 1.1)",
    recognises=recognises,
    accompanies=accompanies,
    reads=read,
)


def _runs(row: Row, path: Path) -> Iterator[Trajectory | Unreadable]:
    run = as_mapping(row.value)
    attempts = as_list(run.get("attempts")) or [run]
    for number, attempt in enumerate(attempts):
        try:  # beside its attempts a run repeats the one that was chosen
            yield _run(
                {"replay_config": run.get("replay_config"), **as_mapping(attempt)}, path, number
            )
        except BROKEN as error:
            where = row.where if len(attempts) == 1 else f"attempt {number}"
            yield Unreadable(path=path, where=where, reason=in_words(error))


def _run(run: Mapping[str, Any], path: Path, number: int) -> Trajectory:
    if not isinstance(run.get("trajectory"), list):
        raise UnreadableContent("the run has no trajectory")
    info, config = as_mapping(run.get("info")), _config(run.get("replay_config"))
    task = str(dig(config, "problem_statement", "id") or log_name(path))
    end, reason = _ending(info.get("exit_status"))
    outcome = benchmark_outcome(path, task)
    work = submission_of(info.get("submission"), finished=end == "terminated")
    return Trajectory(
        id=f"{task}#{number}" if number else task,
        task=task,
        policy=_policy(config, path),
        environment="swe-agent",
        seed=0,
        sample=number,
        steps=(*_prompt(run), *_turns(run)),
        rewards={} if outcome is None else {"resolved": outcome},
        outcome=outcome,
        end=end,
        end_reason=reason,
        submission=work.submission,
        patch=work.patch,
    )


def _config(config: Any) -> Mapping[str, Any]:
    """The configuration of the run, which newer versions keep as a JSON text."""
    try:
        return as_mapping(parse(config) if isinstance(config, str) else config)
    except UnreadableContent:
        return {}


def _policy(config: Mapping[str, Any], path: Path) -> str:
    """The model's name: of the configuration, else of the folder, as SWE-agent names it."""
    told = dig(config, "agent", "model", "name")
    folders = (
        pattern.match(folder.name)
        for folder in path.parents[:2]
        for pattern in (NEWER_FOLDER, FOLDER)
    )
    return str(told or next((match["model"] for match in folders if match), "unknown"))


def _prompt(run: Mapping[str, Any]) -> Iterator[Step]:
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


def _turns(run: Mapping[str, Any]) -> Iterator[Step]:
    answers = [
        message
        for message in map(as_mapping, as_list(run.get("history")))
        if message.get("role") == "assistant"
    ]
    answers = [message for message in answers if not message.get("is_demo")]
    at = 0
    for turn in run["trajectory"]:
        written, action = message_text(turn.get("response")), message_text(turn.get("action"))
        if written or action.strip():
            answer = answers[at] if at < len(answers) and _same(answers[at], turn) else {}
            at += bool(answer)
            yield _answer(written or message_text(turn.get("thought")), action, answer)
        if turn.get("observation") is not None and (
            written or action.strip() or message_text(turn["observation"])
        ):
            yield Step(role="tool", text=message_text(turn["observation"]))


def _same(answer: Mapping[str, Any], turn: Mapping[str, Any]) -> bool:
    return message_text(answer.get("content")) == turn.get("response") or (
        "action" in answer
        and (answer["action"], answer.get("thought")) == (turn.get("action"), turn.get("thought"))
    )


def _answer(written: str, action: str, answer: Mapping[str, Any]) -> Step:
    thinking = [
        part for part in as_list(answer.get("thinking_blocks")) if isinstance(part, Mapping)
    ]
    told = {
        "role": "assistant",
        "content": [*thinking, written],
        "tool_calls": answer.get("tool_calls"),
    }
    step = steps_of([told])[0]
    if step.tool_calls or not action.strip():
        return step
    call = ToolCall(name="bash", arguments=json.dumps({"command": action}, ensure_ascii=False))
    return step.model_copy(update={"tool_calls": (call,)})


def _ending(status: Any) -> tuple[Ending, str | None]:
    """`submitted (exit_cost)` is work that the harness handed in when the budget was spent."""
    told = str(status or "")
    if told in ("submitted", "exit_forfeit", "early_exit"):
        return "terminated", told
    if not told:
        return "errored", UNKNOWN
    return ("truncated" if any(budget in told for budget in BUDGETS) else "errored"), told[:500]
