"""A step's rollouts: prompts, episodes, rewards, groups; dropped groups refilled within bounds.

Failures are said in one sentence and handled as the recipe says: an episode that the environment broke (it raised,
or hung beyond its limit) has no reward and takes no part, or stops the run; a reward that raises, or gives anything
but a finite number or `None`, stops the run, or counts as missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from forensics.errors import UserError
from forensics.policies.huggingface import HuggingFacePolicy
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory
from training.advantages import step_advantages
from training.groups import Curriculum, Judged, Played, VarianceFilter, judge
from training.objective import Objective, overlong_penalty
from training.parallel import Process
from training.recipe import GrpoSection
from training.rewards import Reward

Rewards = Mapping[str, tuple[Reward, float]]
OVERLONG = "overlong"  # the name under which the length penalty is recorded


@dataclass(frozen=True, kw_only=True)
class Collector:
    """What a run draws its steps from. `variance` and `curriculum` carry state from step to step."""

    policy: HuggingFacePolicy
    environment: Environment
    settings: SamplingSettings
    rewards: Rewards
    config: GrpoSection
    objective: Objective
    curriculum: Curriculum
    variance: VarianceFilter | None
    seed: int
    process: Process

    def collect(self, step: int) -> list[Judged]:
        """All groups of a step, dropped ones included, in the order they were drawn; the same on every process."""
        config = self.config
        kept: list[Judged] = []
        for turn in range(1 + config.refill):
            missing = config.groups - sum(group.dropped is None for group in kept)
            if missing <= 0:
                break
            kept += self._draw(step, turn, missing)
        self.curriculum.learn([group.played for group in kept])
        return kept

    def _draw(self, step: int, turn: int, number: int) -> list[Judged]:
        key = [self.seed, step, turn] if turn else [self.seed, step]
        root = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)
        tasks = self.curriculum.draw(self.environment, number, root)
        mine = self.process.share(tasks)
        samples = self.config.samples
        played = list(self.policy.play(self.environment, mine, samples, self.settings, root)) if mine else []
        chunks = self.process.gather([played[i : i + samples] for i in range(0, len(played), samples)])
        self._check([trajectory for chunk in chunks for trajectory in chunk])
        generator = np.random.default_rng([self.seed, step, 1] if not turn else [self.seed, step, 1, turn])
        scored = [self._score(chunk, generator) for chunk in chunks] if self.process.first else None
        groups = self.process.from_first(scored)
        advantages = step_advantages([group.totals for group in groups], self.config.scaling,
                                     self.config.dead_tolerance)
        judged = judge(groups, advantages, self.variance)
        return judged if self.config.filter != "none" else [_kept(group) for group in judged]

    def _check(self, trajectories: Sequence[Trajectory]) -> None:
        if self.config.on_environment_error == "drop":
            return
        for trajectory in trajectories:
            if trajectory.end == "errored":
                raise UserError(
                    f"an episode of task {trajectory.task} broke: {trajectory.end_reason}; mend the environment, or "
                    "set on_environment_error = \"drop\" under [grpo]"
                )

    def _score(self, chunk: Sequence[Trajectory], generator: np.random.Generator) -> Played:
        parts = [self._components(trajectory, generator) for trajectory in chunk]
        return Played(
            task=chunk[0].task, trajectories=tuple(chunk), components=tuple(parts),
            totals=tuple(self._total(part) for part in parts),
        )

    def _components(self, trajectory: Trajectory, generator: np.random.Generator) -> dict[str, float | None]:
        parts = {name: self._one(name, reward, trajectory, generator) for name, (reward, _) in self.rewards.items()}
        if self.objective.overlong_buffer:
            length = sum(len(step.token_ids or ()) for step in trajectory.steps)
            parts[OVERLONG] = overlong_penalty(length, self.settings.max_tokens, self.objective)
        return parts

    def _one(
        self, name: str, reward: Reward, trajectory: Trajectory, generator: np.random.Generator
    ) -> float | None:
        try:
            value = reward(trajectory, generator)
        except Exception as error:
            wrong = f"raised {type(error).__name__}: {error}"
        else:
            if value is None or (isinstance(value, Real) and np.isfinite(float(value))):
                return None if value is None else float(value)
            wrong = f"gave {value!r}, which is not one finite number"
        if self.config.on_reward_error == "missing":
            return None
        raise UserError(
            f"the reward '{name}' {wrong} (task {trajectory.task}, sample {trajectory.sample}); mend it, or set "
            "on_reward_error = \"missing\" under [grpo]"
        )

    def _total(self, parts: Mapping[str, float | None]) -> float | None:
        """The weighted sum; missing if any component is."""
        if any(value is None for value in parts.values()):
            return None
        weighted = sum(weight * (parts[name] or 0.0) for name, (_, weight) in self.rewards.items())
        return weighted + (parts.get(OVERLONG) or 0.0)


def _kept(group: Judged) -> Judged:
    """Without a filter a dead group is trained on too (it still has a KL and an entropy term)."""
    alone = group.advantages.dead is not None and group.advantages.dead.startswith("fewer")
    return group if alone else Judged(played=group.played, advantages=group.advantages, dropped=None)
