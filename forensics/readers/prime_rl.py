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

What prime-rl writes while it trains, as rows of a training record.

Format: prime-rl 0.8 `monitors/file.py` (`rollouts/step_N/train/{all,effective}/traces.jsonl`,
episodes of verifiers; before that `rollouts/step_N/train_rollouts.jsonl`), and
`trainer/rl/token_export.py` (`token_exports/step_N/rank_R.jsonl`, with `enable_token_export`).

1. `effective` holds what a step trained on. What is in `all` alone (of a group without
   spread, rejected, stale, failed) is a row of the step that it was finished in, dropped.
2. The group is the episode's; in older files the samples of one task in one step. Traces of
   agents that are not trained are left out.
3. Tokens, masks and log-probabilities of a trace that is one path are kept (4 decimals
   in the file). Where an export holds the same tokens, its numbers take their place:
   sampler and trainer log-probabilities, entropies, and which tokens were in the loss.
4. The `traces.jsonl` of verifiers itself (an evaluation, a replay) is one step, 0.
5. Exports alone have no rewards and no groups: the sequences of a step with the same prompt tokens
   are one group.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from forensics.readers.content import JsonObject, UnreadableContent, log_name
from forensics.readers.json_rows import MALFORMED, Row, first_row, parse, read_json_lines
from forensics.readers.log_reader import Reader
from forensics.readers.messages import steps_of
from forensics.readers.rollout_text import numbers, prompt_and_completion
from forensics.readers.step_rows import Broken, Found, each_row, row_of
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
from forensics.records import Step, TrainingRow, Trajectory, content_hash

NEVER = "in no batch that was trained on"
OF_NODES = {  # numbers of sampled tokens in a node of a trace, and ours
    "advantages": "token_advantages",
    "reference_logprobs": "reference_logprobs",
    "trainer_logprobs": "old_logprobs",
    "entropies": "entropies",
}
OF_EXPORTS = {
    "inference_logprobs": "sampler_logprobs",
    "trainer_logprobs": "old_logprobs",
    "entropy": "entropies",
}
SETTINGS = "the start of the run, its tokenizer and its settings"
TRACES_ALONE = (
    "the trainer's log-probabilities and entropies (no token_exports)",
    "tokens of runs whose messages are no single path",
    SETTINGS,
)
EXPORTS_ALONE = (
    "rewards, outcomes and dropped groups (no rollouts)",
    "groups (sequences of a step with one prompt are taken for one)",
    "how a run ended",
    "policy versions",
    SETTINGS,
)
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
    told = as_mapping(trace.get("task"))
    key, content = told.get("key"), told.get("hash")
    return run_of(
        steps,
        end,
        id=trace.get("id") or f"{log_name(row.path)} {name}",
        task=(dig(told, "data", "id") if key in (None, content) else None) or key or content,
        policy=dig(trace, "agent", "config", "model") or called,
        environment=dig(trace, "env", "name") or dig(trace, "env", "id") or "verifiers",
        rewards=scores | {name: value for name, value in metrics.items() if name not in scores},
        outcome=None if end[0] == "errored" else total(trace),
    )


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


@dataclass(frozen=True)
class PrimeRlDump:
    """`traces` and `exports`: files of a run by step."""

    traces: dict[int, tuple[Path, ...]]
    exports: dict[int, tuple[Path, ...]]
    trainer: str = "prime-rl"

    @property
    def gaps(self) -> tuple[str, ...]:
        if not self.traces:
            return EXPORTS_ALONE
        return TRACES_ALONE[0 if not self.exports else 1 :]

    @cached_property
    def files(self) -> dict[int, tuple[Path, ...]]:
        known = self.traces or self.exports
        return {
            step: (*self.traces.get(step, ()), *self.exports.get(step, ()))
            for step in sorted(known)
        }

    @cached_property
    def _trained(self) -> set[str]:
        """The names of all traces that a step trained on."""
        paths = [path for paths in self.traces.values() for path in paths if _in_batch(path)]
        rows = (row for path in paths for row, _ in _parts(path, lambda one: None))
        return {name for row in rows if (name := row.value.get("id"))}

    def rows(self, step: int, broken: Broken) -> Iterator[Found]:
        """The runs of a step: those that it trained on, then those that were dropped."""
        exported = list(_exported(self.exports.get(step, ()), broken))
        if not self.traces:
            yield from _of_exports(exported, step)
            return
        told = {one.key: one for one in exported}
        samples: Counter[str] = Counter()
        for path in self.traces[step]:
            for row, episode in _parts(path, broken):
                if _in_batch(path) or row.value.get("id") not in self._trained:
                    made = partial(_of_trace, episode=episode, step=step, samples=samples)
                    for found in each_row([row], path, broken, made):
                        yield _with_export(found, told)


def find(folder: Path) -> PrimeRlDump | None:
    """The dump in the folder of a run, or in its `rollouts` or `token_exports`, or what
    verifiers wrote without a trainer; `None` where there is none.
    """
    run = folder.parent if folder.name in ("rollouts", "token_exports") else folder
    if (alone := folder / "traces.jsonl").is_file():
        return PrimeRlDump({0: (alone,)}, {}, trainer="verifiers")
    traces = _by_step(run / "rollouts", "train/*/traces.jsonl", "train_rollouts.jsonl")
    exports = _by_step(run / "token_exports", "rank_*.jsonl", whole="STABLE")
    return PrimeRlDump(traces, exports) if traces or exports else None


def _by_step(folder: Path, *patterns: str, whole: str | None = None) -> dict[int, tuple[Path, ...]]:
    """Files of each `step_N`, what was trained on before the rest; only of a step with the
    file `whole`, where one says that it is.
    """
    found = {}
    for place in folder.glob("step_*"):
        number = place.name.removeprefix("step_")
        files = [path for pattern in patterns for path in place.glob(pattern)]
        if number.isdecimal() and files and (whole is None or (place / whole).exists()):
            found[int(number)] = tuple(sorted(files, key=lambda path: (not _in_batch(path), path)))
    return dict(sorted(found.items()))


def _in_batch(path: Path) -> bool:
    """Whether the runs of a file were trained on."""
    return path.parent.name != "all"


def _parts(path: Path, broken: Broken) -> Iterator[tuple[Row, Mapping[str, Any]]]:
    """The traces of a file that are trained, each with its episode (or older row)."""
    for row in each_row(read_json_lines(path), path, broken, lambda row: row):
        for part in traces(row):
            if dig(part.value, "agent", "trainable") is not False:
                yield Row(part.where, part.value, path), as_mapping(row.value)


def _of_trace(row: Row, episode: Mapping[str, Any], step: int, samples: Counter[str]) -> Found:
    made, trace = run(row), row.value
    name = _group(made, episode)
    policy = as_mapping(dig(episode, "run", "work", "policy"))
    used = {"dropped": NEVER} if not _in_batch(row.path) else _used(made, trace)
    samples[name] += 1
    return row_of(
        made,
        step=step,
        group=name,
        sample=samples[name] - 1,
        reward=total(trace) if "nodes" in trace else made.rewards.get("reward"),
        policy_steps=(integer(policy.get("start")), integer(policy.get("end"))),
        **used,
    )


def _group(run: Trajectory, episode: Mapping[str, Any]) -> str:
    """The group that the episode names; without one an example of its environment, each of
    which counts its own.
    """
    group, example = dig(episode, "group", "id"), dig(episode, "example_id")
    if group is not None:
        return str(group)
    return run.task if example is None else f"{run.environment}-{example}"


def _used(run: Trajectory, trace: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of the drawn tokens where the trace is one path, and the one advantage of
    the run, as prime-rl tells it: the mean of those that are not 0.
    """
    if run.sampled_tokens is None or "nodes" not in trace:
        return {"advantage": number(trace.get("advantage"))}
    nodes = [as_mapping(node) for node in as_list(trace["nodes"]) if any(node["mask"])]
    told: dict[str, Any] = {}
    for theirs, ours in OF_NODES.items():
        values = [number(value) for node in nodes for value in as_list(node.get(theirs))]
        if len(values) == run.sampled_tokens and None not in values:
            told[ours] = tuple(values)
    if advantages := told.get("token_advantages"):
        credited = [value for value in advantages if value != 0]
        told["advantage"] = sum(credited) / len(credited) if credited else 0.0
        if len(set(advantages)) == 1:
            del told["token_advantages"]  # the one of the run
    return told


@dataclass(frozen=True)
class Exported:
    """One sequence: token ids `[tokens]`, whether each was in the loss, and numbers of each."""

    token_ids: tuple[int, ...]
    in_loss: np.ndarray
    numbers: dict[str, np.ndarray]

    @property
    def key(self) -> bytes:
        return _key(self.token_ids)

    def check(self) -> None:
        """Raises `ValueError` where it does not tell of each of its tokens."""
        if not all(type(token) is int and 0 <= token < 1 << 31 for token in self.token_ids):
            raise ValueError("a token id is none")
        if any(x.shape != (len(self.token_ids),) for x in (self.in_loss, *self.numbers.values())):
            raise ValueError("it has not one number of each kind for each token")

    def of(self, sampled: np.ndarray) -> dict[str, Any]:
        """Our columns at these positions; a number that is none anywhere there is missing."""
        told = {
            ours: tuple(values[sampled].tolist())
            for theirs, ours in OF_EXPORTS.items()
            if np.isfinite((values := self.numbers[theirs])[sampled]).all()
        }
        weights = np.where(self.in_loss, np.nan_to_num(self.numbers["rl_weights"], nan=1.0), 0.0)
        if not (weights[sampled] == 1).all():
            told["token_weights"] = tuple(weights[sampled].tolist())
        return told


def _key(token_ids: Sequence[int]) -> bytes:
    return np.asarray(token_ids, np.int64).tobytes()


def _exported(paths: Sequence[Path], broken: Broken) -> Iterator[Exported]:
    def read(row: Row) -> Exported:
        try:
            numbers = (*OF_EXPORTS, "advantages", "rl_weights")
            one = Exported(
                tuple(row.value["token_ids"]),
                np.array(row.value["loss_mask"], bool),
                {name: np.array(row.value[name], np.float64) for name in numbers},
            )
            one.check()
        except MALFORMED as error:
            raise UnreadableContent(f"it is no export of tokens ({error})") from error
        return one

    for path in paths:
        yield from each_row(read_json_lines(path), path, broken, read)


def _with_export(found: Found, told: Mapping[bytes, Exported]) -> Found:
    """The row with what the trainer exported of the same tokens."""
    row, text = found
    one = told.get(_key(row.token_ids)) if row.token_ids else None
    if one is None or row.dropped is not None:
        return found
    numbers = one.of(np.array(row.sampled, bool))
    return TrainingRow.model_validate({**dict(row), **numbers}), text


def _of_exports(exported: Sequence[Exported], step: int) -> Iterator[Found]:
    samples: Counter[str] = Counter()
    for one in exported:
        first = int(one.in_loss.argmax()) if one.in_loss.any() else len(one.token_ids)
        advantages = one.numbers["advantages"][one.in_loss]
        task = f"prompt-{content_hash(list(one.token_ids[:first]), 12)}"
        drawn = one.in_loss.tolist()
        samples[task] += 1
        row = TrainingRow(
            step=step,
            group=f"{step}-{task}",
            sample=samples[task] - 1,
            task=task,
            trajectory=f"{step}-{task}-{samples[task] - 1}",
            token_ids=one.token_ids,
            sampled=tuple(drawn),
            token_advantages=tuple(advantages.tolist()) if np.isfinite(advantages).all() else None,
            end=None,
            turns=sum(now and not before for before, now in pairwise([False, *drawn])),
            policy_step_first=None,
            policy_step_last=None,
            **one.of(one.in_loss),
        )
        yield row, None
