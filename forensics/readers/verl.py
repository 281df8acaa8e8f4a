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
   It is the group of a training record (`verl_dump`).
"""

from pathlib import Path

from forensics.readers.content import UnreadableContent, log_name
from forensics.readers.json_rows import Row, first_row
from forensics.readers.log_reader import Reader
from forensics.readers.rollout_text import named_outcome, numbers, prompt_and_completion
from forensics.readers.values import field_names, run_of
from forensics.records import Trajectory

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
