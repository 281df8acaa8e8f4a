"""What runs are graded with, token by token and step by step.

- *Preference pairs*: two ways to go on from the same tokens, one wanted and one
  not. Continuations are exactly the recorded tokens: nothing is appended, no
  end of text either.
- *Step rewards*: rewards of single steps. The record says of which tokens it
  speaks, so that a reward is never given to another run of the same name. A
  step that could not be graded has `None`, never 0: who learns from the record
  leaves it out.

What makes them (a confirmed cliff, a graded step, a judge, a person) and what
learns from them are different rooms; these records are all they share.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter, model_validator

from forensics.errors import UserError
from forensics.records.evidence import Provenance
from forensics.records.files import read_json_lines, write_json_lines
from forensics.records.record import VersionedRecord, content_hash
from forensics.records.trajectory import Trajectory

Tokens = tuple[int, ...]
Weights = tuple[float, ...]


class PreferencePair(VersionedRecord):
    """A shared prefix and two continuations.

    `prefix`: token ids up to where the two part, at least one. `chosen`,
    `rejected`: token ids that follow.
    `chosen_weights`, `rejected_weights`: one weight a token (`None`: all 1; 0
    keeps a token out of the loss).
    `task`: the task it came from. `policy`: content hash (or name) of the
    policy whose tokens these are.
    """

    id: str
    prefix: Tokens
    chosen: Tokens
    rejected: Tokens
    chosen_weights: Weights | None = None
    rejected_weights: Weights | None = None
    task: str | None = None
    policy: str
    provenance: Provenance

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.prefix:
            raise ValueError(
                "`prefix` needs at least one token, for the first of the continuation to follow"
            )
        if self.chosen == self.rejected:
            raise ValueError("`chosen` and `rejected` are the same tokens, which prefers nothing")
        for name in ("chosen", "rejected"):
            tokens, weights = getattr(self, name), getattr(self, f"{name}_weights")
            if not tokens:
                raise ValueError(f"`{name}` has no tokens")
            if weights is not None and len(weights) != len(tokens):
                raise ValueError(
                    f"`{name}_weights` needs one number for each of the {len(tokens)} tokens of"
                    f" `{name}`"
                )
            if weights is not None and not any(weights):
                raise ValueError(f"all `{name}_weights` are 0, so no token of `{name}` would count")
        return self


def read_pairs(path: Path) -> list[PreferencePair]:
    """Pairs from a file of JSON lines. Raises `UserError` that names the first
    line which is not one.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist; give a JSON lines file of preference pairs")
    return list(read_json_lines(path, TypeAdapter(PreferencePair), "a preference pair"))


class StepRewards(VersionedRecord):
    """The rewards of one trajectory's assistant steps.

    `steps`: their numbers in the trajectory, ascending; `rewards`: one each,
    `None` where there is none. `tokens`: `drawn_key` of the run (`None`: it had
    no token ids). `outcome`: the run's, for whoever combines the two.
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
        """The reward of its step for every token that the policy drew, in
        order; `None` where the step has none.

        Raises `UserError` where the trajectory is not the one that was graded.
        """
        if trajectory.id != self.trajectory or drawn_key(trajectory) != self.tokens:
            raise UserError(
                f"the rewards are of run {self.trajectory} and not of this run {trajectory.id};"
                " grade this one"
            )
        known = dict(zip(self.steps, self.rewards, strict=True))
        return tuple(
            known.get(number)
            for number, step in trajectory.actions
            for _ in range(sum(step.sampled or ()))
        )


def drawn_key(trajectory: Trajectory) -> str | None:
    """A content hash of the tokens of a run and of which of them the policy
    drew; `None` without token ids.
    """
    if any(step.token_ids is None or step.sampled is None for step in trajectory.steps):
        return None
    return content_hash([[step.token_ids, step.sampled] for step in trajectory.steps])


def write_step_rewards(path: Path, rewards: Iterable[StepRewards]) -> None:
    """JSON lines, one trajectory each, atomically."""
    write_json_lines(path, rewards)


def read_step_rewards(path: Path) -> dict[str, StepRewards]:
    """Rewards by trajectory id. Raises `UserError` that names the first line
    which is not such a record.
    """
    found: dict[str, StepRewards] = {}
    if not path.is_file():
        raise UserError(
            f"{path} does not exist; give the step_rewards.jsonl that `forensics grade` wrote"
        )
    rows = read_json_lines(path, TypeAdapter(StepRewards), "a record of step rewards")
    for number, row in enumerate(rows, 1):
        if row.trajectory in found:
            raise UserError(
                f"line {number} of {path} tells of run {row.trajectory} a second time; keep one"
            )
        found[row.trajectory] = row
    return found
