"""What verl dumps while it trains (`trainer.rollout_data_dir`, `validation_data_dir`),
as rows of a training record.

Format: verl `trainer/ppo/ray_trainer.py` and `trainer/ppo/v1/trainer_base.py`
(`_write_generations`): `{step}.jsonl`, whose rows the reader `verl` describes.

1. A row of a newer verl has `uid`, `{group}_{session}_{output}`: the group whose samples
   share a baseline, and the sample. Of several outputs of one session the last one is
   its run (the one that GRPO compares).
2. Without `uid` (`ray_trainer.py`) the rows of a step with the same input and ground truth are a
   group: a prompt that a batch holds twice makes one group of two.
3. `score` is the reward; the other numbers are rewards by name.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forensics.readers import verl
from forensics.readers.content import Unreadable, UnreadableContent, read_head
from forensics.readers.json_rows import MALFORMED, Row, in_words, read_rows
from forensics.readers.step_rows import Broken, Found, row_of
from forensics.records import content_hash

GAPS = (
    "token ids, masks, log-probabilities and entropies",
    "advantages, and groups that a filter dropped",
    "how a run ended",
    "how many turns it took",
    "policy versions",
    "the start of the run, its tokenizer and its settings",
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
        for path in self.files[step]:
            for row in read_rows(path):
                if isinstance(row, Unreadable):
                    broken(row)
                    continue
                try:
                    group, sample, output = place_of(row.value)
                    if sample is None:
                        sample = samples[group]
                        samples[group] += 1
                    if last.get((group, sample), (-1,))[0] > output:
                        continue
                    found = _found(row, path, step, group, sample)
                except (UnreadableContent, *MALFORMED) as error:
                    broken(Unreadable(path, in_words(error), row.where))
                    continue
                last[group, sample] = output, found
        yield from (found for _, found in last.values())


def find(folder: Path) -> VerlDump | None:
    """The dump in a folder, `None` where there is none."""
    paths = sorted(path for path in folder.glob("*.jsonl") if path.stem.isdecimal())
    known = bool(paths) and verl.recognises(paths[0], read_head(paths[0]))
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


def _found(row: Row, path: Path, step: int, group: str, sample: int) -> Found:
    run = verl.run(Row(row.where, row.value, path))
    return row_of(
        run,
        step=step,
        group=group,
        sample=sample,
        reward=run.rewards.get("score"),
        end=None,
        turns=None,
    )
