"""What training left, and what it may learn from. The training record: what a trainer
sampled, how it was rewarded, and which advantage each sample was given.

One row is one sampled trajectory of one optimizer step, token by token, so that
a changed loss can be run over it later without a model server or an
environment. Rows of a step lie in one Parquet shard beside a marker
(`forensics.records.train_tables`); what holds for the whole run lies in
`run.json`.

Feedback is what runs are graded with, token by token and step by step:

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

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter, model_validator

from forensics.errors import UserError
from forensics.records.evidence import Provenance
from forensics.records.files import read_json_lines, write_json_lines
from forensics.records.record import VersionedRecord, content_hash
from forensics.records.trajectory import Ending, Role, Trajectory

Floats = tuple[float, ...]
PER_SAMPLED_TOKEN = (
    "sampler_logprobs",
    "old_logprobs",
    "reference_logprobs",
    "entropies",
    "token_weights",
    "token_advantages",
)


class TrainingRow(VersionedRecord):
    """One sample of one optimizer step. Positions and steps count from 0;
    log-probabilities and entropies in nats.

    `step`: the optimizer step it was used in. `group`: samples of one prompt
    that share a baseline, unique in the run. `sample`: its number in the group.
    `trajectory`: the id of the run it tells of.
    `token_ids`, `sampled`: every token of the episode in order, and whether the
    policy drew it. Numbers of each *sampled* token, in order:
    `sampler_logprobs` (as drawn), `old_logprobs` (recomputed by the trainer
    before its update; `None`: it was not), `reference_logprobs`, `entropies`
    (of the whole distribution; with several minibatches under the weights that
    the row's own met in the first pass), `token_weights` (`None`: all 1; 0
    takes a token out of the loss), `token_advantages` (`None`: `advantage` at
    every token).
    `rewards`: named components before weighting; `reward`: their weighted total
    (`None`: could not be measured).
    `advantage`: the one the loss used; `None` with the reason in `dropped`
    where the row took no part; both `None`: the trainer did not say.
    `end`, `turns`: how the run ended and how many turns it took, where that is told.
    `policy_step_first`, `policy_step_last`: the policy versions that drew its
    first and last token, where they are known.
    `step_starts`, `step_roles`, `step_kinds`: where in `token_ids` each message
    begins, who wrote it, and the kinds of the actions in it.
    """

    step: int
    group: str
    sample: int
    task: str
    trajectory: str
    token_ids: tuple[int, ...] | None = None
    sampled: tuple[bool, ...] | None = None
    sampler_logprobs: Floats | None = None
    old_logprobs: Floats | None = None
    reference_logprobs: Floats | None = None
    entropies: Floats | None = None
    token_weights: Floats | None = None
    token_advantages: Floats | None = None
    rewards: dict[str, float | None] = {}
    reward: float | None = None
    advantage: float | None = None
    dropped: str | None = None
    end: Ending | None
    end_reason: str | None = None
    outcome: float | None = None
    turns: int | None
    policy_step_first: int | None
    policy_step_last: int | None
    step_starts: tuple[int, ...] = ()
    step_roles: tuple[Role, ...] = ()
    step_kinds: tuple[tuple[str, ...], ...] = ()

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        if (self.token_ids is None) != (self.sampled is None) or len(self.token_ids or ()) != len(
            self.sampled or ()
        ):
            raise ValueError("`sampled` needs one flag for each of `token_ids`")
        drawn = None if self.sampled is None else self.sampled.count(True)
        for name in PER_SAMPLED_TOKEN:
            values = getattr(self, name)
            if values is not None and len(values) != drawn:
                raise ValueError(
                    f"`{name}` has {len(values)} numbers for {drawn} sampled tokens; give one for"
                    " each"
                )
        if not len(self.step_starts) == len(self.step_roles) == len(self.step_kinds):
            raise ValueError(
                "`step_starts`, `step_roles` and `step_kinds` need one entry for each message"
            )
        return self

    @model_validator(mode="after")
    def _used_or_dropped(self) -> Self:
        if self.dropped is not None and (
            self.advantage is not None or self.token_advantages is not None
        ):
            raise ValueError(f"a row dropped because {self.dropped} has no advantage; give `None`")
        first, last = self.policy_step_first, self.policy_step_last
        if first is not None and last is not None and first > last:
            raise ValueError("`policy_step_first` is after `policy_step_last`")
        return self

    @property
    def length(self) -> int | None:
        """How many tokens the policy drew; `None` where they were not recorded."""
        return None if self.sampled is None else self.sampled.count(True)

    @classmethod
    def of(
        cls,
        trajectory: Trajectory,
        /,
        *,
        step: int,
        group: str,
        rewards: Mapping[str, float | None],
        reward: float | None,
        policy_steps: tuple[int | None, int | None] | None = None,
        **used: Any,
    ) -> Self:
        """The row of a trajectory; `used` gives what the trainer added
        (`advantage` or `dropped`, `old_logprobs`, `reference_logprobs`,
        `entropies`, `token_weights`, ...), or knows better than the trajectory.
        `policy_steps`: first and last policy version (default: the step's own).
        """
        first, last = (step, step) if policy_steps is None else policy_steps
        known: dict[str, Any] = {
            "step": step,
            "group": group,
            "sample": trajectory.sample,
            "task": trajectory.task,
            "trajectory": trajectory.id,
            **_tokens(trajectory),
            "rewards": dict(rewards),
            "reward": reward,
            "end": trajectory.end,
            "end_reason": trajectory.end_reason,
            "outcome": trajectory.outcome,
            "turns": trajectory.turns,
            "policy_step_first": first,
            "policy_step_last": last,
            "step_roles": tuple(s.role for s in trajectory.steps),
            "step_kinds": tuple(s.kinds for s in trajectory.steps),
        }
        return cls(**known | used)


def _tokens(trajectory: Trajectory) -> dict[str, Any]:
    """Token columns of a trajectory; absent as a whole where one message lacks
    them. One walk over the messages.
    """
    starts: list[int] = []
    token_ids: list[int] = []
    sampled: list[bool] = []
    logprobs: list[float] = []
    known = True
    for step in trajectory.steps:
        if step.token_ids is None or step.sampled is None:
            return {"step_starts": (0,) * len(trajectory.steps)}
        starts.append(len(token_ids))
        token_ids += step.token_ids
        sampled += step.sampled
        logprobs += step.logprobs or ()
        known = known and (step.logprobs is not None or True not in step.sampled)
    return {
        "token_ids": tuple(token_ids),
        "sampled": tuple(sampled),
        "sampler_logprobs": tuple(logprobs) if known else None,
        "step_starts": tuple(starts),
    }


class TrainingRun(VersionedRecord):
    """What holds for every step of a run. `start` and `tokenizer` are content
    hashes, as a checkpoint's are.

    `environment`: name, options and scrubbed channels. `estimator`: how
    advantages were made (scaling, tolerance, filter). `recipe`: the whole
    recipe as plain data. `rewards`: name to `weight` and `function`
    (`module:qualname`) of what was really used; empty where that is not known.
    """

    code: str
    recipe: dict[str, Any]
    estimator: dict[str, Any]
    seed: int | None
    start: str
    tokenizer: str
    environment: dict[str, Any]
    rewards: dict[str, dict[str, Any]] = {}


class StepMarker(VersionedRecord):
    """Written last: the step's shard is complete. `sha256` of the shard's
    bytes; `report`: what the step did, as plain data; `code`: the version that
    wrote it.
    """

    kind: Literal["training-step"] = "training-step"
    step: int
    rows: int
    sha256: str
    code: str
    report: dict[str, Any] = {}


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
