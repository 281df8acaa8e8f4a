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

from forensics.readers.content import Unreadable, UnreadableContent, log_name
from forensics.readers.json_rows import (
    MALFORMED as BROKEN,
    Row,
    first_row,
    in_words,
    parse,
    read_rows,
)
from forensics.readers.log_reader import Reader
from forensics.readers.messages import prompt_hash, steps_of
from forensics.readers.rollout_text import Seen, numbers, prompt_and_completion
from forensics.readers.values import as_list, as_mapping, dig, integer, number, score_of
from forensics.records import Step, Trajectory, content_hash
from forensics.records.trajectory import Ending

OLDER = {"prompt", "completion", "reward", "example_id"}
TRACE = {"nodes", "task"}
TASK = {"type", "data"}  # of a trace or an episode, whose other entries may lie behind a long one
NO_METRIC = (
    "example_id",
    "generation_ms",
    "scoring_ms",
    "total_ms",
    "is_completed",
    "is_truncated",
    "advantage",
)
BUDGETS = (
    "max_turns",
    "max_tokens",
    "max_total",
    "max_input",
    "max_output",
    "length",
    "timeout",
    "truncated",
    "overlong",
    "budget",
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    row = first_row(head)
    return row.keys() >= OLDER or row.keys() >= TRACE or as_mapping(row.get("task")).keys() >= TASK


def accompanies(path: Path) -> bool:
    """The settings beside results."""
    return path.name == "metadata.json" and (path.parent / "results.jsonl").is_file()


def read(path: Path) -> Iterator[Trajectory | Unreadable]:
    """Every run of the file."""
    seen, stem = Seen(), log_name(path)
    for row in read_rows(path):
        if isinstance(row, Unreadable):
            yield row
            continue
        for where, trace in _traces(row):
            try:
                yield _run(where, trace, stem, seen)
            except BROKEN as error:
                yield Unreadable(path=path, where=where, reason=in_words(error))


reader = Reader(
    name="verifiers",
    version="1 (verifiers 0.1 to 0.4, prime-rl)",
    recognises=recognises,
    accompanies=accompanies,
    reads=read,
)


def _traces(row: Row) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The traces of a row and their places; what an episode knows is added to its traces."""
    value = as_mapping(row.value)
    if not isinstance(value.get("traces"), list):
        yield row.where, value
        return
    shared = {key: value[key] for key in ("task", "env") if key in value}
    for number_, trace in enumerate(value["traces"]):
        yield (
            (f"{row.where}, trace {number_}" if number_ else row.where),
            {**shared, **as_mapping(trace)},
        )
    if not value["traces"]:  # an episode that failed before any agent spoke
        yield row.where, {"nodes": [], **value}


def _run(where: str, trace: Mapping[str, Any], stem: str, seen: Seen) -> Trajectory:
    return (
        _of_graph(where, trace, stem, seen)
        if "nodes" in trace
        else _of_row(where, trace, stem, seen)
    )


def _of_row(where: str, row: Mapping[str, Any], stem: str, seen: Seen) -> Trajectory:
    if not {"prompt", "completion"} & row.keys():
        raise UnreadableContent("the row has neither messages nor a prompt and a completion")
    steps, task = prompt_and_completion(_parsed(row.get("prompt")), _parsed(row.get("completion")))
    beside = {
        key: value
        for key, value in row.items()
        if key not in NO_METRIC and number(value) is not None
    }
    metrics = {**as_mapping(row.get("metrics")), **beside, "reward": row.get("reward")}
    end, reason = _row_ending(row)
    environment = row.get("env_name", row.get("task"))
    policy = str(row.get("model") or "unknown")
    return Trajectory(
        id=str(row.get("trajectory_id") or f"{stem} {where}"),
        task=task,
        policy=policy,
        environment=environment if isinstance(environment, str) else "verifiers",
        seed=0,
        sample=seen.sample(policy, task),
        steps=steps,
        rewards=numbers(metrics),
        outcome=None if end == "errored" else score_of(row.get("reward")),
        end=end,
        end_reason=reason,
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


def _row_ending(row: Mapping[str, Any]) -> tuple[Ending, str | None]:
    error, stop = row.get("error"), row.get("stop_condition")
    if error:
        return "errored", str(as_mapping(error).get("error_chain_str") or error)[:500]
    told = None if stop is None else str(stop)
    if row.get("is_truncated") is True or _is_budget(told):
        return "truncated", told
    return "terminated", told


def _of_graph(where: str, trace: Mapping[str, Any], stem: str, seen: Seen) -> Trajectory:
    steps = _graph_steps(trace["nodes"])
    rewards = {str(name): number(dig(entry, "score") if isinstance(entry, Mapping) else entry)
               for name, entry in as_mapping(trace.get("rewards")).items()}  # fmt: skip
    rewards |= {
        name: value
        for name, value in numbers(as_mapping(trace.get("metrics"))).items()
        if name not in rewards
    }
    end, reason = _trace_ending(trace)
    task = str(dig(trace, "task", "key") or dig(trace, "task", "hash") or prompt_hash(steps))
    policy = str(dig(trace, "agent", "config", "model") or _called(trace) or "unknown")
    return Trajectory(
        id=str(trace.get("id") or f"{stem} {content_hash([where, trace.get('task')])}"),
        task=task,
        policy=policy,
        environment=str(dig(trace, "env", "name") or dig(trace, "env", "id") or "verifiers"),
        seed=0,
        sample=seen.sample(policy, task),
        steps=steps,
        rewards=rewards,
        outcome=None if end == "errored" else _total(trace),
        end=end,
        end_reason=reason,
    )


def _graph_steps(nodes: Any) -> tuple[Step, ...]:
    graph = [as_mapping(node) for node in as_list(nodes)]
    drawn = any(node.get("sampled") for node in graph)
    tokens = _has_tokens(graph)
    steps: list[Step] = []
    for node in graph:
        for step in steps_of([node["message"]]):
            given = drawn and step.role == "assistant" and not node.get("sampled")
            changes = {"role": "user"} if given else {}
            steps.append(step.model_copy(update={**changes, **(_tokens(node) if tokens else {})}))
    return tuple(steps)


def _has_tokens(graph: Sequence[Mapping[str, Any]]) -> bool:
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


def _tokens(node: Mapping[str, Any]) -> dict[str, Any]:
    logprobs = [number(value) for value in as_list(node.get("logprobs"))]
    told = len(logprobs) == sum(node["mask"]) and None not in logprobs
    return {
        "token_ids": tuple(node["token_ids"]), "sampled": tuple(node["mask"]),
        "logprobs": tuple(logprobs) if told else None,
    }  # fmt: skip


def _total(trace: Mapping[str, Any]) -> float | None:
    """The weighted sum of the rewards; `None` where one was not measured, or there is none."""
    values = []
    for entry in as_mapping(trace.get("rewards")).values():
        score, weight = (
            number(as_mapping(entry).get("score")),
            number(as_mapping(entry).get("weight", 1.0)),
        )
        if score is None or weight is None:
            return None
        values.append(score * weight)
    return score_of(sum(values)) if values else None


def _called(trace: Mapping[str, Any]) -> Any:
    return next(
        (
            call["model"]
            for call in map(as_mapping, as_list(trace.get("calls")))
            if call.get("model")
        ),
        None,
    )


def _trace_ending(trace: Mapping[str, Any]) -> tuple[Ending, str | None]:
    stop = trace.get("stop_condition")
    told = None if stop is None else str(stop)
    errors = [as_mapping(error) for error in as_list(trace.get("errors"))]
    calls = [as_mapping(call) for call in as_list(trace.get("calls"))]
    if trace.get("is_timeout") is True or _is_budget(told):
        return "truncated", told or "timeout"
    if trace.get("ok") is False and errors:
        return "errored", f"{errors[-1].get('type')}: {errors[-1].get('message')}"[:500]
    if calls and calls[-1].get("finish_reason") == "length":
        return "truncated", "length"
    return ("errored" if trace.get("ok") is False and told is None else "terminated"), told


def _is_budget(stop: str | None) -> bool:
    return stop is not None and any(budget in stop.lower() for budget in BUDGETS)
