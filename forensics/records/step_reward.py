"""Rewards of single steps: what grades a run (the progress advantage, a judge, a person) and what learns from it.

The two are different rooms; this record is all they share. It says of which tokens it speaks, so that a reward is
never given to another run of the same name. A step that could not be graded has `None`, never 0: who learns from the
record leaves it out.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pydantic import ValidationError, model_validator

from forensics.errors import UserError
from forensics.records.base import VersionedRecord, content_hash
from forensics.records.evidence import Provenance
from forensics.records.files import write_json_lines
from forensics.records.trajectory import Trajectory


class StepRewards(VersionedRecord):
    """The rewards of one trajectory's assistant steps.

    `steps`: their numbers in the trajectory, ascending; `rewards`: one each, `None` where there is none. `tokens`:
    `drawn_key` of the run (`None`: it had no token ids). `outcome`: the run's, for whoever combines the two.
    """

    trajectory: str
    task: str
    steps: tuple[int, ...]
    rewards: tuple[float | None, ...]
    tokens: str | None = None
    outcome: float | None = None
    provenance: Provenance

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.steps) != len(self.rewards):
            raise ValueError("`rewards` needs one entry for each of `steps`")
        if list(self.steps) != sorted(set(self.steps)):
            raise ValueError("`steps` must be ascending")
        return self

    @property
    def mean(self) -> float | None:
        """Over the steps that have one; `None` where none has."""
        known = [reward for reward in self.rewards if reward is not None]
        return sum(known) / len(known) if known else None

    def of_tokens(self, trajectory: Trajectory) -> tuple[float | None, ...]:
        """The reward of its step for every token that the policy drew, in order; `None` where the step has none.

        Raises `UserError` where the trajectory is not the one that was graded.
        """
        if trajectory.id != self.trajectory or drawn_key(trajectory) != self.tokens:
            raise UserError(f"the rewards are of run {self.trajectory} and not of this run {trajectory.id}; grade this "
                            "one")
        known = dict(zip(self.steps, self.rewards, strict=True))
        return tuple(known.get(number) for number, step in trajectory.actions for _ in range(sum(step.sampled or ())))


def drawn_key(trajectory: Trajectory) -> str | None:
    """A content hash of the tokens of a run and of which of them the policy drew; `None` without token ids."""
    if any(step.token_ids is None or step.sampled is None for step in trajectory.steps):
        return None
    return content_hash([[step.token_ids, step.sampled] for step in trajectory.steps])


def write_step_rewards(path: Path, rewards: Iterable[StepRewards]) -> None:
    """JSON lines, one trajectory each, atomically."""
    write_json_lines(path, rewards)


def read_step_rewards(path: Path) -> dict[str, StepRewards]:
    """Rewards by trajectory id. Raises `UserError` that names the first line which is not such a record."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give the step_rewards.jsonl that `forensics grade` wrote") from None
    found: dict[str, StepRewards] = {}
    for number, line in enumerate(lines, start=1):
        try:
            row = StepRewards.model_validate(json.loads(line))
        except (json.JSONDecodeError, ValidationError) as error:
            raise UserError(f"line {number} of {path} is not a record of step rewards: {_reason(error)}") from None
        if row.trajectory in found:
            raise UserError(f"line {number} of {path} tells of run {row.trajectory} a second time; keep one")
        found[row.trajectory] = row
    return found


def _reason(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"it is not valid JSON ({error})"
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where + ': ' if where else ''}{first['msg'].removeprefix('Value error, ')}"
