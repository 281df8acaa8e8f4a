"""Rollouts of verifiers and prime-rl: results, traces and episodes.

Format: verifiers 0.1 `utils/eval_utils.py` (`results.jsonl`), 0.4
`v1/trace.py`, `v1/graph.py`, `v1/episode.py` (`traces.jsonl`), prime-rl
`rollouts/step_N/train_rollouts.jsonl` (one trace, or one older row, a line).

1. An older row has `prompt`, `completion`, `task`, `example_id`, `reward` and
   its metrics beside them.
2. A trace is a graph of messages, each stored once in the order in which it
   came: they are the steps. Messages of the assistant that no model call made
   (`sampled` false, where others are true) are part of the prompt. Tokens,
   masks and log-probabilities (rounded to 4 decimals in the file) are kept
   where the graph is one path that tells them all.
3. An episode holds one trace for each agent; they are one run each.
4. The reward is the weighted sum; it is the outcome where it lies in [0, 1].
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forensics.readers.content import JsonObject, UnreadableContent, log_name
from forensics.readers.json_rows import Row, first_row, parse
from forensics.readers.log_reader import Reader
from forensics.readers.messages import steps_of
from forensics.readers.rollout_text import numbers, prompt_and_completion
from forensics.readers.values import (
    End,
    as_list,
    as_mapping,
    dig,
    ending,
    field_names,
    integer,
    number,
    run_of,
)
from forensics.records import Step, Trajectory, content_hash

OLDER = {"prompt", "completion", "reward", "example_id"}
TRACE = {"nodes", "task"}
TASK = {"type", "data"}  # of a trace or an episode, whose other entries may lie behind a long one
_NO_METRIC = field_names("rewards").not_of_verifiers
_BUDGETS = field_names("cut_off").verifiers


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    row = first_row(head)
    return row.keys() >= OLDER or row.keys() >= TRACE or as_mapping(row.get("task")).keys() >= TASK


def accompanies(path: Path) -> bool:
    """The settings beside results, the settings and the console of `vf-eval` below traces."""
    if path.name == "metadata.json":
        return (path.parent / "results.jsonl").is_file()
    run = path.parents[2:3]  # of `configs/resolved/eval.json`, `logs/attempt_1/eval.log`
    return path.name in ("eval.json", "eval.log") and any(
        (place / "traces.jsonl").is_file() for place in run
    )


def traces(row: Row) -> Iterator[Row]:
    """The traces of a row and their places; what an episode knows is added to its traces."""
    value = as_mapping(row.value)
    if not isinstance(listed := value.get("traces"), list):
        yield Row(row.where, value)
        return
    shared = {key: value[key] for key in ("task", "env") if key in value}
    for at, trace in enumerate(listed):
        where = f"{row.where}, trace {at}" if at else row.where
        yield Row(where, {**shared, **as_mapping(trace)})
    if not listed:  # an episode that failed before any agent spoke
        yield Row(row.where, {"nodes": [], **value})


def run(row: Row) -> Trajectory:
    """The run of a trace, or of an older row."""
    return (_of_graph if "nodes" in row.value else _of_row)(row, row.value)


def _of_row(row: Row, run: JsonObject) -> Trajectory:
    if not {"prompt", "completion"} & run.keys():
        raise UnreadableContent("the row has neither messages nor a prompt and a completion")
    steps, task = prompt_and_completion(_parsed(run.get("prompt")), _parsed(run.get("completion")))
    beside = {
        key: value
        for key, value in run.items()
        if key not in _NO_METRIC and number(value) is not None
    }
    error, environment = run.get("error"), run.get("env_name", run.get("task"))
    end = ending(
        run.get("stop_condition"),
        _BUDGETS,
        "truncated" if run.get("is_truncated") is True else "terminated",
        error=as_mapping(error).get("error_chain_str") or error,
    )
    return run_of(
        steps,
        end,
        id=run.get("trajectory_id") or f"{log_name(row.path)} {row.where}",
        task=task,
        policy=run.get("model"),
        environment=environment if isinstance(environment, str) else "verifiers",
        rewards=numbers({**as_mapping(run.get("metrics")), **beside, "reward": run.get("reward")}),
        outcome=None if end[0] == "errored" else run.get("reward"),
    )


def _parsed(messages: Any) -> Any:
    """Messages whose tool calls may each be a JSON text, as some versions wrote them."""
    return (
        [_with_calls(message) for message in messages] if isinstance(messages, list) else messages
    )


def _with_calls(message: Any) -> Any:
    calls = [
        parse(call) if isinstance(call, str) else call
        for call in as_list(as_mapping(message).get("tool_calls"))
    ]
    return {**message, "tool_calls": calls} if calls else message


def _of_graph(row: Row, trace: JsonObject) -> Trajectory:
    steps = _graph_steps(trace["nodes"])
    scores = {
        name: dig(entry, "score") if isinstance(entry, Mapping) else entry
        for name, entry in as_mapping(trace.get("rewards")).items()
    }
    metrics = numbers(as_mapping(trace.get("metrics")))
    end = _trace_ending(trace)
    calls = map(as_mapping, as_list(trace.get("calls")))
    called = next((call["model"] for call in calls if call.get("model")), None)
    name = content_hash([row.where, trace.get("task")])
    return run_of(
        steps,
        end,
        id=trace.get("id") or f"{log_name(row.path)} {name}",
        task=_task(as_mapping(trace.get("task"))),
        policy=dig(trace, "agent", "config", "model") or called,
        environment=dig(trace, "env", "name") or dig(trace, "env", "id") or "verifiers",
        rewards=scores | {name: value for name, value in metrics.items() if name not in scores},
        outcome=None if end[0] == "errored" else total(trace),
    )


def _task(told: JsonObject) -> Any:
    """Its key; where that is the hash of all that the task holds, the id that its source gave, if
    any: it stays the same where a world changes the task's text.
    """
    key, content = told.get("key"), told.get("hash")
    return (dig(told, "data", "id") if key in (None, content) else None) or key or content


def _graph_steps(nodes: Any) -> tuple[Step, ...]:
    graph = [as_mapping(node) for node in as_list(nodes)]
    drawn = any(node.get("sampled") for node in graph)
    tokens = has_tokens(graph)
    steps: list[Step] = []
    for node in graph:
        for step in steps_of([node["message"]]):
            given = drawn and step.role == "assistant" and not node.get("sampled")
            changes = {"role": "user"} if given else {}
            steps.append(step.model_copy(update={**changes, **(_tokens(node) if tokens else {})}))
    return tuple(steps)


def has_tokens(graph: Sequence[JsonObject]) -> bool:
    """Whether the messages are one path, one step each, and each tells its
    tokens: then they make up the episode.
    """
    path = all(node.get("parent") == (at - 1 if at else None) for at, node in enumerate(graph))
    return path and all(
        as_list(node.get("token_ids"))
        and len(as_list(node.get("mask"))) == len(node["token_ids"])
        and all(
            (integer(token) or 0) >= 0 and integer(token) is not None for token in node["token_ids"]
        )
        and all(isinstance(flag, bool) for flag in node["mask"])
        and len(steps_of([node["message"]])) == 1
        for node in graph
    )


def _tokens(node: JsonObject) -> dict[str, Any]:
    logprobs = [number(value) for value in as_list(node.get("logprobs"))]
    told = len(logprobs) == sum(node["mask"]) and None not in logprobs
    return {
        "token_ids": tuple(node["token_ids"]), "sampled": tuple(node["mask"]),
        "logprobs": tuple(logprobs) if told else None,
    }  # fmt: skip


def total(trace: JsonObject) -> float | None:
    """The weighted sum of the rewards; `None` where one was not measured, or there is none."""
    total = None
    for entry in map(as_mapping, as_mapping(trace.get("rewards")).values()):
        score, weight = number(entry.get("score")), number(entry.get("weight", 1.0))
        if score is None or weight is None:
            return None
        total = (total or 0.0) + score * weight
    return total


def _trace_ending(trace: JsonObject) -> End:
    stop = trace.get("stop_condition")
    end = ending(stop, _BUDGETS)
    errors = [as_mapping(error) for error in as_list(trace.get("errors"))]
    calls = [as_mapping(call) for call in as_list(trace.get("calls"))]
    failed = trace.get("ok") is False
    if trace.get("is_timeout") is True or end[0] == "truncated":
        return "truncated", end[1] or "timeout"
    if failed and errors:
        return "errored", f"{errors[-1].get('type')}: {errors[-1].get('message')}"
    if calls and calls[-1].get("finish_reason") == "length":
        return "truncated", "length"
    return ("errored", None) if failed and stop is None else end


reader = Reader(
    name="verifiers",
    version="1 (verifiers 0.1 to 0.4, prime-rl)",
    recognises=recognises,
    accompanies=accompanies,
    parts=traces,
    run=run,
    counted=True,
)
