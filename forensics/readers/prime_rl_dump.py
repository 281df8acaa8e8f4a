"""What prime-rl writes while it trains, as rows of a training record.

Format: prime-rl 0.8 `monitors/file.py` (`rollouts/step_N/train/{all,effective}/traces.jsonl`,
episodes of verifiers; before that `rollouts/step_N/train_rollouts.jsonl`), which the
reader `verifiers` describes, and `trainer/rl/token_export.py`
(`token_exports/step_N/rank_R.jsonl`, with `enable_token_export`).

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
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from forensics.readers import prime_rl
from forensics.readers.content import Unreadable, UnreadableContent
from forensics.readers.json_rows import MALFORMED, Row, read_json_lines
from forensics.readers.step_rows import Broken, Found, row_of
from forensics.readers.values import as_list, as_mapping, dig, integer, number
from forensics.records import TrainingRow, Trajectory, content_hash

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
                if not _in_batch(path) and row.value.get("id") in self._trained:
                    continue
                try:
                    found = _of_trace(row, episode, step, samples)
                    yield _with_export(found, told)
                except (UnreadableContent, *MALFORMED) as error:
                    broken(Unreadable(path, str(error), row.where))


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
    for row in read_json_lines(path):
        if isinstance(row, Unreadable):
            broken(row)
            continue
        for part in prime_rl.traces(row):
            if dig(part.value, "agent", "trainable") is not False:
                yield Row(part.where, part.value, path), as_mapping(row.value)


def _of_trace(row: Row, episode: Mapping[str, Any], step: int, samples: Counter[str]) -> Found:
    run, trace = prime_rl.run(row), row.value
    name = _group(run, episode)
    policy = as_mapping(dig(episode, "run", "work", "policy"))
    used = {"dropped": NEVER} if not _in_batch(row.path) else _used(run, trace)
    samples[name] += 1
    return row_of(
        run,
        step=step,
        group=name,
        sample=samples[name] - 1,
        reward=prime_rl.total(trace) if "nodes" in trace else run.rewards.get("reward"),
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
    for path in paths:
        for row in read_json_lines(path):
            if isinstance(row, Unreadable):
                broken(row)
                continue
            try:
                one = Exported(
                    tuple(row.value["token_ids"]),
                    np.array(row.value["loss_mask"], bool),
                    {
                        name: np.array(row.value[name], np.float64)
                        for name in (*OF_EXPORTS, "advantages", "rl_weights")
                    },
                )
                one.check()
            except MALFORMED as error:
                broken(Unreadable(path, f"it is no export of tokens ({error})", row.where))
            else:
                yield one


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
