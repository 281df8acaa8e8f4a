"""Rollouts that verl dumps (`rollout_data_dir`, `validation_data_dir`), a row for each.

Format: verl 0.3 to 0.9 `trainer/ppo/ray_trainer.py` (`_dump_generations`): `{step}.jsonl` with `input`, `output`,
`score`, `step`, in newer versions `gts`, and whatever the reward function returned beside the score.

1. `input` and `output` are decoded texts without special tokens (`turns`). `gts`, the ground truth, is not read.
2. `score` and every further number are rewards. The outcome is one named as such (`acc`), else the score, where it lies
   in [0, 1]; a score of -1 and 1 alone is none.
3. The policy changes from step to step, so a step is a policy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forensics.readers.documents import stem_of
from forensics.readers.opening import Refused
from forensics.readers.parsing import Row, each_run, first_row, read_rows
from forensics.readers.reading import Unreadable
from forensics.readers.rollouts import Seen, exchange, named_outcome, numbers
from forensics.readers.scores import share
from forensics.records import Trajectory

FIELDS = {"input", "output", "score"}
NO_REWARD = ("input", "output", "gts", "step", "request_id", "index", "uid")


@dataclass(frozen=True, kw_only=True)
class Verl:
    """Reads dumped generations."""

    name: str = "verl"
    version: str = "1 (verl 0.3 to 0.9)"

    def recognises(self, path: Path, head: bytes) -> bool:
        row = first_row(head)
        texts = isinstance(row.get("input"), str) and isinstance(row.get("output"), str)
        return texts and (row.keys() >= FIELDS or stem_of(path).isdigit()) and ("step" in row or "gts" in row)

    def read(self, path: Path) -> Iterator[Trajectory | Unreadable]:
        """Every generation of the file."""
        seen = Seen()
        return each_run(path, read_rows(path), lambda row: _run(row, stem_of(path), seen))


reader = Verl()


def _run(row: Row, stem: str, seen: Seen) -> Trajectory:
    value = row.value
    if not isinstance(value["input"], str) or not isinstance(value["output"], str):
        raise Refused("the input or the output is no text")
    steps, task = exchange(value["input"], value["output"])
    policy = f"step {value.get('step', stem)}"
    rewards = numbers({name: entry for name, entry in value.items() if name not in NO_REWARD})
    named = named_outcome(rewards)
    return Trajectory(
        id=f"{stem} {row.where}", task=task, policy=policy, environment=str(value.get("data_source") or "verl"),
        seed=0, sample=seen.sample(policy, task), steps=steps, rewards=rewards,
        outcome=share(rewards.get("score")) if named is None else named, end="terminated",
    )
