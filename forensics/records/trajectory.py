"""Trajectories: what one policy did on one task, message by message.

A trajectory is a flat list of steps. A step is one message: of the policy
(`assistant`), of the environment (`tool`), or of the prompt (`system`, `user`).
Steps are counted from 0 over the whole list, so that step numbers in evidence
point at one message each. How a run ended is one of three different things: it
*terminated* by the rules, was *truncated* by a budget, or *errored*.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from forensics.records.record import Record, Texts, VersionedRecord

ROUNDING = 1e-3  # up to which two records of one reward are equal
Role = Literal["system", "user", "assistant", "tool"]
Ending = Literal["terminated", "truncated", "errored"]
TOKEN_LIMIT = "token limit"  # the `end_reason` of a run that its token budget cut off
LAST_ACTION_CUT = "last action cut off"  # ... begins so where the rules ended it on a cut action
WORLD_RAISED = "the environment raised"  # ... and so where the world itself failed


def handed_in(end: str, end_reason: str | None) -> bool:
    """Whether the environment ended the run by its rules and graded it, be it
    on an action that was cut off.
    """
    return end == "terminated" or (
        end == "truncated" and (end_reason or "").startswith(LAST_ACTION_CUT)
    )


def outcome_of(rewards: Mapping[str, float | None]) -> float | None:
    """The reward that counts among named ones: `reward`, or the only one."""
    return rewards.get("reward", next(iter(rewards.values())) if len(rewards) == 1 else None)


def differing(records: Mapping[str, Mapping[str, float | None]]) -> dict[str, float | None]:
    """Of several records of one run's rewards, by file, the values in which two differ, to stand
    among the run's rewards: `reward (in result.json)`. What one leaves out is no difference.
    """
    told = {file: {"reward": outcome_of(one), **one} for file, one in records.items()}
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(name for one in told.values() for name in one):
        said = {file: one[name] for file, one in told.items() if one.get(name) is not None}
        known = [value for value in said.values() if value is not None]
        if known and max(known) - min(known) > ROUNDING:
            found |= {f"{name} (in {file})": value for file, value in said.items()}
    return found


def records_that_differ(rewards: Mapping[str, float | None]) -> str:
    """What `differing` put there, in words; `""` where the records of an outcome agree."""
    told = (
        (name, value) for name, value in rewards.items() if re.search(r" \(in \S+\.\w+\)$", name)
    )
    return ", ".join(f"{name} {value:g}" for name, value in told if value is not None)


class ToolCall(Record):
    """A structured call inside an assistant step; `arguments` is the JSON text
    as it was written.
    """

    name: str
    arguments: str


class Step(Record):
    """One message.

    `kinds`: the kinds of the actions in an assistant step, in order (named by
    the environment).
    `channels`: the shortcuts whose content a tool step showed, as the
    environment knows it.
    `token_ids`: the step's tokens in the episode, template tokens included
    (`None`: not known).
    `sampled`: for each token, whether the policy drew it.
    `logprobs`: for each *sampled* token, its log-probability in nats under the
    sampler's settings.
    """

    role: Role
    text: str
    kinds: Texts = ()
    channels: Texts = ()
    tool_calls: tuple[ToolCall, ...] = ()
    token_ids: tuple[int, ...] | None = None
    sampled: tuple[bool, ...] | None = None
    logprobs: tuple[float, ...] | None = None

    def model_post_init(self, context: Any, /) -> None:
        """Once, where the step is made: an after-validator would run again in
        every record that takes the step in.
        """
        if self.sampled is not None and (
            self.token_ids is None or len(self.sampled) != len(self.token_ids)
        ):
            raise ValueError("`sampled` needs one flag for each of `token_ids`")
        if self.logprobs is not None and (
            self.sampled is None or len(self.logprobs) != sum(self.sampled)
        ):
            raise ValueError("`logprobs` needs one number for each sampled token")


class Trajectory(VersionedRecord):
    """One run of one policy on one task.

    `id` is unique within a log. `policy` is the checkpoint's hash (or a name
    from a foreign log). `without` lists the channels that were scrubbed from
    the environment. `rewards` are named components (`None`: could not be
    measured), `outcome` the score that counts, in [0, 1] for the embedded
    worlds. `submission` is the *changed* part of what was handed in (for
    example the added lines of a diff), `patch` the whole diff it was taken
    from, where there is one. `redraws` counts actions refused by a constraint
    and drawn again. `file`: where a foreign log's run was read, below what was given.
    """

    id: str
    task: str
    policy: str
    environment: str
    without: Texts = ()
    seed: int
    sample: int = 0
    steps: tuple[Step, ...]
    rewards: dict[str, float | None] = {}
    outcome: float | None
    submission: str | None = None
    patch: str | None = None
    end: Ending
    end_reason: str | None = None
    redraws: int = 0
    file: str | None = None

    @property
    def origin(self) -> dict[str, Any]:
        """What a row about it says of it."""
        named = {name: getattr(self, name) for name in ("task", "policy", "file")}
        return {"trajectory": self.id, **named}

    @property
    def actions(self) -> tuple[tuple[int, Step], ...]:
        """The assistant steps with their step numbers."""
        return tuple((i, step) for i, step in enumerate(self.steps) if step.role == "assistant")

    @property
    def turns(self) -> int:
        """How many times the policy acted."""
        return sum(step.role == "assistant" for step in self.steps)

    @property
    def sampled_tokens(self) -> int | None:
        """How many tokens the policy drew, `None` where a step does not say."""
        masks = [step.sampled for _, step in self.actions]
        return (
            None
            if any(mask is None for mask in masks)
            else sum(sum(mask) for mask in masks if mask)
        )


def action_starts(trajectory: Trajectory) -> tuple[int, ...]:
    """Where what the policy drew starts in each action, among all tokens of a run."""
    starts, at = [], 0
    for step in trajectory.steps:
        if any(step.sampled or ()):
            starts.append(at + (step.sampled or ()).index(True))
        at += len(step.token_ids or ())
    return tuple(starts)
