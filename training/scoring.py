"""What an episode is worth, or why it has no reward.

1. An episode that the environment broke, or whose prompt left no room for an action, says nothing of the policy. It
   has no reward, whatever the reward functions would say of it: they are not asked, and it is in no baseline.
2. A reward that raises, or gives anything but one finite number or `None`, stops the run, or counts as missing.
3. An episode that lacks one of its rewards has no total. Its reason goes into the record; what was not wanted is
   warned of once.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forensics.errors import UserError
from forensics.records import Trajectory
from training.groups import Played
from training.objective import Objective, overlong_penalty
from training.recipe import GrpoSection
from training.rewards import Rewards, as_number

OVERLONG = "overlong"  # the name under which the length penalty is recorded
Scored = tuple[dict[str, float | None], str | None]  # rewards, and why there is no total
logger = logging.getLogger("forensics")


@dataclass(frozen=True, kw_only=True)
class RewardScorer:
    """Rewards of finished groups. `told`: the kinds of trouble that were warned of."""

    rewards: Rewards
    config: GrpoSection
    objective: Objective
    told: set[str] = field(default_factory=set)

    def group(self, chunk: Sequence[Trajectory], generator: np.random.Generator) -> Played:
        """One group, scored. Raises `UserError` for a broken reward that is to stop the run."""
        scored = [self._episode(trajectory, generator) for trajectory in chunk]
        return Played(
            task=chunk[0].task, trajectories=tuple(chunk), components=tuple(parts for parts, _ in scored),
            totals=tuple(self._total(parts) if reason is None else None for parts, reason in scored),
            missing={number: reason for number, (_, reason) in enumerate(scored) if reason is not None},
        )

    def _episode(self, trajectory: Trajectory, generator: np.random.Generator) -> Scored:
        names = [*self.rewards, *([OVERLONG] if self.objective.overlong_buffer else [])]
        if (reason := self._says_nothing(trajectory)) is not None:
            return dict.fromkeys(names), reason
        found = {name: self._one(name, trajectory, generator) for name in self.rewards}
        parts = {name: value for name, (value, _) in found.items()}
        if self.objective.overlong_buffer:
            parts[OVERLONG] = overlong_penalty(trajectory.sampled_tokens or 0, self.objective)
        return parts, next((f"the reward '{name}' {wrong}" for name, (_, wrong) in found.items() if wrong), None)

    def _says_nothing(self, trajectory: Trajectory) -> str | None:
        if trajectory.end == "errored":
            self.warn("errored", f"an episode of task {trajectory.task} broke: {trajectory.end_reason}; such episodes "
                      "have no reward and are not trained on (on_environment_error = \"drop\")")
            return f"errored: {trajectory.end_reason}"
        if trajectory.end == "truncated" and not trajectory.turns:
            room = "the prompt leaves no room for an action"
            self.warn("room", f"task {trajectory.task} cannot be trained on: {room}; raise max_tokens under "
                      "[sampling], as far as the model has positions, or leave out the longest prompts")
            return room
        return None

    def _one(
        self, name: str, trajectory: Trajectory, generator: np.random.Generator
    ) -> tuple[float | None, str | None]:
        """The reward, or why it is missing."""
        try:
            value = self.rewards[name][0](trajectory, generator)
        except Exception as error:
            wrong = f"raised {type(error).__name__}: {error}"
        else:
            if value is None:
                return None, "gave None"
            if (number := as_number(value)) is not None:
                return number, None
            wrong = f"gave {value!r}, which is not one finite number"
        where = f"the reward '{name}' {wrong} (task {trajectory.task}, sample {trajectory.sample})"
        if self.config.on_reward_error == "stop":
            raise UserError(f"{where}; mend it, or set on_reward_error = \"missing\" under [grpo]")
        self.warn(f"reward {name}", f"{where}; such episodes are not trained on (on_reward_error = \"missing\")")
        return None, wrong

    def _total(self, parts: Mapping[str, float | None]) -> float:
        weighted = sum(weight * (parts[name] or 0.0) for name, (_, weight) in self.rewards.items())
        return weighted + (parts.get(OVERLONG) or 0.0)

    def warn(self, kind: str, text: str) -> None:
        """Once in a run for each kind of trouble."""
        if kind not in self.told:
            self.told.add(kind)
            logger.warning("%s", text)
