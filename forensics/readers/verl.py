"""Rollouts that verl dumps (`rollout_data_dir`, `validation_data_dir`), a row
for each.

Format: verl 0.3 to 0.9 `trainer/ppo/ray_trainer.py` (`_dump_generations`):
`{step}.jsonl` with `input`, `output`, `score`, `step`, in newer versions `gts`,
and whatever the reward function returned beside the score.

1. `input` and `output` are decoded texts without special tokens (`rollout_text`).
   `gts`, the ground truth, is not read.
2. `score` and every further number are rewards. The outcome is one named as
   such (`acc`), else the score, where it lies in [0, 1]; a score of -1 and 1
   alone is none.
3. The policy changes from step to step, so a step is a policy.
4. The prompt is the task. A newer verl has `uid` beside it, drawn anew at every step
   (`uuid4` in `trainer/ppo/v1`): as a task it would tear the steps of one prompt apart.
   It is the group of a training record.

As rows of a training record (also `trainer/ppo/v1/trainer_base.py`, `_write_generations`):

1. A row of a newer verl has `uid`, `{group}_{session}_{output}`: the group whose samples
   share a baseline, and the sample. Of several outputs of one session the last one is
   its run (the one that GRPO compares).
2. Without `uid` (`ray_trainer.py`) the rows of a step with the same input and ground truth are a
   group: a prompt that a batch holds twice makes one group of two.
3. `score` is the reward; the other numbers are rewards by name.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forensics.readers.content import UnreadableContent, log_name, read_head
from forensics.readers.json_rows import Row, first_row, read_rows
from forensics.readers.log_reader import Reader
from forensics.readers.rollout_text import named_outcome, numbers, prompt_and_completion
from forensics.readers.step_rows import Broken, Found, each_row, row_of
from forensics.readers.values import field_names, run_of
from forensics.records import Trajectory, content_hash

GAPS = (
    "token ids, masks, log-probabilities and entropies",
    "advantages, and groups that a filter dropped",
    "how a run ended",
    "how many turns it took",
    "policy versions",
    "the start of the run, its tokenizer and its settings",
)
FIELDS = {"input", "output", "score"}
_NO_REWARD = field_names("rewards").not_of_verl


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    row = first_row(head)
    texts = isinstance(row.get("input"), str) and isinstance(row.get("output"), str)
    return (
        texts
        and (row.keys() >= FIELDS or log_name(path).isdigit())
        and ("step" in row or "gts" in row)
    )


def run(row: Row) -> Trajectory:
    """The run of a generation."""
    value, stem = row.value, log_name(row.path)
    if not isinstance(value["input"], str) or not isinstance(value["output"], str):
        raise UnreadableContent("the input or the output is no text")
    steps, task = prompt_and_completion(value["input"], value["output"])
    rewards = numbers({name: entry for name, entry in value.items() if name not in _NO_REWARD})
    named = named_outcome(rewards)
    return run_of(
        steps,
        id=f"{stem} {row.where}",
        task=task,
        policy=f"step {value.get('step', stem)}",
        environment=value.get("data_source") or "verl",
        rewards=rewards,
        outcome=rewards.get("score") if named is None else named,
    )


reader = Reader(
    name="verl",
    version="1 (verl 0.3 to 0.9)",
    recognises=recognises,
    run=run,
    counted=True,
)


@dataclass(frozen=True)
class VerlDump:
    """The files `{step}.jsonl` of one folder, by step."""

    files: dict[int, tuple[Path, ...]]
    trainer: str = "verl"
    gaps: tuple[str, ...] = GAPS

    def rows(self, step: int, broken: Broken) -> Iterator[Found]:
        """The runs of a step, those of a group with the same `group`."""
        last: dict[tuple[str, int], tuple[int, Found]] = {}
        samples: Counter[str] = Counter()

        def note(row: Row) -> None:
            group, sample, output = place_of(row.value)
            if sample is None:
                sample = samples[group]
                samples[group] += 1
            if last.get((group, sample), (-1,))[0] <= output:
                last[group, sample] = output, _found(row, step, group, sample)

        for path in self.files[step]:
            deque(each_row(read_rows(path), path, broken, note), maxlen=0)
        yield from (found for _, found in last.values())


def find(folder: Path) -> VerlDump | None:
    """The dump in a folder, `None` where there is none."""
    paths = sorted(path for path in folder.glob("*.jsonl") if path.stem.isdecimal())
    known = bool(paths) and recognises(paths[0], read_head(paths[0]))
    return VerlDump({int(path.stem): (path,) for path in paths}) if known else None


def place_of(row: Any) -> tuple[str, int | None, int]:
    """The group of a row, its sample there and which output of the sample it is.

    >>> place_of({"uid": "a_b_2_0"})
    ('a_b', 2, 0)
    """
    uid = row.get("uid")
    if not isinstance(uid, str):
        return content_hash([row.get("input"), row.get("gts")], 16), None, 0
    group, *numbers = uid.rsplit("_", 2)
    if len(numbers) == 2 and all(n.isdecimal() and len(n) < 10 for n in numbers):
        return group, int(numbers[0]), int(numbers[1])
    return uid, None, 0


def _found(row: Row, step: int, group: str, sample: int) -> Found:
    made = run(row)
    return row_of(
        made,
        step=step,
        group=group,
        sample=sample,
        reward=made.rewards.get("score"),
        end=None,
        turns=None,
    )
